"""Searches that are compared over a library's space, each counted by what it has evaluated."""

from __future__ import annotations

import contextlib
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from kernelarc.bench import Device
from kernelarc.engine import CampaignSettings, Counts, Observer, run
from kernelarc.genomes import Gene, Genome, Judged, Problem, Space

MARKS = (25, 50, 100, 150)
_ELITES, _BATCH, _CHUNK, _MOST_ASKS = 5, 32, 32, 60

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


class Play:
    """One run: every genome is answered once, and counted.

    Attributes:
        most_asks: How often a sampler may be asked, for each evaluation of the budget.
        best: The best objective after each evaluation.
        holders: Whose that is.
        concluded: What the method itself says is best, where it says so.
    """

    def __init__(self, source: Source, budget: int, most_asks: int = _MOST_ASKS) -> None:
        self.source, self.budget, self.most_asks = source, budget, most_asks
        self.space = source.space
        self.known: dict[str, float] = {}
        self.genomes: dict[str, Genome] = {}
        self.best: list[float] = []
        self.holders: list[Genome] = []
        self.concluded: Genome | None = None

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
            better = not self.best or time_us < self.best[-1]
            self.best.append(time_us if better else self.best[-1])
            self.holders.append(genome if better else self.holders[-1])

    def found(self, mark: int) -> Genome:
        """Return what the method would hand over after so many evaluations."""
        if self.concluded is not None and mark >= self.budget:
            return self.concluded
        return self.holders[min(mark, len(self.holders)) - 1]

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
    for _ in range(play.most_asks * play.budget):
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
            best = run(values, device=device, problem=problem, observer=_Follower(play)).best
            play.concluded = None if best is None else Genome(best.route, best.genome)

    return play_islands


METHODS: Mapping[str, Method] = {
    "heuristics only": heuristics,
    "random legal genomes": random_legal,
    "plain seeded climb": climb,
    "Optuna TPE alone": tpe,
    "islands isolated": _islands(share_log=False, conclusions=False),
    "islands with conclusions": _islands(),
}
