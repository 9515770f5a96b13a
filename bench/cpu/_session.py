"""An open session on the device ``cpu``: build a batch, stop building, judge it one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelarc.bench._environment import affinity, cpu_features, cpu_observations
from kernelarc.bench._load import LoadWatch
from kernelarc.bench._lock import DeviceLock
from kernelarc.bench._roofline import cpu_peak, floor_of, highest_clock_hz
from kernelarc.bench._session import Session
from kernelarc.bench._statistics import measurement_of
from kernelarc.bench.cpu._blame import Bench
from kernelarc.bench.cpu._build import BuildFailure, Built, build_job
from kernelarc.bench.cpu._compiler import Compiler
from kernelarc.bench.cpu._messages import ContestOutcome, JudgeOrder, Kernel, Outcome
from kernelarc.bench.cpu._pool import CompilePool
from kernelarc.genomes import (
    Allele,
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    InputError,
    Problem,
    Proposal,
    Space,
    Status,
    Workload,
    bytes_of,
    flops_of,
    nearest,
)
from kernelarc.genomes.routes import HostShape, Route

_SMALLEST_WINDOW, _LARGEST_WINDOW = 8, 16
HANG_FACTOR = 50.0
"""A run may last so many times the incumbent's before it counts as a hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimits:
    """Time limits of the device ``cpu``.

    Attributes:
        compile_s: After so long a compiler is killed.
        hang_s: After so long a single run is killed, where no incumbent says better.
        least_hang_s: No run is killed earlier, however fast the incumbent is.
        censor: Whether what is clearly slower is stopped early.
    """

    compile_s: float = 60.0
    hang_s: float = 20.0
    least_hang_s: float = 1.0
    censor: bool = True


