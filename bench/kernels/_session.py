"""The session on ``cuda:N`` for compiled kernels, with cuBLASLt beside them where it applies.

A candidate goes through the compile pool to the device worker; one of cuBLASLt goes to the worker
at once. Both are judged by one bench in one context.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench._baseline_choice import Tell
from kernelarc.bench._lock import DeviceLock
from kernelarc.bench._session import Session
from kernelarc.bench.cuda._protocol import (
    ContestReply,
    DomainReply,
    WorkerGoneError,
)
from kernelarc.bench.cuda._session import cache_state, reason_of, row_of
from kernelarc.bench.kernels._baselines import Baselines
from kernelarc.bench.kernels._compile_pool import CompilePool
from kernelarc.bench.kernels._flow import Flow, Ground
from kernelarc.bench.kernels._line import CONTEST_S, DeviceLine, LostQuestionError, bare
from kernelarc.bench.kernels._messages import (
    FIRST_HEURISTIC,
    OWN_CONFIGURATION,
    OWN_SEED,
    BaselineContender,
    Contender,
    DeviceReply,
    KernelTask,
    LtContender,
    PlanContender,
    TriedBaseline,
)
from kernelarc.bench.kernels._shelf import BuildShelf
from kernelarc.genomes import (
    LT_ROUTE,
    Candidate,
    Contest,
    CublasLtSpace,
    Environment,
    Evaluation,
    Genome,
    GridHint,
    InputError,
    LtRow,
    MatmulJob,
    Problem,
    Proposal,
    Space,
    StoppedError,
    Workload,
    axis_values,
    matmul_job,
)
from kernelarc.genomes.kernels import ARCHES, KernelRoute

_HEURISTICS = 12
_FINALISTS = 8
_REFERENCES = 16  # that a contest computes at most
_WINDOW, _AHEAD_EACH = 8, 3  # candidates of a round; on their way for each compile process


class KernelSession(Session):
    """An open device with one problem and the routes that serve it.

    Args:
        name: The device's name.
        ordinal: Its number.
        problem: What is evaluated.
        routes: At least one that can be built here.
        seed: Root of the streams that fill inputs.
        lock: The device's, held; released by ``close``.
        artefacts: Where builds are kept.
        processes: Compile processes; one a core if None.
        library: Whether cuBLASLt takes part where the job is a matrix product.

    Raises:
        InputError: A workload cannot run here, or a route cannot be sent to other processes.
        MissingPartError: Driver, device or library is missing.
    """

    def __init__(
        self,
        name: str,
        ordinal: int,
        problem: Problem,
        routes: Sequence[KernelRoute],
        *,
        seed: int,
        lock: DeviceLock,
        artefacts: Path,
        processes: int | None = None,
        library: bool = True,
    ) -> None:
        self.device, self.deterministic, self.problem = name, False, problem
        self._seed, self._lock = seed, lock
        self._routes = {route.name: route for route in routes}
        self._places = {w.fingerprint: i for i, w in enumerate(problem.workloads)}
        self._tasks = [_task(problem, workload) for workload in problem.workloads]
        self._products = [library and _product(problem, w) is not None for w in problem.workloads]
        cores = processes or len(os.sched_getaffinity(0))
        # The compilers load, and build once, while the worker makes its context.
        line = DeviceLine(name, ordinal, self._tasks, seed)
        try:
            pool = CompilePool(list(routes), "", BuildShelf(artefacts), processes=cores)
        except BaseException:
            line.close()
            raise
        try:
            line.open()
            self._reply: DeviceReply = line.ask("describe")
            _demand_arch(name, self._reply.limits.arch)
            self.environment = self._environment(line.ask("environment"))
        except BaseException:
            pool.close()
            line.close()
            raise
        pool.target(self._reply.limits)
        # Short rounds, some ahead: a build that takes ten times the usual holds up few others. Of
        # what is on its way nothing was known when it was asked for: three builds a compiler keep
        # all of them busy, and more would only postpone what is learned, and the end.
        self.window, self.lag = _WINDOW, max(2, -(-_AHEAD_EACH * cores // _WINDOW) - 1)
        self.sifts, self.finalists, self.patience = any(self._products), _FINALISTS, 2
        self._spaces: dict[int, dict[str, Space]] = {}
        self._domains: dict[int, tuple[DomainReply, CublasLtSpace]] = {}
        self._baselines = Baselines(
            [w.label for w in problem.workloads], self._offered, self._tried, self._raced
        )
        self._contests = 0
        ground = Ground(
            tasks=self._tasks,
            routes=self._routes,
            limits=self._reply.limits,
            first_row=lambda place: self._domain(place)[0].baseline,
            hint=self._hinted,
        )
        self._flow: Flow | None = Flow(pool, line, ground)

    def _hinted(self, place: int, genome: Genome) -> float:
        """Return what a genome's route guesses it to cost: a positive number, 1 without a guess."""
        space = self.spaces(self.problem.workloads[place]).get(genome.route)
        return 1.0 if space is None or space.hint is None else space.hint(dict(genome.items()))

    def _environment(self, found: Environment) -> Environment:
        """Return the worker's environment with what the routes are built by."""
        built = {
            f"{route.name}.{part}": text
            for route in self._routes.values()
            for part, text in route.identity().items()
        }
        return Environment(identity={**found.identity, **built}, observations=found.observations)

    def _moving(self) -> Flow:
        if self._flow is None:
            raise StoppedError(f"the session on {self.device} is closed")
        return self._flow

    def _ask(self, verb: str, **arguments: Any) -> Any:
        with self._moving().asking() as line:
            return line.ask(verb, **arguments)

    # Spaces and legality

    def _place(self, workload: Workload) -> int:
        place = self._places.get(workload.fingerprint)
        if place is None:
            raise InputError(f"workload {workload.label!r} is not one of the problem that is open")
        return place

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the spaces of all routes that serve the workload."""
        place = self._place(workload)
        if place not in self._spaces:
            limits = self._reply.limits
            found = {
                name: route.space(workload, limits)
                for name, route in self._routes.items()
                if route.unsuited(workload) is None
            }
            if self._products[place]:
                found[LT_ROUTE] = self._domain(place)[1].space
            if not found:
                reasons = {n: r.unsuited(workload) for n, r in self._routes.items()}
                raise InputError(f"workload {workload.label!r} is served by no route: {reasons}")
            self._spaces[place] = found
        return self._spaces[place]

    def _domain(self, place: int) -> tuple[DomainReply, CublasLtSpace]:
        if place not in self._domains:
            reply: DomainReply = self._ask("domain", workload=place)
            job = _product(self.problem, self.problem.workloads[place])
            assert job is not None
            hint = GridHint.of(job, self._reply.limits.multiprocessors)
            self._domains[place] = reply, CublasLtSpace(reply.domain, hint)
        return self._domains[place]

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return the routes' own first genomes, then the library's best heuristics."""
        place, spaces = self._place(workload), self.spaces(workload)
        found: list[Proposal] = []
        for name, route in self._routes.items():
            if name in spaces:
                found += route.seeds(workload, self._reply.limits)
        if self._products[place]:
            reply, lt = self._domain(place)
            rows = ((name, lt.genome(row)) for name, row in reply.seeds[:_HEURISTICS])
            found += [Proposal(genome=g, mutation=name) for name, g in rows if g is not None]
        return tuple(found)

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Ask the spaces, and the library about its own in one message."""
        spaces = self.spaces(workload)
        reasons: list[str | None] = []
        rows: list[tuple[int, LtRow]] = []
        for i, genome in enumerate(genomes):
            if genome.route == LT_ROUTE and LT_ROUTE in spaces:
                row, reason = row_of(self._domain(self._place(workload))[1], genome)
                if row is not None and reason is None:
                    rows.append((i, row))
            elif genome.route in spaces:
                reason = spaces[genome.route].violation(genome)
            else:
                reason = f"route {genome.route!r} is not one of this device's for this problem"
            reasons.append(reason)
        if rows:
            asked = np.array([row for _, row in rows], dtype=np.int64)
            status, _ = self._ask("check", workload=self._place(workload), rows=asked)
            for (i, _), code in zip(rows, status.tolist(), strict=True):
                reasons[i] = reason_of(code)
        return reasons

    # Evaluating

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates for compiling, those of the library for the device."""
        flow = self._moving()
        for candidate in candidates:
            place, bound = self._places[candidate.workload], limit.get(candidate.workload)
            if candidate.genome.route == LT_ROUTE:
                row = self._domain(place)[1].row(candidate.genome)
                flow.submit_row(candidate, place, row, bound)
            else:
                flow.submit(candidate, place, bound)

    def withdraw(self) -> None:
        """Let what no compiler has begun come back as interrupted."""
        self._moving().withdraw()

    def collect(self) -> Iterator[Evaluation]:
        """Yield evaluations as they finish."""
        while (evaluation := self._moving().next()) is not None:
            yield evaluation

    # Contests

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Time contenders of any route interleaved in the problem's cache state."""
        place = self._place(workload)
        names = [genome.fingerprint for genome in genomes]
        contenders, failures = self._contenders(place, genomes)
        if baseline and (name := self._fastest_baseline(place)) is not None:
            names.append(f"baseline:{name}")
            self._add_baseline(place, name, len(genomes), contenders, failures)
        order = sorted(contenders)
        answer = self._contested(place, [contenders[i] for i in order], rounds)
        if answer is None:
            failures = dict.fromkeys(range(len(names)), "worker died")
            columns: dict[int, int] = {}
        else:
            columns = {column: i for i, column in enumerate(order)}
            failures |= {order[i]: failure for i, failure in answer.failures.items()}
        samples = tuple(
            tuple(
                answer.samples[turn][columns[i]] if answer and i in columns else math.nan
                for i in range(len(names))
            )
            for turn in range(rounds)
        )
        return Contest(
            names=tuple(names),
            samples=samples,
            failures={names[i]: failure for i, failure in failures.items()},
        )

    def _add_baseline(
        self,
        place: int,
        name: str,
        column: int,
        contenders: dict[int, Contender],
        failures: dict[int, str],
    ) -> None:
        own = self._own(place)
        if own is None or name != OWN_CONFIGURATION:
            contenders[column] = BaselineContender(name)
            return
        build = self._moving().build(place, own)
        if isinstance(build, str):
            failures[column] = build
        else:
            contenders[column] = PlanContender(build)

    def _own(self, place: int) -> Genome | None:
        """Return what the user runs today, where a route knows it."""
        workload = self.problem.workloads[place]
        for name, route in self._routes.items():
            if name in self.spaces(workload):
                for proposal in route.seeds(workload, self._reply.limits)[:1]:
                    if proposal.mutation == OWN_SEED:
                        return proposal.genome
        return None

    def _contenders(
        self, place: int, genomes: Sequence[Genome]
    ) -> tuple[dict[int, Contender], dict[int, str]]:
        """Return contenders by column, and failure classes of those that cannot be built."""
        made: dict[int, Contender] = {}
        failures: dict[int, str] = {}
        for i, genome in enumerate(genomes):
            if genome.route == LT_ROUTE:
                made[i] = LtContender(self._domain(place)[1].row(genome))
                continue
            build = self._moving().build(place, genome)
            if isinstance(build, str):
                failures[i] = build
            else:
                made[i] = PlanContender(build)
        return made, failures

    def _contested(
        self, place: int, contenders: Sequence[Contender], rounds: int
    ) -> ContestReply | None:
        self._contests += 1
        arguments: dict[str, Any] = {
            "workload": place,
            "contenders": [bare(contender) for contender in contenders],
            "rounds": rounds,
            "cache": self._tasks[place].cache,
            "seed": self._seed + self._contests,
        }
        with self._moving().asking() as line:
            while True:
                try:
                    line.demand_ready(place)
                    # Every filling is referred twice, each time as long as the first at most.
                    patience_s = CONTEST_S + _REFERENCES * line.prepared_s.get(place, 0.0)
                    answer: ContestReply = line.ask_once("contest", patience_s, arguments)
                except LostQuestionError:
                    continue
                except (WorkerGoneError, TimeoutError) as error:
                    line.blame(error)
                    return None
                return answer

    def baseline_name(self, workload: Workload) -> str | None:
        """Name what the user would run: the own configuration, the library's choice, or torch.

        Where there are several, the first contest with a baseline finds the fastest of them; until
        then all are named.
        """
        names = self._baselines.names(self._place(workload))
        return f"the fastest of {', '.join(names)}" if len(names) > 1 else next(iter(names), None)

    def _offered(self, place: int) -> tuple[str, ...]:
        """Return what the user would run, each of which may be the fastest."""
        if self._own(place) is not None:
            return (OWN_CONFIGURATION,)
        names = self._reply.baselines.get(place, ())
        if self._products[place] and self._domain(place)[0].baseline is None:
            names = tuple(name for name in names if name != FIRST_HEURISTIC)
        return names

    def limit_baselines(self, choice: Sequence[str] | None) -> None:
        """Let only some of what is on offer be a baseline."""
        self._baselines.limit(choice)

    def baselines_left_out(self, workload: Workload) -> tuple[str, ...]:
        """Return what is on offer and, by choice, no baseline."""
        return self._baselines.left_out(self._place(workload))

    def follow_baselines(self, tell: Tell) -> None:
        """Tell of every baseline that is tried from now on."""
        self._baselines.tell = tell

    def _fastest_baseline(self, place: int) -> str | None:
        if not self._baselines.tried(place) and self._baselines.names(place):
            self._made_ready(place)
        return self._baselines.fastest(place)

    def _made_ready(self, place: int) -> None:
        """Have inputs and reference made, so that what trying a baseline takes is its own.

        What fails here fails again, with a name, for whoever needs it.
        """
        with (
            contextlib.suppress(LostQuestionError, StoppedError),
            self._moving().asking() as line,
        ):
            try:
                line.demand_ready(place)
            except (WorkerGoneError, TimeoutError) as error:
                line.blame(error)

    def _tried(self, place: int, name: str, seconds: float) -> TriedBaseline:
        """Have the worker try a baseline; one that takes too long, or the worker with it, fails."""
        with self._moving().asking() as line:
            while True:
                try:
                    line.demand_ready(place)
                    arguments = {"workload": place, "name": name}
                    found: TriedBaseline = line.ask_once("try_baseline", seconds, arguments)
                except LostQuestionError:
                    continue
                except StoppedError as error:  # it fails in a way that nobody has a name for
                    return TriedBaseline(cause=str(error))
                except TimeoutError as error:
                    line.blame(error)
                    return TriedBaseline(cause=f"no answer within {seconds:.0f} s")
                except WorkerGoneError as error:
                    line.blame(error)
                    return TriedBaseline(cause="the device worker died of it")
                return found

    def _raced(
        self, place: int, some: Sequence[BaselineContender], rounds: int
    ) -> ContestReply | None:
        try:
            return self._contested(place, some, rounds)
        except StoppedError:
            return None

    def baselines_tried(self, workload: Workload) -> Mapping[str, Mapping[str, Any]]:
        """Return what came of each baseline, by name; empty until they were tried."""
        return self._baselines.tried(self._place(workload))

    def observe(self) -> Mapping[str, str]:
        """Return clocks, power, temperature, foreign processes, and how busy everybody was."""
        observed: Mapping[str, str] = self._ask("observe")
        return {**observed, **self._moving().busy()}

    def idle_s(self) -> float:
        """Return for how long the worker had nothing to do, and start counting anew."""
        return float(self._ask("idle"))

    def roofline(self) -> Mapping[str, float]:
        """Measure copy bandwidth and matrix rate; takes about half a second."""
        measured: Mapping[str, float] = self._ask("roofline")
        return measured

    def close(self) -> None:
        """End compilers and workers and release the lock."""
        flow, self._flow = self._flow, None
        if flow is not None:
            flow.close()
        self._lock.release()


def _demand_arch(device: str, arch: str) -> None:
    if arch not in ARCHES:
        raise InputError(
            f"device {device} is of {arch}: compiled routes are for {', '.join(ARCHES)}; "
            f"--routes {LT_ROUTE} searches matrix products without them"
        )


def _task(problem: Problem, workload: Workload) -> KernelTask:
    return KernelTask(
        operator=problem.operator,
        workload=workload,
        in_place=bool(workload.options.get("in_place", False)),
        cache=cache_state(workload),
        deterministic=bool(workload.options.get("deterministic", False)),
    )


def _product(problem: Problem, workload: Workload) -> MatmulJob | None:
    try:
        job = matmul_job(problem.operator, workload, axis_values(problem.operator, workload))
    except InputError:
        return None
    return None if job is None or job.scaled else job
