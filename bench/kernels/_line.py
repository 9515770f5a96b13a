"""The device worker as a session of compiled kernels holds it: fed a little ahead, replaceable."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelarc.bench.cuda._process import WorkerProcess, checked
from kernelarc.bench.cuda._protocol import Begun, Outcome, Request, WorkerGoneError
from kernelarc.bench.kernels._messages import Contender, KernelTask, PlanContender
from kernelarc.genomes import Candidate, Status, StoppedError

OPEN_S, ASK_S, CONTEST_S, PREPARE_S = 120.0, 60.0, 240.0, 600.0
_LEAST_LIMIT_S, _FREE_LIMIT_S, _LIMIT_FACTOR = 3.0, 15.0, 4000.0
_MOST_RESTARTS = 3
_MEANWHILE_S = 0.02
_LATE = "no answer within the time limit"
_BENCH = "kernelarc.bench.kernels._workbench:KernelWorkbench"


class LostQuestionError(Exception):
    """The worker was replaced before it came to the question."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A candidate on its way through the worker."""

    candidate: Candidate
    workload: int
    contender: Contender
    limit_us: float | None


class DeviceLine:
    """Feeds one worker, reads what comes back, replaces it when it dies or hangs.

    Args:
        device: The device's name, for messages.
        ordinal: Its number.
        tasks: The problem.
        seed: Root of the streams that fill inputs.

    Raises:
        InputError: A workload cannot run on the device.
        MissingPartError: Driver, device or library is missing.
        StoppedError: The device does not answer.
    """

    def __init__(self, device: str, ordinal: int, tasks: Sequence[KernelTask], seed: int) -> None:
        self._device, self._ordinal = device, ordinal
        self._tasks, self._seed = tuple(tasks), seed
        self.flying: deque[Flight] = deque()
        self.arrived: deque[tuple[Flight, Outcome]] = deque()
        self._unheard: deque[Any] = deque()  # said while something was being sent
        self._since, self._begun = time.monotonic(), False
        self._spare: WorkerProcess | None = None
        self._worker = self._started()
        self._spare = WorkerProcess(ordinal, _BENCH)
        self.busy_s = 0.0
        self.meanwhile: Callable[[], None] = _nothing

    def _started(self) -> WorkerProcess:
        worker, self._spare = self._spare or WorkerProcess(self._ordinal, _BENCH), None
        try:
            worker.ask("open", timeout_s=OPEN_S, tasks=self._tasks, seed=self._seed)
        except BaseException:
            worker.kill()
            raise
        return worker

    # Flights

    def put(self, flight: Flight) -> None:
        """Send a candidate to the worker."""
        if not self.flying:
            self._since, self._begun = time.monotonic(), False
        self.flying.append(flight)
        try:
            self._send([flight])
        except WorkerGoneError:
            self._blame("the device worker died")
        except TimeoutError:  # it reads between two candidates only, and one does not end
            self._blame(_LATE, Status.TIMEOUT)

    def _send(self, flights: Sequence[Flight]) -> None:
        items = [(f.workload, f.candidate.number, bare(f.contender), f.limit_us) for f in flights]
        if items:
            request = Request(verb="evaluate", arguments={"items": items})
            self._worker.channel.send(request, self._patience(ASK_S))

    def _patience(self, most_s: float) -> Callable[[], bool]:
        """Return whether a message may stay unread: until what runs is late, or so long."""
        end = time.monotonic() + most_s

        def patient() -> bool:
            while self._worker.channel.ready():
                answer = self._worker.channel.receive(ASK_S)
                if isinstance(answer, Begun):
                    self._take(answer)
                else:
                    self._unheard.append(answer)
                    return True  # it is between two candidates, and reads next
            return time.monotonic() < min(end, self.deadline() or end)

        return patient

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker says something."""
        return self._worker.channel.fileno()

    def deadline(self) -> float | None:
        """Return until when (monotonic) the running candidate must have answered, or None."""
        if not self.flying:
            return None
        limit = _time_limit_s(self.flying[0].limit_us) if self._begun else PREPARE_S
        return self._since + limit

    def harvest(self) -> None:
        """Take in what the worker has said; give up on a candidate that takes too long."""
        try:
            while self.flying and (self._unheard or self._worker.channel.ready()):
                self._take(self._receive())
        except (WorkerGoneError, TimeoutError):
            self._blame("the device worker died")
            return
        deadline = self.deadline()
        if deadline is not None and time.monotonic() > deadline:
            self._blame(_LATE, Status.TIMEOUT)

    def _take(self, answer: Any) -> None:
        if isinstance(answer, Begun):
            self._since, self._begun = time.monotonic(), True
            return
        outcome: Outcome = checked(answer)
        flight = self.flying.popleft()
        if flight.candidate.number != outcome.number:
            raise StoppedError("the device worker answered out of order: resume")
        self.busy_s += time.monotonic() - self._since
        self._since, self._begun = time.monotonic(), False
        self.arrived.append((flight, outcome))
        if outcome.fatal:
            self._replace()

    def _receive(self) -> Any:
        return self._unheard.popleft() if self._unheard else self._worker.channel.receive(ASK_S)

    def _blame(self, what: str, status: Status = Status.LAUNCH_ERROR) -> None:
        """Fail the candidate that was running, and replace the worker. Nobody else is blamed."""
        while self._unheard:  # who has answered is not to blame
            answer = self._unheard.popleft()
            self._take(answer)
            if isinstance(answer, Outcome) and answer.fatal:
                return
        if self.flying:
            flight = self.flying.popleft()
            words = self._worker.last_words()
            outcome = Outcome(
                number=flight.candidate.number,
                status=status,
                failure="timeout" if status is Status.TIMEOUT else "worker died",
                message=f"{what}: {words}" if words else what,
            )
            self.arrived.append((flight, outcome))
        self._replace()

    def _replace(self) -> None:
        """Put a new worker in the place of a dead or hung one, with what was still queued."""
        self._worker.kill()
        self._unheard.clear()
        for attempt in range(_MOST_RESTARTS):
            try:
                self._worker = self._started()
                break
            except (WorkerGoneError, TimeoutError, StoppedError):
                if attempt == _MOST_RESTARTS - 1:
                    raise StoppedError(
                        f"device {self._device} does not come back: look at it, then resume"
                    ) from None
        self._spare = WorkerProcess(self._ordinal, _BENCH)
        self._since, self._begun = time.monotonic(), False
        self._send(list(self.flying))

    # Questions

    def ask(self, verb: str, *, timeout_s: float = ASK_S, **arguments: Any) -> Any:
        """Ask the worker; outcomes that arrive in between are kept in ``arrived``."""
        for _ in range(_MOST_RESTARTS):
            try:
                return self.ask_once(verb, timeout_s, arguments)
            except LostQuestionError:
                continue
            except (WorkerGoneError, TimeoutError) as error:
                self.blame(error)
        raise StoppedError(f"device {self._device} fails at {verb!r} again and again: resume later")

    def ask_once(self, verb: str, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        """Ask without asking again after a death.

        Raises:
            WorkerGoneError: The worker died.
            TimeoutError: It did not answer in time.
            LostQuestionError: A candidate ahead of the question took the context with it.
        """
        request = Request(verb=verb, arguments=arguments)
        self._worker.channel.send(request, self._patience(timeout_s))
        end = time.monotonic() + timeout_s
        while True:
            answer = self._heard(min(end, self.deadline() or end))
            if not isinstance(answer, Outcome | Begun):
                return checked(answer)
            fatal = isinstance(answer, Outcome) and answer.fatal
            self._take(answer)
            if fatal:
                raise LostQuestionError

    def _heard(self, until: float) -> Any:
        """Wait for one message, doing what there is to do in the meantime."""
        while not self._unheard and not self._worker.channel.ready(_MEANWHILE_S):
            self.meanwhile()
            if time.monotonic() > until:
                raise TimeoutError
        return self._receive()

    def blame(self, error: Exception) -> None:
        """Fail what was running and start afresh after ``ask_once`` has failed like this."""
        if isinstance(error, TimeoutError):
            self._blame(_LATE, Status.TIMEOUT)
        else:
            self._blame("the device worker died")

    def close(self) -> None:
        """End the workers."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()
        if self.flying:  # it may never read again
            self._worker.kill()
        else:
            self._worker.close()


def _nothing() -> None:
    """Do nothing in the meantime."""


def bare(contender: Contender) -> Contender:
    """Return a contender without what is only for people to read."""
    if isinstance(contender, PlanContender):
        return PlanContender(replace(contender.build, source=""))
    return contender


def _time_limit_s(limit_us: float | None) -> float:
    """Return how long a candidate may take in all once its bench is ready."""
    if limit_us is None:
        return _FREE_LIMIT_S
    return min(_FREE_LIMIT_S, _LEAST_LIMIT_S + _LIMIT_FACTOR * limit_us * 1e-6)