class CpuSession(Session):
    """Builds and judges C kernels of one problem. See ``Session`` for the contract."""

    device = "cpu"
    deterministic = False
    lag = 0

    def __init__(
        self,
        *,
        problem: Problem,
        environment: Environment,
        routes: Mapping[str, Route],
        host: HostShape,
        compiler: Compiler,
        lock: DeviceLock,
        artefacts: Path,
        limits: CpuLimits,
        seed: int,
    ) -> None:
        self.problem = problem
        self.environment = environment
        self.window = min(_LARGEST_WINDOW, max(_SMALLEST_WINDOW, 4 * host.threads))
        self._routes = dict(routes)
        self._host = host
        self._compiler = compiler
        self._lock = lock
        self._limits = limits
        self._workloads = {w.fingerprint: w for w in problem.workloads}
        self._spaces: dict[str, dict[str, Space]] = {}
        self._floors: dict[str, float] = {}
        self._best: dict[str, float] = {}
        self._limit: dict[str, float] = {}
        self._queue: list[Candidate] = []
        self._binaries: dict[tuple[str, str], str] = {}
        self._foreign = ""
        self._pool = CompilePool(
            compiler, artefacts / "cpu", workers=host.threads, limit_s=limits.compile_s
        )
        self._bench = Bench(problem, seed)
        self._bench.refill()
        self._load = LoadWatch()

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the space of every route, made once."""
        key = self._known(workload.fingerprint).fingerprint
        if key not in self._spaces:
            self._spaces[key] = {
                name: route.space_for(workload, self._host) for name, route in self._routes.items()
            }
        return self._spaces[key]

    def _known(self, fingerprint: str) -> Workload:
        if fingerprint not in self._workloads:
            raise InputError(f"workload {fingerprint!r} is none of the problem that is open")
        return self._workloads[fingerprint]

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return nothing: a search on ``cpu`` starts from random legal genomes."""
        return ()

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Say for each genome why it is illegal, or None."""
        spaces = self.spaces(workload)
        return [self._violation(spaces, genome) for genome in genomes]

    def _violation(self, spaces: Mapping[str, Space], genome: Genome) -> str | None:
        space = spaces.get(genome.route)
        if space is None:
            return f"there is no route {genome.route!r}{nearest(genome.route, spaces)}"
        why = space.violation(genome)
        if why is None and not space.contains(genome):
            why = "it holds genes that are switched off"
        return why

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates; nothing is built before ``collect``."""
        for candidate in candidates:
            self._known(candidate.workload)
        self._queue.extend(candidates)
        self._limit.update(limit)

    def collect(self) -> Iterator[Evaluation]:
        """Build what is queued, wait until no compiler runs, then judge one after the other."""
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                built = self._build([(c.workload, c.genome) for c in batch])
                for candidate in sorted(batch, key=lambda c: c.workload):
                    yield self._evaluate(candidate, built[candidate.genome.fingerprint])
                self._foreign = self._load.foreign().warning() or ""
        finally:
            self._queue.clear()

    def _build(self, wanted: Sequence[tuple[str, Genome]]) -> dict[str, Built | BuildFailure]:
        """Build genomes; when this returns nothing but an idle worker and its spare runs."""
        self._bench.refill()
        jobs = {
            genome.fingerprint: build_job(self._routes[genome.route], genome, self._compiler)
            for _, genome in wanted
        }
        outcomes = self._pool.build(list(jobs.values()))
        self._bench.settle()
        self._load.foreign()  # what ran until now disturbed nothing
        return {name: outcomes[job.key] for name, job in jobs.items()}

    def _kernel(self, genome: Genome, built: Built) -> Kernel:
        route = self._routes[genome.route]
        return Kernel(
            name=genome.fingerprint,
            path=str(built.path.resolve()),
            symbol=route.symbol,
            arguments=route.arguments,
        )

    def _evaluate(self, candidate: Candidate, built: Built | BuildFailure) -> Evaluation:
        if isinstance(built, BuildFailure):
            return Evaluation(
                candidate=candidate,
                status=Status.COMPILE_ERROR,
                failure=built.failure,
                message=built.message,
                cost_s=built.seconds,
            )
        started = time.monotonic()
        limit_us = self._limit_us(candidate.workload)
        order = JudgeOrder(
            kernel=self._kernel(candidate.genome, built),
            workload=candidate.workload,
            limit_us=limit_us if self._limits.censor else None,
            hang_s=self._hang_s(limit_us),
            floor_us=self._floor_us(candidate.workload),
        )
        outcome = self._bench.judge(order)
        cost_s = built.seconds + time.monotonic() - started
        return self._evaluation(candidate, outcome, built, cost_s)

    def _evaluation(
        self, candidate: Candidate, outcome: Outcome, built: Built, cost_s: float
    ) -> Evaluation:
        properties = {**outcome.properties, **self._binary(candidate, built)}
        if outcome.status is not Status.OK:
            return Evaluation(
                candidate=candidate,
                status=outcome.status,
                failure=outcome.failure,
                message=outcome.message,
                cost_s=cost_s,
                properties=properties,
            )
        measurement = measurement_of(
            outcome.samples,
            censored=outcome.censored,
            cache=outcome.cache,
            launches=outcome.launches,
        )
        if not measurement.censored:
            best = self._best.get(candidate.workload, measurement.objective)
            self._best[candidate.workload] = min(best, measurement.objective)
        return Evaluation(
            candidate=candidate,
            status=Status.OK,
            measurement=measurement,
            cost_s=cost_s,
            properties=properties,
        )

    def _binary(self, candidate: Candidate, built: Built) -> dict[str, Allele]:
        """Return the binary's hash, and which other genome was compiled to the very same one."""
        own = candidate.genome.fingerprint
        first = self._binaries.setdefault((candidate.workload, built.binary), own)
        same: dict[str, Allele] = {} if first == own else {"same_binary_as": first}
        return {"binary": built.binary, **same}

    def _limit_us(self, workload: str) -> float | None:
        """Return the incumbent's time; what was measured since it was opened counts as well."""
        known = [t for t in (self._limit.get(workload), self._best.get(workload)) if t is not None]
        return min(known, default=None)

    def _hang_s(self, limit_us: float | None) -> float:
        limits = self._limits
        if limit_us is None:
            return limits.hang_s
        scaled = max(limits.least_hang_s, HANG_FACTOR * limit_us * 1e-6)
        return min(limits.hang_s, scaled) if self._limits.censor else limits.hang_s

    def _floor_us(self, workload: str) -> float:
        """Return the time that no processor like this can be below; bytes in caches are free."""
        if workload not in self._floors:
            bound, operator = self._known(workload), self.problem.operator
            peak = cpu_peak(
                cores=self._host.threads,
                clock_hz=highest_clock_hz(affinity()),
                features=cpu_features(),
                cache_bytes=float("inf"),
            )
            self._floors[workload] = floor_of(
                peak,
                flops=flops_of(operator, bound),
                bytes_moved=bytes_of(operator, bound),
                cache="warm",
            ).latency_us
        return self._floors[workload]

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Time genomes interleaved; see ``Session``."""
        key = self._known(workload.fingerprint).fingerprint
        names = [genome.fingerprint for genome in genomes]
        if not genomes or len(set(names)) != len(names) or rounds < 1:
            raise InputError("a contest takes at least one round and genome, all different")
        built = self._build([(key, genome) for genome in genomes])
        failures = {n: b.failure for n, b in built.items() if isinstance(b, BuildFailure)}
        kernels = tuple(
            self._kernel(genome, made)
            for genome in genomes
            if isinstance(made := built[genome.fingerprint], Built)
        )
        outcome = self._bench.contest(
            kernels,
            workload=key,
            rounds=rounds,
            baseline=baseline,
            hang_s=self._hang_s(self._limit_us(key)),
            floor_us=self._floor_us(key),
        )
        return _as_contest(
            names, rounds, replace(outcome, failures={**outcome.failures, **failures})
        )

    def baseline_name(self, workload: Workload) -> str | None:
        """Name the best NumPy form; the first time, the forms are timed against one another."""
        self._bench.settle()
        return self._bench.baseline_name(self._known(workload.fingerprint).fingerprint)

    def observe(self) -> Mapping[str, str]:
        """Return what is seen of the machine now, and who disturbed the last batch."""
        seen = dict(cpu_observations())
        seen["workers_started"] = str(self._bench.generation)
        if self._foreign:
            seen["foreign_load"] = self._foreign
        return seen

    def close(self) -> None:
        """End workers and compilers, then release the device."""
        try:
            self._bench.close()
            self._pool.close()
        finally:
            self._lock.release()


def _as_contest(names: Sequence[str], rounds: int, outcome: ContestOutcome) -> Contest:
    """Put every contender's column in its place; those that failed hold NaN."""
    places = {name: place for place, name in enumerate(outcome.names)}
    order = [*names, *(name for name in outcome.names if name not in names)]
    rows = outcome.samples or ((),) * rounds
    return Contest(
        names=tuple(order),
        samples=tuple(
            tuple(row[places[name]] if name in places else math.nan for name in order)
            for row in rows
        ),
        failures=outcome.failures,
    )
