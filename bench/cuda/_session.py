"""The session on ``cuda:N``: hands work to the worker, replaces it when it dies."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernelarc.bench._lock import DeviceLock
from kernelarc.bench._session import Session
from kernelarc.bench._statistics import measurement_of
from kernelarc.bench.cuda._escapes import DEVICE_BUSY
from kernelarc.bench.cuda._library import REFUSED_WORKSPACE
from kernelarc.bench.cuda._process import LT_BENCH, WorkerProcess, checked
from kernelarc.bench.cuda._protocol import (
    ContestReply,
    DomainReply,
    Outcome,
    Request,
    Task,
    WorkerGoneError,
)
from kernelarc.genomes import (
    LT_ROUTE,
    Candidate,
    Contest,
    CublasLtSpace,
    Environment,
    Evaluation,
    Genome,
    GridHint,
    IllegalGenomeError,
    InputError,
    LtRow,
    Problem,
    Proposal,
    Space,
    Status,
    StoppedError,
    Workload,
    axis_values,
    matmul_job,
)

BASELINE = "first heuristic"
_OPEN_S, _ASK_S, _CONTEST_S = 120.0, 60.0, 120.0
_LEAST_LIMIT_S, _FREE_LIMIT_S, _LIMIT_FACTOR = 3.0, 15.0, 4000.0
_MOST_RESTARTS = 3
_REASONS = {
    REFUSED_WORKSPACE: "needs more scratch memory than workspace_mib allows",
    7: "the library has no such combination (invalid value)",
    8: "the library has this only for another architecture",
    15: "the library does not support this combination",
}


class CudaSession(Session):
    """An open device with one problem.

    Args:
        name: The device's name.
        ordinal: Its number.
        problem: What is evaluated.
        seed: Root of the streams that fill inputs.
        lock: The device's, held; released by ``close``.
        bench: ``module:class`` of what answers in the worker.

    Raises:
        InputError: A workload is no matrix product, or cannot run here.
        MissingPartError: Driver, device or library is missing.
    """

    def __init__(
        self,
        name: str,
        ordinal: int,
        problem: Problem,
        *,
        seed: int,
        lock: DeviceLock,
        bench: str = LT_BENCH,
    ) -> None:
        self.device, self.deterministic, self.problem = name, False, problem
        # Asking runs ahead far enough that the device never waits for it. Rounds of several
        # workloads take turns, so that each still hears of its own last round; one alone is asked
        # in smaller rounds, so that less of it is asked without having heard.
        alone = len(problem.workloads) == 1
        self.window = 8 if alone else 16
        self.lag = max(1, min(len(problem.workloads) - 1, 3))
        self.sifts, self.finalists, self.patience = True, 24, 3
        self._ordinal, self._bench, self._seed, self._lock = ordinal, bench, seed, lock
        self._tasks = [_task(problem, workload) for workload in problem.workloads]
        self._places = {w.fingerprint: i for i, w in enumerate(problem.workloads)}
        self._domains: dict[int, tuple[DomainReply, CublasLtSpace]] = {}
        self._flying: deque[tuple[Candidate, LtRow, float | None]] = deque()
        self._arrived: deque[Evaluation] = deque()
        self._again: set[int] = set()  # candidates that met a busy device once
        self._contests = 0
        self._spare: WorkerProcess | None = None
        self._worker = self._started()
        self.environment: Environment = self._worker.ask("environment", timeout_s=_ASK_S)
        self._spare = WorkerProcess(ordinal, bench)

    # The worker

    def _started(self) -> WorkerProcess:
        worker, self._spare = self._spare or WorkerProcess(self._ordinal, self._bench), None
        try:
            worker.ask("open", timeout_s=_OPEN_S, tasks=tuple(self._tasks), seed=self._seed)
        except BaseException:
            worker.kill()
            raise
        return worker

    def _replace(self) -> None:
        """Put a new worker in the place of a dead or hung one, with what was still queued."""
        self._worker.kill()
        for attempt in range(_MOST_RESTARTS):
            try:
                self._worker = self._started()
                break
            except (WorkerGoneError, TimeoutError, StoppedError):
                if attempt == _MOST_RESTARTS - 1:
                    raise StoppedError(
                        f"device {self.device} does not come back: look at it, then resume"
                    ) from None
        self._spare = WorkerProcess(self._ordinal, self._bench)
        self._send(list(self._flying))

    def _send(self, flying: Sequence[tuple[Candidate, LtRow, float | None]]) -> None:
        items = [(self._places[c.workload], c.number, row, limit) for c, row, limit in flying]
        if items:
            self._worker.channel.send(Request(verb="evaluate", arguments={"items": items}))

    def _ask(self, verb: str, *, timeout_s: float = _ASK_S, **arguments: Any) -> Any:
        """Ask the worker; evaluations that arrive in between are kept for ``collect``."""
        for _ in range(_MOST_RESTARTS):
            try:
                return self._ask_once(verb, timeout_s, arguments)
            except (WorkerGoneError, TimeoutError):
                self._blame("the device worker died")
        raise StoppedError(f"device {self.device} fails at {verb!r} again and again: resume later")

    def _ask_once(self, verb: str, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        self._worker.channel.send(Request(verb=verb, arguments=arguments))
        deadline = time.monotonic() + timeout_s
        while isinstance(answer := self._next(deadline), Outcome):
            self._take(answer)
        return checked(answer)

    def _next(self, deadline: float) -> Any:
        """Wait for one message, but no longer than the candidate that is running may take."""
        if self._flying:
            deadline = min(deadline, time.monotonic() + _time_limit_s(self._flying[0][2]))
        return self._worker.channel.receive(max(deadline - time.monotonic(), 0.0))

    def _blame(self, what: str, status: Status = Status.LAUNCH_ERROR) -> None:
        """Fail the candidate that was running, and replace the worker. Nobody else is blamed."""
        if self._flying:
            candidate, _, _ = self._flying.popleft()
            words = self._worker.last_words()
            failure = "timeout" if status is Status.TIMEOUT else "worker died"
            self._arrived.append(
                Evaluation(
                    candidate=candidate,
                    status=status,
                    failure=failure,
                    message=f"{what}: {words}" if words else what,
                )
            )
        self._replace()

    # Spaces and legality

    def _domain(self, workload: Workload) -> tuple[DomainReply, CublasLtSpace]:
        place = self._place(workload)
        if place not in self._domains:
            reply: DomainReply = self._ask("domain", workload=place)
            hint = GridHint.of(self._tasks[place].job, int(self._multiprocessors))
            self._domains[place] = reply, CublasLtSpace(reply.domain, hint)
        return self._domains[place]

    @property
    def _multiprocessors(self) -> str:
        return self.environment.identity.get("multiprocessors", "1")

    def _place(self, workload: Workload) -> int:
        place = self._places.get(workload.fingerprint)
        if place is None:
            raise InputError(f"workload {workload.label!r} is not one of the problem that is open")
        return place

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the one space of route ``cublaslt``."""
        return {LT_ROUTE: self._domain(workload)[1].space}

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return the library's heuristics, over all algorithms first, then for each one."""
        reply, lt = self._domain(workload)
        found = ((name, lt.genome(row)) for name, row in reply.seeds)
        return tuple(Proposal(genome=g, mutation=name) for name, g in found if g is not None)

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Ask the library about many genomes in one message."""
        _, lt = self._domain(workload)
        reasons: list[str | None] = []
        rows: list[LtRow] = []
        for genome in genomes:
            row, reason = row_of(lt, genome)
            reasons.append(reason)
            if row is not None and reason is None:
                rows.append(row)
        if not rows:
            return reasons
        asked = np.array(rows, dtype=np.int64)
        status, _ = self._ask("check", workload=self._place(workload), rows=asked)
        answers = iter(status.tolist())
        return [r if r is not None else reason_of(next(answers)) for r in reasons]

    # Evaluating

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates in the worker; returns at once."""
        added = []
        for candidate in candidates:
            place = self._places[candidate.workload]
            _, lt = self._domain(self.problem.workloads[place])
            added.append((candidate, lt.row(candidate.genome), limit.get(candidate.workload)))
        self._flying.extend(added)
        try:
            self._send(added)
        except WorkerGoneError:
            self._blame("the device worker died")

    def collect(self) -> Iterator[Evaluation]:
        """Yield evaluations as they arrive."""
        while self._arrived or self._flying:
            if self._arrived:
                yield self._arrived.popleft()
                continue
            try:
                self._take(self._next(time.monotonic() + _FREE_LIMIT_S))
            except TimeoutError:
                self._blame("no answer within the time limit", Status.TIMEOUT)
            except WorkerGoneError:
                self._blame("the device worker died")

    def _take(self, outcome: Outcome) -> None:
        candidate, row, bound = self._flying.popleft()
        if candidate.number != outcome.number:
            raise StoppedError("the device worker answered out of order: resume")
        if outcome.failure == DEVICE_BUSY and candidate.number not in self._again:
            self._again.add(candidate.number)
            self._flying.append((candidate, row, bound))  # once more, behind all others
            self._send([(candidate, row, bound)])
            return
        self._arrived.append(self._evaluation(candidate, row, outcome))
        if outcome.fatal:
            self._replace()

    def _evaluation(self, candidate: Candidate, row: LtRow, outcome: Outcome) -> Evaluation:
        measured, seen = None, dict(outcome.properties)
        reply, _ = self._domains[self._places[candidate.workload]]
        if outcome.status is Status.OK and row == reply.baseline:
            seen["baseline"] = BASELINE  # whoever exports must know it when it is the best
        if outcome.status is Status.OK:
            task = self._tasks[self._places[candidate.workload]]
            measured = measurement_of(
                outcome.samples,
                censored=outcome.censored,
                cache=task.cache,
                launches=outcome.launches,
            )
        return Evaluation(
            candidate=candidate,
            status=outcome.status,
            measurement=measured,
            failure=outcome.failure,
            message=outcome.message,
            cost_s=outcome.cost_s,
            properties=seen,
        )

    # Contests

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Time contenders interleaved in the problem's cache state."""
        cache = self._tasks[self._place(workload)].cache
        return self.contest_in(cache, workload, genomes, rounds=rounds, baseline=baseline)

    def contest_in(
        self,
        cache: str,
        workload: Workload,
        genomes: Sequence[Genome],
        *,
        rounds: int,
        baseline: bool = False,
    ) -> Contest:
        """Time contenders interleaved, with the inputs ``"cold"`` or ``"warm"``."""
        reply, lt = self._domain(workload)
        names = [genome.fingerprint for genome in genomes]
        rows = [lt.row(genome) for genome in genomes]
        if baseline and reply.baseline is not None:
            names.append(f"baseline:{BASELINE}")
            rows.append(reply.baseline)
        self._contests += 1
        arguments = {
            "workload": self._place(workload),
            "rows": rows,
            "rounds": rounds,
            "cache": cache,
            "seed": self._seed + self._contests,
        }
        try:
            answer: ContestReply = self._ask_once("contest", _CONTEST_S, arguments)
        except (WorkerGoneError, TimeoutError):
            self._blame("the device worker died")
            lost = tuple((math.nan,) * len(names) for _ in range(rounds))
            return Contest(
                names=tuple(names), samples=lost, failures=dict.fromkeys(names, "worker died")
            )
        return Contest(
            names=tuple(names),
            samples=answer.samples,
            failures={names[i]: failure for i, failure in answer.failures.items()},
        )

    def baseline_name(self, workload: Workload) -> str | None:
        """Name the library's first heuristic."""
        return BASELINE if self._domain(workload)[0].baseline is not None else None

    def observe(self) -> Mapping[str, str]:
        """Return clocks, power, temperature and foreign processes."""
        observed: Mapping[str, str] = self._ask("observe")
        return observed

    def idle_s(self) -> float:
        """Return for how long the worker had nothing to do, and start counting anew."""
        return float(self._ask("idle"))

    def roofline(self) -> Mapping[str, float]:
        """Measure copy bandwidth and matrix rate; takes about half a second."""
        measured: Mapping[str, float] = self._ask("roofline")
        return measured

    def close(self) -> None:
        """End the workers and release the lock."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()
        self._worker.close()
        self._lock.release()


def _task(problem: Problem, workload: Workload) -> Task:
    axes = axis_values(problem.operator, workload)
    job = matmul_job(problem.operator, workload, axes)
    if job is None:
        raise InputError(
            f"operator {problem.operator.name!r} is no matrix product: route cublaslt cannot run it"
        )
    return Task(
        job=job,
        tolerance=workload.tolerance,
        deterministic=bool(workload.options.get("deterministic", False)),
        cache=cache_state(workload),
    )


def cache_state(workload: Workload) -> str:
    """Return whether inputs are timed ``"cold"`` or ``"warm"``."""
    cache = workload.options.get("cache", "cold")
    if cache not in ("cold", "warm"):
        raise InputError(f"option cache is cold or warm, not {cache!r}")
    return str(cache)


def row_of(lt: CublasLtSpace, genome: Genome) -> tuple[LtRow | None, str | None]:
    """Return a genome's attribute row, and why it is illegal without asking the library."""
    if genome.route != LT_ROUTE:
        return None, f"route {genome.route!r} is not one of this device's for this problem"
    try:
        row = lt.row(genome)
    except IllegalGenomeError as error:
        return None, str(error)
    return row, lt.fault(row)


def reason_of(status: int) -> str | None:
    """Say what the library's status means, or None where it takes the combination."""
    if status == 0:
        return None
    return _REASONS.get(status, f"the library refuses it (status {status})")


def _time_limit_s(limit_us: float | None) -> float:
    """Return how long a candidate may take in all, compiling and loading included."""
    if limit_us is None:
        return _FREE_LIMIT_S
    return min(_FREE_LIMIT_S, _LEAST_LIMIT_S + _LIMIT_FACTOR * limit_us * 1e-6)
