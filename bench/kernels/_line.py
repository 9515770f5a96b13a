"""The device worker as a session of compiled kernels holds it: fed a little ahead, replaceable."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelarc.bench.cuda._process import WorkerProcess, checked
from kernelarc.bench.cuda._protocol import (
    Begun,
    Outcome,
    Prepared,
    Preparing,
    Request,
    WorkerGoneError,
)
from kernelarc.bench.kernels._messages import Contender, KernelTask, PlanContender
from kernelarc.bench.kernels._oracle import needs_torch
from kernelarc.bench.kernels._torch_cache import kept_builds
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

    The worker loads its libraries from here on; ``open`` gives it the problem.

    Args:
        device: The device's name, for messages.
        ordinal: Its number.
        tasks: The problem.
        seed: Root of the streams that fill inputs.
    """

    def __init__(self, device: str, ordinal: int, tasks: Sequence[KernelTask], seed: int) -> None:
        self._device, self._ordinal = device, ordinal
        self._tasks, self._seed = tuple(tasks), seed
        self.flying: deque[Flight] = deque()
        self.arrived: deque[tuple[Flight, Outcome]] = deque()
        self._unheard: deque[Any] = deque()  # said while something was being sent
        self._since, self._begun = time.monotonic(), False
        self._preparing_since: float | None = None
        self._spared = -1  # the candidate whose guilt was doubted last
        self._spare: WorkerProcess | None = None
        self._ahead: int | None = None  # the workload whose bench is made ready for nobody yet
        self._ending = self._opened = False
        torch = any(needs_torch(task.operator.reference) for task in tasks)
        self._imports = ("torch",) if torch else ()
        self._variables = kept_builds() if torch else {}
        self._worker = self._started()
        self.busy_s = 0.0
        self.prepared_s: dict[int, float] = {}
        self.meanwhile: Callable[[], None] = _nothing

    def _started(self) -> WorkerProcess:
        return WorkerProcess(self._ordinal, _BENCH, self._imports, self._variables)

    def open(self) -> None:
        """Give a fresh worker the problem; kill it where it does not take it.

        Raises:
            InputError: A workload cannot run on the device.
            MissingPartError: Driver, device or library is missing.
            StoppedError: The device does not answer.
        """
        try:
            self._worker.ask("open", timeout_s=OPEN_S, tasks=self._tasks, seed=self._seed)
        except BaseException:
            self._worker.kill()
            raise
        self._opened = True

    def make_ready(self, place: int) -> None:
        """Have the first workload's bench made ready while its first candidate is built.

        Waits for nothing, and asks for nothing where the worker has something else to do.
        """
        if self.prepared_s or self.flying or self._ahead is not None:
            return
        self._ahead = place
        request = Request(verb="make_ready", arguments={"workload": place})
        with contextlib.suppress(WorkerGoneError, TimeoutError):  # the first candidate will see
            self._worker.channel.send(request, self._patience(ASK_S))

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
                if isinstance(answer, Begun | Preparing | Prepared):
                    self._take(answer)
                else:
                    self._unheard.append(answer)
                    return True  # it is between two candidates, and reads next
            return time.monotonic() < (self._busy_until() or end)

        return patient

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker says something."""
        return self._worker.channel.fileno()

    def _busy_until(self) -> float | None:
        """Return until when (monotonic) what is going on now may take, or None where nothing is."""
        busy = self._begun or self._preparing_since is not None
        return self.deadline() if busy else None

    def deadline(self) -> float | None:
        """Return until when (monotonic) the running candidate must have answered, or None."""
        if not self.flying:
            return None
        if self._begun:
            return self._since + _time_limit_s(self.flying[0].limit_us)
        # A worker that is not at something else says at once that it makes its bench ready.
        return self._since + (ASK_S if self._preparing_since is None else PREPARE_S)

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
        now = time.monotonic()
        if isinstance(answer, Prepared):
            taken_s = now - (self._preparing_since or now)
            self.prepared_s[answer.workload] = taken_s
            self._since, self._preparing_since, self._ahead = now, None, None
            return
        if isinstance(answer, Preparing):
            self._since = self._preparing_since = now
            return
        if isinstance(answer, Begun):
            self._note_prepared(now)
            self._since, self._begun, self._preparing_since = now, True, None
            return
        outcome: Outcome = checked(answer)
        if self._spare is None:  # not sooner: it would take time from those who are needed first
            self._spare = self._started()
        flight = self.flying.popleft()
        if flight.candidate.number != outcome.number:
            raise StoppedError("the device worker answered out of order: resume")
        self.busy_s += now - self._since
        self._since, self._begun, self._preparing_since = now, False, None
        self.arrived.append((flight, outcome))
        if outcome.fatal:
            self._replace()

    def _note_prepared(self, now: float) -> None:
        """Remember how long a workload's bench took at most to be made ready."""
        if self._preparing_since is not None and self.flying:
            place, taken_s = self.flying[0].workload, now - self._preparing_since
            self.prepared_s[place] = max(taken_s, self.prepared_s.get(place, 0.0))

    def _receive(self) -> Any:
        return self._unheard.popleft() if self._unheard else self._worker.channel.receive(ASK_S)

    def _blame(self, what: str, status: Status = Status.LAUNCH_ERROR) -> None:
        """Fail the candidate that was running, and replace the worker. Nobody else is blamed.

        One that was not yet begun is let off once: the worker died of something else.
        """
        while self._unheard:  # who has answered is not to blame
            answer = self._unheard.popleft()
            self._take(answer)
            if isinstance(answer, Outcome) and answer.fatal:
                return
        if self.flying and self._is_guilty(self.flying[0].candidate.number):
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

    def _is_guilty(self, number: int) -> bool:
        """Tell whether the first in line can have done it."""
        busy = self._busy_until() is not None and self._ahead is None
        guilty = busy or number == self._spared
        self._spared = number
        return guilty

    def _replace(self) -> None:
        """Put a new worker in the place of a dead or hung one, with what was still queued."""
        self._worker.kill()
        for attempt in range(_MOST_RESTARTS):
            if self._ending:
                raise StoppedError(f"the session on {self._device} is closing")
            self._unheard.clear()
            self._worker, self._spare = self._spare or self._started(), None
            try:
                self.open()
                self._since, self._begun = time.monotonic(), False
                self._preparing_since = self._ahead = None
                self._send(list(self.flying))
                break
            except (WorkerGoneError, TimeoutError, StoppedError):
                self._worker.kill()
                if attempt == _MOST_RESTARTS - 1:
                    raise StoppedError(
                        f"device {self._device} does not come back: look at it, then resume"
                    ) from None
        self._spare = self._started()

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
            # Its own time begins when what runs ahead of it, within limits of its own, is done.
            answer = self._heard(self._busy_until() or end)
            if not isinstance(answer, Outcome | Begun | Preparing | Prepared):
                self._since = time.monotonic()  # whoever waited behind this begins to wait anew
                return checked(answer)
            fatal = isinstance(answer, Outcome) and answer.fatal
            self._take(answer)
            end = time.monotonic() + timeout_s
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

    def demand_ready(self, place: int) -> None:
        """Have a workload's bench made ready where nobody has yet; raises as ``ask_once``."""
        if place not in self.prepared_s:
            begun = time.monotonic()
            self.ask_once("prepare", PREPARE_S, {"workload": place})
            self.prepared_s.setdefault(place, time.monotonic() - begun)

    def give_up(self) -> None:
        """Have another thread that waits for the worker come back at once; close is next."""
        self._ending = True
        self._worker.strike()

    def close(self) -> None:
        """End the workers."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()
        if self.flying or not self._opened:  # it may never read again, or not for a while
            self._worker.kill()
        else:
            self._worker.close()


def _nothing() -> None:
    """Do nothing in the meantime."""


def bare(contender: Contender) -> Contender:
    """Return a contender without what is only for people to read."""
    if isinstance(contender, PlanContender):
        return replace(contender, build=replace(contender.build, source=""))
    return contender


def _time_limit_s(limit_us: float | None) -> float:
    """Return how long a candidate may take in all once its bench is ready."""
    if limit_us is None:
        return _FREE_LIMIT_S
    return min(_FREE_LIMIT_S, _LEAST_LIMIT_S + _LIMIT_FACTOR * limit_us * 1e-6)
