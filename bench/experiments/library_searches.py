"""Searches over cuBLASLt's space: the same number of legal evaluations for each.

``python -m kernelarc.bench.experiments.library_searches RECORDING... [-o FILE]`` compares
them on recordings, ``--live`` on five products on this machine's GPU; there each repeat ends with
a contest of what the methods found, beside the library's first heuristic. Every method but the
random one begins with the library's heuristics, which count as evaluations. What is illegal, or
was evaluated before, costs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from kernelarc.bench import Device, Recording, ReplayDevice, Session, paired_speedup
from kernelarc.bench.cuda import CudaDevice
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, Counts, Observer, run
from kernelarc.genomes import (
    Candidate,
    Environment,
    Gene,
    Genome,
    Judged,
    Problem,
    Space,
    Status,
    matmul_target,
)

ROUTE = "cublaslt"
MARKS = (25, 50, 100, 150)
_ELITES, _BATCH, _CHUNK, _MOST_ASKS = 5, 32, 32, 60
LIVE: Sequence[tuple[bool, int, int, int]] = (  # with a residual in place, M, N, K
    (True, 586, 2560, 2560),
    (True, 2048, 2560, 2560),
    (False, 64, 14336, 4096),
    (False, 1000, 1000, 1000),
    (False, 384, 5120, 1280),
)
_ROUNDS = 40
_ISLAND = "experiment"

Method: TypeAlias = "Callable[[Play, int], None]"


class SpentError(Exception):
    """The budget is used."""


class Source(Protocol):
    """Where answers come from.

    Attributes:
        space: The route's.
        seeds: The library's heuristics, its first one first.
    """

    space: Space
    seeds: Sequence[Genome]

    def times(self, genomes: Sequence[Genome]) -> list[float | None]:
        """Return each genome's time: infinite where it failed, None where it is illegal."""

    def device(self) -> tuple[Device, Problem]:
        """Return a device that a campaign can open, and its problem."""


class Recorded:
    """Answers of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.space: Space = recording.spaces[ROUTE]
        self.seeds: Sequence[Genome] = [proposal.genome for proposal in recording.seeds]

    def times(self, genomes: Sequence[Genome]) -> list[float | None]:
        """Look them up."""
        answers = [self.recording.answer(genome) for genome in genomes]
        return [
            None if a is None else a.objective if a.status is Status.OK else math.inf
            for a in answers
        ]

    def device(self) -> tuple[Device, Problem]:
        """Return a device of its own."""
        found = ReplayDevice(self.recording.path)
        return found, found.problem


class Live:
    """Answers of an open session with one workload."""

    def __init__(self, session: Session) -> None:
        self.session = session
        (self.workload,) = session.problem.workloads
        self.space: Space = session.spaces(self.workload)[ROUTE]
        seeds = session.seeds(self.workload)
        self.seeds: Sequence[Genome] = [proposal.genome for proposal in seeds]

    def times(self, genomes: Sequence[Genome]) -> list[float | None]:
        """Ask the library, then check and time what it takes."""
        faults = self.session.check(self.workload, genomes)
        found: list[float | None] = [None] * len(genomes)
        candidates = [
            Candidate(
                number=place,
                round=0,
                workload=self.workload.fingerprint,
                island=_ISLAND,
                mutation="experiment",
                genome=genome,
            )
            for place, genome in enumerate(genomes)
            if faults[place] is None
        ]
        self.session.submit(candidates, limit={})
        for evaluation in self.session.collect():
            if evaluation.candidate.island == _ISLAND:  # not what a campaign left behind
                timed = evaluation.measurement
                found[evaluation.candidate.number] = math.inf if timed is None else timed.objective
        return found

    def device(self) -> tuple[Device, Problem]:
        """Return a device that hands out this very session, which nobody closes."""
        return _Lending(self.session), self.session.problem


class _Lending(Device):
    deterministic = False

    def __init__(self, session: Session) -> None:
        self.name, self._session = session.device, session

    def environment(self) -> Environment:
        """Return the session's."""
        return self._session.environment

    def open(self, problem: Problem, **_: Any) -> Session:
        """Return the session."""
        return self._session


class Play:
    """One run: every genome is answered once, and counted.

    Attributes:
        best: The best objective after each evaluation.
    """

    def __init__(self, source: Source, budget: int) -> None:
        self.source, self.budget = source, budget
        self.space = source.space
        self.known: dict[str, float] = {}
        self.genomes: dict[str, Genome] = {}
        self.best: list[float] = []

    def try_all(self, genomes: Sequence[Genome]) -> None:
        """Evaluate those that are new and legal, in order.

        Raises:
            SpentError: The budget is used.
        """
        new = [g for g in dict.fromkeys(genomes) if g.fingerprint not in self.known]
        for start in range(0, len(new), _CHUNK):
            chunk = new[start : start + _CHUNK]
            for genome, time_us in zip(chunk, self.source.times(chunk), strict=True):
                if time_us is not None:
                    self.note(genome, time_us)

    def note(self, genome: Genome, time_us: float) -> None:
        """Count one evaluation.

        Raises:
            SpentError: The budget was used before it.
        """
        if len(self.best) >= self.budget:
            raise SpentError
        if genome.fingerprint not in self.known:
            self.known[genome.fingerprint], self.genomes[genome.fingerprint] = time_us, genome
            self.best.append(min(time_us, self.best[-1] if self.best else math.inf))

    def elites(self) -> list[Genome]:
        """Return the best genomes, the best first."""
        ranked = sorted(self.known, key=lambda key: (self.known[key], key))
        return [self.genomes[key] for key in ranked[:_ELITES]]


