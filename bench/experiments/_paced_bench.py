"""A worker's bench that takes the time an H200 takes, and answers by arithmetic.

What it offers is what cuBLASLt offered for the recorded products: the tiles, stages, clusters and
options of each algorithm, and which genomes the library took where one was recorded. Everything
else, times above all, is made up: a guess by waves of tiles, and what a hash of the kernel adds.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.cuda._protocol import ContestReply, DomainReply, Outcome, Task
from kernelarc.bench.replay import ReplayDevice
from kernelarc.genomes import (
    Allele,
    CublasLtSpace,
    Environment,
    GridHint,
    LtAlgoDomain,
    LtDomain,
    LtRow,
    Status,
)

_REDUCTIONS = {"none": 0, "inplace": 1, "compute": 2, "output": 4}
RECORDING = (
    Path(__file__).parents[1]
    / "results/recordings/h200_matmul_bf16_tn_residual_2048x2560x2560.json.gz"
)
MULTIPROCESSORS = 132
# Seconds. Of a campaign over nine products on an H200: 6.5 ms a candidate on average, half of it
# whatever the product, and less where it is stopped early; 75 contests took 4 s.
_CANDIDATE_S, _PER_ROW_S, _STOPPED = 0.004, 6.5e-7, 0.65
_CHECK_S, _CHECKED_S = 0.001, 1e-5
_CONTEST_S, _CONTENDER_S, _TURN_S = 0.008, 0.0045, 1.2e-4
_OFFERED, _NOISE, _SAMPLES = 0.45, 0.006, 6
_PAIRS = (
    ("tile", "tile", "m", "n"),
    ("stage", "stages", "k", "n"),
    ("cluster", "cluster", "m", "n"),
)
_REFUSED = 15
"""The library's number for what it does not support."""


