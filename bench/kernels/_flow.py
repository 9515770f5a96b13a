"""The way of candidates from the compile pool to the device worker and back.

A thread of its own keeps both busy: whoever asks for candidates may think for a while, and neither
compilers nor device wait for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernelarc.bench._statistics import measurement_of
from kernelarc.bench.cuda._escapes import DEVICE_BUSY
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._compile_pool import CompilePool, Order
from kernelarc.bench.kernels._line import DeviceLine, Flight
from kernelarc.bench.kernels._messages import (
    FIRST_HEURISTIC,
    BuildReply,
    Contender,
    KernelTask,
    LtContender,
    PlanContender,
)
from kernelarc.bench.kernels._outlook import Outlook
from kernelarc.genomes import Candidate, Evaluation, Genome, LtRow, Status
from kernelarc.genomes.kernels import Build, DeviceLimits, KernelRoute

_AHEAD = 2  # one that runs, and one to go on with at once
_MOST_BUILDS = 512
_MOST_TRIES = 3  # of a candidate that meets a busy device
_PAUSE_S, _WAKE_S, _PATIENCE_S = 0.25, 0.5, 2.0
TIME_WAS_UP = "time was up"
"""The failure of what was asked for and never begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a flow needs to know of its problem.

    Attributes:
        tasks: The workloads, by place.
        routes: Those that are built, by name.
        limits: The device's.
        first_row: By place, the library's own choice, or None.
        hint: By place and genome, what its route guesses it to cost; 1 where it does not guess.
    """

    tasks: Sequence[KernelTask]
    routes: Mapping[str, KernelRoute]
    limits: DeviceLimits
    first_row: Callable[[int], LtRow | None]
    hint: Callable[[int, Genome], float]


class Flow:
    """Moves candidates through pool and line. What is public may be called by one other thread.

    Args:
        pool: Compiles; owned from here on.
        line: The device worker; owned from here on.
        ground: What both work on.
    """

    def __init__(self, pool: CompilePool, line: DeviceLine, ground: Ground) -> None:
        self._pool, self._line, self._ground = pool, line, ground
        self._changed = threading.Condition(threading.RLock())
        self._waiting: dict[int, tuple[Candidate, int, float | None]] = {}
        self._private: dict[int, BuildReply | None] = {}
        self._ready: deque[Flight] = deque()
        self._arrived: deque[Evaluation] = deque()
        self._followers: dict[tuple[int, str], list[Flight]] = {}
        self._known: dict[tuple[int, str], tuple[Evaluation, float | None]] = {}
        self._ran: dict[tuple[int, str], tuple[Evaluation, float | None]] = {}
        self._builds: OrderedDict[tuple[int, str], Build] = OrderedDict()
        self._costs: dict[int, float] = {}
        self._outlooks = [Outlook(partial(ground.hint, i)) for i in range(len(ground.tasks))]
        self._tries: dict[int, int] = {}
        self._tickets, self._began = 0, time.monotonic()
        self._fault: BaseException | None = None
        self._stopping = False
        self._ear, self._mouth = os.pipe()
        line.meanwhile = self._pump
        self._thread = threading.Thread(target=self._work, name="kernelarc flow", daemon=True)
        self._thread.start()

    # For the session

    def submit(self, candidate: Candidate, place: int, bound: float | None) -> None:
        """Queue a candidate to be built and judged."""
        with self._changed:
            ticket = self._ticket()
            self._waiting[ticket] = candidate, place, bound
            self._order(ticket, place, candidate.genome)
            self._line.make_ready(place)
        self._wake()

    def submit_row(self, candidate: Candidate, place: int, row: LtRow, bound: float | None) -> None:
        """Queue a candidate of the library's."""
        with self._changed:
            self._ready.append(Flight(candidate, place, LtContender(row), bound))
        self._wake()

    def withdraw(self) -> None:
        """Let what no compiler has begun come back untried."""
        with self._changed:
            for ticket in sorted(self._pool.withdraw(self._waiting)):
                candidate, _, _ = self._waiting.pop(ticket)
                untried = Evaluation(
                    candidate=candidate,
                    status=Status.INTERRUPTED,
                    failure=TIME_WAS_UP,
                    message="nobody had begun to build it",
                )
                self._arrived.append(untried)
            self._changed.notify_all()

    def next(self) -> Evaluation | None:
        """Wait for an evaluation; None when nothing is on its way.

        Raises:
            KernelarcError: The instrument failed.
        """
        with self._changed:
            while not self._arrived:
                self._check()
                if not self._open():
                    return None
                self._changed.wait(_WAKE_S)
            return self._arrived.popleft()

    @contextlib.contextmanager
    def asking(self) -> Iterator[DeviceLine]:
        """Have the worker to oneself for questions; what arrives in between is kept."""
        with self._changed:
            self._check()
            yield self._line
        self._wake()

    def build(self, place: int, genome: Genome) -> Build | str:
        """Return a genome's build, made anew where it is not at hand, or the failure class."""
        with self._changed:
            known = self._builds.get((place, genome.fingerprint))
            if known is not None:
                return known
            ticket = self._ticket()
            self._private[ticket] = None
            self._order(ticket, place, genome, first=True)
            self._wake()
            while (reply := self._private[ticket]) is None:
                self._check()
                self._changed.wait(_WAKE_S)
            del self._private[ticket]
            if reply.build is None:
                return reply.failure or "compile error"
            self._keep(place, genome, reply.build)
            return reply.build

    def busy(self) -> dict[str, str]:
        """Say which share of their time compilers and worker had something to do."""
        wall = max(time.monotonic() - self._began, 1e-9)
        return {
            "compile_processes_busy": f"{self._pool.busy_share():.2f}",
            "device_worker_busy": f"{self._line.busy_s / wall:.2f}",
        }

    def close(self) -> None:
        """End thread, compilers and worker."""
        self._stopping = True
        self._wake()
        self._thread.join(_PATIENCE_S)
        while self._thread.is_alive():
            self._line.give_up()
            self._thread.join(_PATIENCE_S)
        self._pool.close()
        self._line.close()
        os.close(self._ear)
        os.close(self._mouth)

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _order(self, ticket: int, place: int, genome: Genome, *, first: bool = False) -> None:
        value = -math.inf if first else self._outlooks[place].value(genome)
        self._pool.submit(
            Order(
                ticket=ticket,
                route=genome.route,
                workload=self._ground.tasks[place].workload,
                genome=genome,
                value=value,
            )
        )

    def _open(self) -> bool:
        return bool(self._waiting or self._ready or self._line.flying or self._line.arrived)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._mouth, b"!")

    # The thread

    def _work(self) -> None:
        try:
            while not self._stopping:
                with self._changed:
                    self._turn()
                    sources, left = self._sources()
                self._sleep(sources, left)
        except BaseException as error:
            with self._changed:
                self._fault = error
                self._changed.notify_all()

    def _turn(self) -> None:
        """Take in what has happened, and hand on what is ready."""
        self._pump()
        self._line.harvest()
        self._land()
        while self._ready and len(self._line.flying) < _AHEAD:
            self._line.put(self._ready.popleft())
        self._land()

    def _sources(self) -> tuple[list[int], float]:
        """Return what to listen to, and for how long at most."""
        if self._line.arrived or self._pool.ready():
            return [], 0.0
        sources = [self._ear, *self._pool.filenos()]
        if self._line.flying:
            sources.append(self._line.fileno())
        until = [t for t in (self._pool.deadline(), self._line.deadline()) if t is not None]
        now = time.monotonic()
        return sources, max(0.0, min([_PAUSE_S, *(t - now + 0.01 for t in until)]))

    def _sleep(self, sources: list[int], left: float) -> None:
        if not sources:
            return
        try:
            heard = select.select(sources, [], [], left)[0]
        except (OSError, ValueError):  # a process was replaced meanwhile, and its descriptor closed
            return
        if self._ear in heard:
            os.read(self._ear, 4096)

    # Builds

    def _pump(self) -> None:
        """Take in what the compilers have done and keep them busy."""
        for reply in self._pool.harvest():
            if reply.ticket in self._private:
                self._private[reply.ticket] = reply
                self._changed.notify_all()
            elif reply.ticket in self._waiting:
                self._built(reply)

    def _built(self, reply: BuildReply) -> None:
        """Send a build on its way; judge it first by its report, and by what is known of it."""
        candidate, place, bound = self._waiting.pop(reply.ticket)
        self._costs[candidate.number] = reply.seconds
        build = reply.build
        if build is None:
            self._fail(candidate, place, reply.failure or "compile error", reply.message)
            return
        route = self._ground.routes[candidate.genome.route]
        fault = route.fault(build, self._ground.limits)
        if fault is not None:
            self._fail(candidate, place, *fault)
            return
        self._keep(place, candidate.genome, build)
        known = self._known.get((place, build.content))
        anew = known is not None and known[0].candidate.genome == candidate.genome
        self._board(Flight(candidate, place, PlanContender(build, anew), bound), build.content)

    def _board(self, flight: Flight, content: str) -> None:
        """Queue a build for the device, unless another's equal one was measured or is on its way.

        A genome that is asked for again is measured again: that is what it is asked for.
        """
        key = flight.workload, content
        known = self._known.get(key)
        asked_again = known is not None and known[0].candidate.genome == flight.candidate.genome
        if known is not None and not asked_again and _answers(*known, flight.limit_us):
            self._arrive(self._same(flight.candidate, known[0]), flight.workload)
        elif key in self._followers:
            self._followers[key].append(flight)
        else:
            self._followers[key] = []
            self._ready.append(flight)

    def _keep(self, place: int, genome: Genome, build: Build) -> None:
        self._builds[place, genome.fingerprint] = build
        while len(self._builds) > _MOST_BUILDS:
            self._builds.popitem(last=False)

    # Evaluations

    def _fail(self, candidate: Candidate, place: int, failure: str, message: str) -> None:
        failed = Evaluation(
            candidate=candidate,
            status=Status.COMPILE_ERROR,
            failure=failure,
            message=message,
            cost_s=self._costs.pop(candidate.number, 0.0),
        )
        self._arrive(failed, place)

    def _arrive(self, evaluation: Evaluation, place: int) -> None:
        self._outlooks[place].learn(evaluation)
        self._arrived.append(evaluation)
        self._changed.notify_all()

    def _land(self) -> None:
        """Turn what came from the worker into evaluations, equal binaries with it."""
        while self._line.arrived:
            flight, outcome = self._line.arrived.popleft()
            if self._comes_again(flight, outcome):
                continue
            known = self._judged(flight, outcome)
            if known is None:  # by a worker that is gone, or stopped earlier than this one may be
                self._ready.appendleft(_anew(flight))
                continue
            evaluation = known[0]
            self._arrive(evaluation, flight.workload)
            if isinstance(flight.contender, PlanContender):
                key = flight.workload, flight.contender.build.content
                if evaluation.status in {Status.OK, Status.WRONG_RESULT}:
                    self._known[key] = known
                    if outcome.content and not outcome.repeats:
                        self._ran[flight.workload, outcome.content] = known
                for follower in self._followers.pop(key, []):
                    if _answers(*known, follower.limit_us):
                        self._arrive(self._same(follower.candidate, evaluation), flight.workload)
                    else:
                        self._board(follower, key[1])

    def _judged(self, flight: Flight, outcome: Outcome) -> tuple[Evaluation, float | None] | None:
        """Return a candidate's evaluation and its bound; None where it must be judged yet."""
        if not outcome.repeats:
            return self._evaluation(flight, outcome), flight.limit_us
        known = self._ran.get((flight.workload, outcome.content))
        if known is None or not _answers(*known, flight.limit_us):
            return None
        return self._same(flight.candidate, known[0]), known[1]

    def _comes_again(self, flight: Flight, outcome: Outcome) -> bool:
        """Queue a candidate that met a busy device behind all others, a few times at most."""
        number = flight.candidate.number
        tries = self._tries.get(number, 0) + 1
        if outcome.failure != DEVICE_BUSY or tries >= _MOST_TRIES:
            self._tries.pop(number, None)
            return False
        self._tries[number] = tries
        self._ready.append(flight)
        return True

    def _same(self, candidate: Candidate, known: Evaluation) -> Evaluation:
        """Return a candidate's evaluation by that of an equal binary."""
        return Evaluation(
            candidate=candidate,
            status=known.status,
            measurement=known.measurement,
            failure=known.failure,
            message=known.message,
            cost_s=self._costs.pop(candidate.number, 0.0),
            properties={**known.properties, "same_as": known.candidate.genome.fingerprint},
        )

    def _evaluation(self, flight: Flight, outcome: Outcome) -> Evaluation:
        candidate, measured = flight.candidate, None
        seen = dict(outcome.properties)
        if isinstance(flight.contender, PlanContender):
            seen["binary"] = flight.contender.build.content
        if outcome.status is Status.OK:
            measured = measurement_of(
                outcome.samples,
                censored=outcome.censored,
                cache=self._ground.tasks[flight.workload].cache,
                launches=outcome.launches,
            )
            if self._is_first(flight.contender, flight.workload):
                seen["baseline"] = FIRST_HEURISTIC
        return Evaluation(
            candidate=candidate,
            status=outcome.status,
            measurement=measured,
            failure=outcome.failure,
            message=outcome.message,
            cost_s=outcome.cost_s + self._costs.pop(candidate.number, 0.0),
            properties=seen,
        )

    def _is_first(self, contender: Contender, place: int) -> bool:
        return isinstance(contender, LtContender) and contender.row == self._ground.first_row(place)


def _anew(flight: Flight) -> Flight:
    """Return a flight whose build is judged whatever its launches come to."""
    assert isinstance(flight.contender, PlanContender)
    return replace(flight, contender=replace(flight.contender, anew=True))


def _answers(known: Evaluation, bound: float | None, wanted: float | None) -> bool:
    """Tell whether an evaluation answers for an equal build.

    One that was stopped early says nothing beyond the bound at which it was.

    Args:
        known: The evaluation.
        bound: Latency beyond which it was stopped, microseconds.
        wanted: Latency beyond which the other may be stopped, None where it must be measured.
    """
    if known.measurement is None or not known.measurement.censored:
        return True
    return bound is not None and wanted is not None and wanted <= bound