def heuristics(play: Play, seed: int) -> None:
    """Try the library's heuristics, over all algorithms and for each one, and nothing else."""
    del seed
    play.try_all(play.source.seeds)


def random_legal(play: Play, seed: int) -> None:
    """Draw legal genomes evenly."""
    rng = np.random.default_rng(seed)
    for _ in range(_MOST_ASKS):
        play.try_all([play.space.sample(rng) for _ in range(play.budget)])


def climb(play: Play, seed: int) -> None:
    """Begin with the heuristics, then step to neighbours and mutants of the best few."""
    heuristics(play, seed)
    rng = np.random.default_rng(seed)
    for _ in range(_MOST_ASKS * play.budget):
        parents = play.elites()
        tries = [step for parent in parents for step in play.space.neighbours(parent)]
        tries += [_mutant(play.space, parents[int(rng.integers(len(parents)))], rng)
                  for _ in range(60)]  # fmt: skip
        fresh = [g for g in dict.fromkeys(tries) if g.fingerprint not in play.known]
        play.try_all([fresh[int(i)] for i in rng.permutation(len(fresh))[:_BATCH]])


def _mutant(space: Space, genome: Genome, rng: np.random.Generator) -> Genome:
    alleles = genome.alleles()
    names = [name for name in space.names if space.gene(name).cardinality > 1]
    for name in rng.choice(names, size=int(rng.integers(2, 4)), replace=False):
        gene = space.gene(str(name))
        alleles[str(name)] = gene.mutate(alleles[str(name)], rng)
    return space.repair(alleles, rng) or genome


def tpe(play: Play, seed: int) -> None:
    """Begin with the heuristics as trials, then ask Optuna's multivariate TPE alone.

    What it asks for is repaired to the nearest legal genome: nearly all of it is illegal.
    """
    import optuna  # noqa: PLC0415

    heuristics(play, seed)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    genes = [gene for gene in play.space.genes if gene.cardinality > 1]
    shapes = {gene.name: _distribution(gene) for gene in genes}
    for key, genome in play.genomes.items():
        if math.isfinite(play.known[key]):
            study.add_trial(_trial(genes, shapes, genome, play.known[key]))
    rng = np.random.default_rng(seed)
    for _ in range(_MOST_ASKS * play.budget):
        asked = study.ask(shapes)
        drawn = {gene.name: gene.at(int(asked.params[gene.name])) for gene in genes}
        repaired = play.space.repair(drawn, rng)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)  # what it became is told instead
        if repaired is None or repaired.fingerprint in play.known:
            continue
        play.try_all([repaired])
        found = play.known.get(repaired.fingerprint, math.inf)
        if math.isfinite(found):
            study.add_trial(_trial(genes, shapes, repaired, found))


def _trial(
    genes: Sequence[Gene], shapes: Mapping[str, Any], genome: Genome, objective: float
) -> Any:
    from optuna.trial import create_trial  # noqa: PLC0415

    places = {gene.name: gene.place(genome[gene.name]) for gene in genes}
    return create_trial(params=places, distributions=dict(shapes), value=objective)


def _distribution(gene: Gene) -> Any:
    from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415

    if gene.ordered:
        return IntDistribution(0, gene.cardinality - 1)
    return CategoricalDistribution(list(range(gene.cardinality)))


class _Follower(Observer):
    def __init__(self, play: Play) -> None:
        self._play = play

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """Count what the campaign evaluated, in the order of the verdicts."""
        timed = judged.evaluation.measurement
        with contextlib.suppress(SpentError):
            time_us = math.inf if timed is None else timed.objective
            self._play.note(judged.evaluation.candidate.genome, time_us)


def _islands(**settings: Any) -> Method:
    def play_islands(play: Play, seed: int) -> None:
        device, problem = play.source.device()
        with tempfile.TemporaryDirectory() as folder:
            values = CampaignSettings(
                target="matmul",
                store=str(Path(folder) / "s.db"),
                budget=play.budget,
                seed=seed,
                audit_rounds=5,
                **settings,
            )
            run(values, device=device, problem=problem, observer=_Follower(play))

    return play_islands


METHODS: Mapping[str, Method] = {
    "heuristics only": heuristics,
    "random legal genomes": random_legal,
    "plain seeded climb": climb,
    "Optuna TPE alone": tpe,
    "islands isolated": _islands(share_log=False, conclusions=False),
    "islands with conclusions": _islands(),
}