class PacedBench:
    """The worker's side: verbs of requests as the one on a GPU has them.

    Attributes:
        pace: By how much what takes time is drawn out.
        taken_s: What the newest request took on the GPU.
    """

    pace = 1.0

    def __init__(self, ordinal: int) -> None:
        del ordinal
        self._tasks: tuple[Task, ...] = ()
        self._rng = np.random.default_rng(0)
        self.taken_s = 0.0

    def environment(self) -> Environment:
        """Return an identity of its own."""
        identity = {"device": "paced stand-in", "multiprocessors": str(MULTIPROCESSORS)}
        return Environment(identity=identity, observations={})

    def observe(self) -> dict[str, str]:
        """Return nothing."""
        return {}

    def broken(self) -> bool:
        """Tell that it never is."""
        return False

    def open(self, tasks: Sequence[Task], seed: int) -> None:
        """Take a problem."""
        self._tasks, self._rng = tuple(tasks), np.random.default_rng(seed)

    @cached_property
    def _offer(self) -> tuple[LtDomain, tuple[tuple[str, LtRow], ...]]:
        return offer()

    @cached_property
    def _space(self) -> CublasLtSpace:
        return CublasLtSpace(self._offer[0])

    def domain(self, workload: int) -> DomainReply:
        """Return what was recorded as offered."""
        del workload
        domain, seeds = self._offer
        return DomainReply(domain=domain, seeds=seeds, baseline=seeds[0][1])

    def check(
        self, workload: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Take some rows and refuse the others."""
        begun = time.perf_counter()
        heuristics = {row for _, row in self._offer[1]}
        found = [
            0 if tuple(row) in heuristics or _taken(tuple(row)) else _REFUSED
            for row in rows.tolist()
        ]
        self._wait(begun, _CHECK_S + _CHECKED_S * len(rows))
        return np.array(found, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)

    def _time_us(self, workload: int, row: LtRow) -> float:
        job = self._tasks[workload].job
        hint = GridHint.of(job, MULTIPROCESSORS)
        alleles = self._space.alleles(row)
        floor = (job.m * job.n + 64 * math.sqrt(job.m * job.n)) * job.k / MULTIPROCESSORS
        at_best = 4.0 + job.flops / 8e8
        waves = (hint(alleles) / floor) ** 0.8
        kernel = (row[0], row[1], row[5], row[8])
        return float(at_best * waves * (1 + 0.06 * _chance(kernel) + 0.02 * _chance(row[:10])))

    def evaluate(self, workload: int, number: int, row: LtRow, limit_us: float | None) -> Outcome:
        """Take the time that checking and timing takes, and answer."""
        begun = time.perf_counter()
        exact = self._time_us(workload, row)
        censored = limit_us is not None and exact > 1.3 * limit_us
        cost_s = _CANDIDATE_S + _PER_ROW_S * self._tasks[workload].job.m
        cost_s *= float(self._rng.lognormal(0.0, 0.25)) * (_STOPPED if censored else 1.0)
        off = float(self._rng.normal(0.0, _NOISE))
        samples = exact * (1 + off + self._rng.normal(0.0, _NOISE, 3 if censored else _SAMPLES))
        self._wait(begun, cost_s)
        return Outcome(
            number=number,
            status=Status.OK,
            samples=tuple(samples.tolist()),
            censored=censored,
            cost_s=time.perf_counter() - begun,
        )

    def contest(
        self, workload: int, rows: Sequence[LtRow], rounds: int, cache: str, seed: int
    ) -> ContestReply:
        """Take the time of a contest, and answer."""
        del cache
        begun, rng = time.perf_counter(), np.random.default_rng(seed)
        exact = np.array([self._time_us(workload, row) for row in rows])
        samples = exact * (1 + rng.normal(0.0, _NOISE, (rounds, len(rows))))
        self._wait(begun, _CONTEST_S + len(rows) * (_CONTENDER_S + rounds * _TURN_S))
        told = tuple(tuple(float(v) for v in row) for row in samples)
        return ContestReply(samples=told, failures={}, launches=1)

    def _wait(self, begun: float, seconds: float) -> None:
        self.taken_s = seconds
        if self.pace:
            time.sleep(max(0.0, begun + self.pace * seconds - time.perf_counter()))


class HurriedBench(PacedBench):
    """Answers at once: for the engine's own time, whatever else the machine does."""

    pace = 0.0


def offer() -> tuple[LtDomain, tuple[tuple[str, LtRow], ...]]:
    """Return what the recorded library offers, and its heuristics as rows."""
    recording = ReplayDevice(RECORDING).recording
    (space,) = recording.spaces.values()
    seen: defaultdict[str, defaultdict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    held: list[Mapping[str, Allele]] = [*space.enumerate()]
    held += [proposal.genome for proposal in recording.seeds]
    for genome in held:
        for kind, value in _parts(genome).items():
            seen[str(genome["algo"])][kind].add(value)
    names = {
        kind: {
            n + 1: pair
            for n, pair in enumerate(sorted({p for a in seen.values() for p in a[kind]}))
        }
        for kind in ("tiles", "stages", "clusters")
    }
    numbers = {kind: {pair: n for n, pair in pairs.items()} for kind, pairs in names.items()}
    algos = tuple(_algo(int(algo), parts, numbers) for algo, parts in sorted(seen.items()))
    domain = LtDomain(
        version=0,
        algos=algos,
        workspace_mib=(0, 64),
        aliased=(True, False),
        **names,
    )
    lt = CublasLtSpace(domain)
    return domain, tuple((p.mutation, lt.row(p.genome)) for p in recording.seeds)


def _parts(genome: Mapping[str, Allele]) -> dict[str, Any]:
    pairs = {
        f"{kind}s": (genome[f"{gene}_{a}"], genome[f"{gene}_{b}"]) for kind, gene, a, b in _PAIRS
    }
    plain = {"splitk": "splitks", "swizzle": "swizzles", "custom": "customs", "inner": "inners"}
    single = {kind: genome[name] for name, kind in plain.items()}
    return {**pairs, **single, "reductions": _REDUCTIONS[str(genome["reduction"])]}


def _algo(
    algo: int, parts: Mapping[str, set[Any]], numbers: Mapping[str, Mapping[Any, int]]
) -> LtAlgoDomain:
    named: dict[str, Any] = {
        kind: tuple(sorted(numbers[kind][v] if kind in numbers else v for v in values))
        for kind, values in parts.items()
    }
    return LtAlgoDomain(algo=algo, **named)


def _taken(row: LtRow) -> bool:
    """Tell whether the library takes a row: it has a kernel or not, and split-K needs scratch."""
    if row[2] > 1 and (not row[9] or _chance((row[0], row[1], row[2])) > 0.5):
        return False
    return _chance((row[0], row[1], row[5], row[8])) < _OFFERED


@cache
def _chance(parts: tuple[int, ...]) -> float:
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
