"""The compared searches on a GPU: one session for all of them, contests at the end of a repeat."""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from kernelarc.bench import Device, Session, paired_speedup
from kernelarc.bench.cuda import CudaDevice
from kernelarc.bench.experiments._library_methods import MARKS, METHODS, Play, SpentError
from kernelarc.bench.experiments._machine import with_machine, write
from kernelarc.genomes import (
    LT_ROUTE,
    Candidate,
    Environment,
    Genome,
    Problem,
    Space,
    Workload,
    matmul_target,
)

LIVE: Sequence[tuple[bool, int, int, int]] = (  # with a residual in place, M, N, K
    (True, 586, 2560, 2560),
    (True, 2048, 2560, 2560),
    (False, 64, 14336, 4096),
    (False, 1000, 1000, 1000),
    (False, 384, 5120, 1280),
)
_ROUNDS = 40
# Of Optuna for each evaluation: ten milliseconds each, in which the GPU waits.
_MOST_ASKS = 8
_ISLAND = "experiment"


class Live:
    """Answers of an open session on one of its workloads."""

    def __init__(self, session: Session, workload: Workload) -> None:
        self.session, self.workload = session, workload
        self.space: Space = session.spaces(self.workload)[LT_ROUTE]
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
        """Return a device that hands out this very session, as if it had this workload alone."""
        problem = replace(self.session.problem, workloads=(self.workload,))
        return _Lending(_Narrowed(self.session, problem)), problem


class _Narrowed:
    """An open session as one with a single workload sees it. Nobody closes it."""

    window, lag = 8, 1  # as many as a session with one workload likes

    def __init__(self, session: Session, problem: Problem) -> None:
        self._session, self.problem = session, problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave it open: others follow."""


class _Lending(Device):
    deterministic = False

    def __init__(self, session: _Narrowed) -> None:
        self.name, self._session = session.device, session

    def environment(self) -> Environment:
        """Return the session's."""
        found: Environment = self._session.environment
        return found

    def open(self, problem: Problem, **_: Any) -> Any:
        """Return the session."""
        return self._session


def live(budget: int, repeats: int, seconds: float, output: Path | None) -> dict[str, Any]:
    """Run every method on five products, as many whole repeats as the time allows.

    Products of one kind share a session. The second kind gets no more repeats than the first had:
    means are of as many repeats of each product.

    Args:
        budget: Evaluations of a run.
        repeats: At most so many.
        seconds: Wall time for all. Every shape gets at least one repeat.
        output: Is written after every repeat of a shape.
    """
    begun = time.monotonic()
    rows = [_LiveRow(shape, budget) for shape in LIVE]
    figures = with_machine({"evaluations": budget, "shapes": []})

    def told() -> None:
        begun_rows = [row for row in rows if row.repeats]
        figures["shapes"] = [row.told() for row in begun_rows]
        figures["means"], figures["repeats_in_means"] = means_of(begun_rows)
        figures["seconds"] = round(time.monotonic() - begun, 1)
        write(figures, output)

    done = 0
    for residual in (False, True):
        mine = [row for row in rows if row.shape[0] is residual]
        done += len(mine)
        until = begun + seconds * done / len(rows)
        problem = matmul_target([row.axes for row in mine], {"residual": residual})
        with (
            tempfile.TemporaryDirectory() as folder,
            CudaDevice().open(problem, seed=0, artefacts=Path(folder)) as session,
        ):
            figures["gpu"] = dict(session.environment.identity)
            repeats = _repeated(session, mine, repeats, until, told)
    return figures


def _repeated(
    session: Session, rows: Sequence[_LiveRow], repeats: int, until: float, told: Callable[[], None]
) -> int:
    """Repeat rows of one session while there is time; return how many whole repeats there were."""
    for seed in range(repeats):
        took = time.monotonic()
        for row, workload in zip(rows, session.problem.workloads, strict=True):
            row.repeat(Live(session, workload), seed)
            told()
        if time.monotonic() + (time.monotonic() - took) > until:
            return seed + 1
    return repeats


class _LiveRow:
    """One product's figures.

    Attributes:
        repeats: Whole ones so far.
        speedups: By method and mark, one of each repeat.
    """

    def __init__(self, shape: tuple[bool, int, int, int], budget: int) -> None:
        self.shape, self._budget = shape, budget
        self.axes = dict(zip("MNK", shape[1:], strict=True))
        self.marks = [mark for mark in MARKS if mark <= budget]
        self.repeats = 0
        self.speedups: dict[str, dict[int, list[float]]] = {
            name: {mark: [] for mark in self.marks} for name in METHODS
        }
        self._took = dict.fromkeys(METHODS, 0.0)
        self._spent: dict[str, list[int]] = {name: [] for name in METHODS}

    def repeat(self, source: Live, seed: int) -> None:
        """Run every method once, then time what they found beside the first heuristic."""
        finds: dict[tuple[str, int], Genome] = {}
        for name, method in METHODS.items():
            play = Play(source, self._budget, most_asks=_MOST_ASKS)
            begun = time.perf_counter()
            with contextlib.suppress(SpentError):
                method(play, seed)
            self._took[name] += time.perf_counter() - begun
            self._spent[name].append(len(play.best))
            finds |= {(name, mark): play.found(mark) for mark in self.marks}
        timed = _side_by_side(source, list(dict.fromkeys(finds.values())))
        for (name, mark), genome in finds.items():
            self.speedups[name][mark].append(timed[genome.fingerprint])
        self.repeats += 1

    def told(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        residual = self.shape[0]
        return {
            "shape": {"residual in place": residual, **self.axes},
            "repeats": self.repeats,
            "methods": {
                name: {
                    "speedup_at": {
                        str(mark): [round(value, 4) for value in values]
                        for mark, values in marks.items()
                    },
                    "evaluations": self._spent[name],
                    "seconds_a_run": round(self._took[name] / self.repeats, 2),
                }
                for name, marks in self.speedups.items()
            },
        }


def means_of(rows: Sequence[_LiveRow]) -> tuple[dict[str, dict[str, float]], int]:
    """Return geometric means by method and mark, and of how many repeats of each shape."""
    repeats = min(row.repeats for row in rows)
    found = {
        name: {
            str(mark): round(
                math.exp(
                    statistics.mean(
                        math.log(value)
                        for row in rows
                        for value in row.speedups[name][mark][:repeats]
                    )
                ),
                4,
            )
            for mark in rows[0].marks
        }
        for name in METHODS
    }
    return found, repeats


def _side_by_side(source: Live, genomes: list[Genome]) -> dict[str, float]:
    """Return the paired speed-up of each genome over the library's first heuristic.

    What fails in the contest is worth nothing: the heuristic would be run, so 1.
    """
    contest = source.session.contest(source.workload, genomes, rounds=_ROUNDS, baseline=True)
    base = contest.column(contest.names[-1])
    return {
        genome.fingerprint: 1.0
        if genome.fingerprint in contest.failures
        else paired_speedup(contest.column(genome.fingerprint), base).value
        for genome in genomes
    }