def compare(path: Path, budget: int, repeats: int) -> dict[str, Any]:
    """Run every method on one recording."""
    recording = ReplayDevice(path).recording
    first = recording.answer(recording.seeds[0].genome)
    assert first is not None
    optimum = min(
        answer.objective
        for space in recording.spaces.values()
        for genome in space.enumerate()
        if (answer := recording.answer(genome)) is not None and answer.status is Status.OK
    )
    rows = {}
    for name, method in METHODS.items():
        runs, begun = [], time.perf_counter()
        for seed in range(repeats):
            play = Play(Recorded(recording), budget)
            with contextlib.suppress(SpentError):
                method(play, seed)
            runs.append([first.objective / play.best[min(m, len(play.best)) - 1] for m in MARKS])
        rows[name] = {
            "speedup_at": {
                str(mark): [round(run_[i], 4) for run_ in runs] for i, mark in enumerate(MARKS)
            },
            "seconds_a_run": round((time.perf_counter() - begun) / repeats, 2),
        }
    return {
        "recording": path.name,
        "first_heuristic_us": first.objective,
        "optimum_us": optimum,
        "optimum_speedup": round(first.objective / optimum, 4),
        "legal": recording.counts.genomes,
        "methods": rows,
    }


def live(shape: tuple[bool, int, int, int], budget: int, repeats: int) -> dict[str, Any]:
    """Run every method on one product, each repeat ending with a contest of their finds."""
    residual, m, n, k = shape
    problem = matmul_target([{"M": m, "N": n, "K": k}], {"residual": residual})
    rows: dict[str, list[float]] = {name: [] for name in METHODS}
    took = dict.fromkeys(METHODS, 0.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        CudaDevice().open(problem, seed=0, artefacts=Path(folder)) as session,
    ):
        end, session.close = session.close, lambda: None  # type: ignore[method-assign]
        try:
            source = Live(session)
            for seed in range(repeats):
                finds: dict[str, Genome] = {}
                for name, method in METHODS.items():
                    play, begun = Play(source, budget), time.perf_counter()
                    with contextlib.suppress(SpentError):
                        method(play, seed)
                    took[name] += time.perf_counter() - begun
                    finds[name] = play.elites()[0]
                speedups = _side_by_side(source, list(dict.fromkeys(finds.values())))
                for name, genome in finds.items():
                    rows[name].append(speedups[genome.fingerprint])
            environment = dict(session.environment.identity)
        finally:
            session.close = end  # type: ignore[method-assign]
    return {
        "shape": {"residual in place": residual, "M": m, "N": n, "K": k},
        "environment": environment,
        "evaluations": budget,
        "methods": {
            name: {
                "speedup": [round(value, 4) for value in values],
                "geometric_mean": round(math.exp(statistics.mean(map(math.log, values))), 4),
                "seconds_a_run": round(took[name] / repeats, 2),
            }
            for name, values in rows.items()
        },
    }


def _side_by_side(source: Live, genomes: list[Genome]) -> dict[str, float]:
    """Return the paired speed-up of each genome over the library's first heuristic."""
    contest = source.session.contest(source.workload, genomes, rounds=_ROUNDS, baseline=True)
    base = contest.column(contest.names[-1])
    return {
        genome.fingerprint: paired_speedup(contest.column(genome.fingerprint), base).value
        for genome in genomes
    }


def table(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return geometric means of the speed-up over recordings and repeats, by method and mark."""
    found = {}
    for name in METHODS:
        found[name] = {
            str(mark): round(
                math.exp(
                    statistics.mean(
                        math.log(value)
                        for result in results
                        for value in result["methods"][name]["speedup_at"][str(mark)]
                    )
                ),
                4,
            )
            for mark in MARKS
        }
    found["optimum"] = {
        str(MARKS[-1]): round(
            math.exp(statistics.mean(math.log(r["optimum_speedup"]) for r in results)), 4
        )
    }
    return found


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--live", action="store_true", help="on this machine's GPU")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a live run")
    parser.add_argument("--repeats", type=int, default=5)
    output_option(parser)
    arguments = parser.parse_args()
    if arguments.live:
        lived = [live(shape, arguments.budget, arguments.repeats) for shape in LIVE]
        keep({"repeats": arguments.repeats, "live": lived}, arguments.output)
        return
    results = []
    for path in arguments.recordings:
        results.append(compare(path, MARKS[-1], arguments.repeats))
        for name, row in results[-1]["methods"].items():
            means = {m: round(statistics.mean(v), 4) for m, v in row["speedup_at"].items()}
            print(f"{path.name[:44]:44s} {name:26s} {means} {row['seconds_a_run']} s", flush=True)
    means = table(results)
    for name, row in means.items():
        print(f"{name:26s} {row}")
    if arguments.output:
        figures = {"means": means, "repeats": arguments.repeats, "recordings": results}
        keep(figures, arguments.output)


if __name__ == "__main__":
    main()
