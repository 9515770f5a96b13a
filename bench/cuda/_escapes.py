"""Whether work escapes the clock, or the device is only busy with somebody else's.

A wall clock that saw far more than the device's accuses nobody by itself: on a GPU that another
process uses too, everything waits for its turn. So who is suspected is timed again, in turn with
kernels of the judge's own that last as long and cannot escape. Where these are late as well, the
moment is bad and no genome is to blame.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelarc.bench.cuda._clock import Call, Clock, Segment, Span, TimedGraph
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.genomes import Status

DEVICE_BUSY = "device busy"
_MOST_LATE = 3  # in a row, before anybody is suspected
_PAIRS = 8
_SURE = 7  # of the pairs: work that escapes is seen every time, a late host now and then
_PAUSES_S = (0.1, 0.4)
_LEAST_US, _MOST_CALLS = 1500.0, 512


class DeviceBusyError(Exception):
    """Other work runs on the device: nothing can be said of the candidate now."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """How often each was late on the wall, of so many replays in turn."""

    suspect: int
    own: int
    pairs: int


def escapes(
    suspect: Callable[[], Span],
    own: Callable[[], Span],
    settle: Call,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Tell whether a suspect's work escapes the clock.

    Args:
        suspect: Replays what is suspected.
        own: Replays work of the judge's that lasts about as long.
        settle: Waits until nothing of this process runs on the device any more: what one left
            behind must not make the other late.
        sleep: Waits so many seconds.

    Raises:
        DeviceBusyError: The judge's own work is late too, and stays so.
    """
    for pause_s in (*_PAUSES_S, None):
        found = _in_turn(suspect, own, settle)
        if not found.own:
            return found.suspect >= _SURE
        if pause_s is not None:
            sleep(pause_s)
    raise DeviceBusyError(
        f"other work runs on this GPU: the wall clock saw far more than the device's for "
        f"{found.own} of {found.pairs} replays of the judge's own kernels, and for {found.suspect} "
        f"of the candidate's; search again when the device is free"
    )


def _in_turn(suspect: Callable[[], Span], own: Callable[[], Span], settle: Call) -> Lateness:
    late = {True: 0, False: 0}
    for _ in range(_PAIRS):
        for is_own, replay in ((False, suspect), (True, own)):
            settle()
            late[is_own] += replay().escaped
    return Lateness(late[False], late[True], _PAIRS)


def own_work(clock: Clock, sweep: Call, like_us: float) -> TimedGraph:
    """Return a graph of sweeps through memory that lasts about as long, and long enough to judge.

    Args:
        clock: Captures it.
        sweep: Launches one.
        like_us: Microseconds of the suspect's span.
    """
    once_us = max(clock.once(sweep, sweep), 1.0)
    count = math.ceil(max(like_us, _LEAST_US) / once_us)
    return clock.graph([Segment([], [sweep] * min(count, _MOST_CALLS))])


class Trial:
    """Watches one candidate's spans, and tries it where they are late again and again.

    Args:
        tools: The worker's instruments.
        sweep: Launches a sweep through memory.
        replay: Replays the candidate's span.
        calls: How many calls that is.
    """

    def __init__(self, tools: Any, sweep: Call, replay: Callable[[], Span], calls: int) -> None:
        self._tools, self._sweep, self._replay, self._calls = tools, sweep, replay, calls
        self._late, self._cleared = 0, False

    def suspects(self, span: Span) -> bool:
        """Take in a span; tell whether it is one too many in a row that is late on the wall.

        Compilers run beside this process: a late host is seen now and then, work that escapes is
        seen every time.
        """
        self._late = self._late + 1 if span.escaped else 0
        return self._late >= _MOST_LATE and not self._cleared

    def guilty(self) -> bool:
        """Tell whether it really works outside of its span; who does not is cleared for good.

        Raises:
            DeviceBusyError: That cannot be told now.
        """
        settle: Call = self._tools.cupy.cuda.runtime.deviceSynchronize
        settle()
        own = own_work(self._tools.clock, self._sweep, self._replay().call_us * self._calls)
        own.replay()
        found = escapes(self._replay, own.replay, settle)
        self._cleared = not found
        return found


def given_up(number: int, error: DeviceBusyError, cost_s: float) -> Outcome:
    """Return the outcome of a candidate of which nothing could be said."""
    return Outcome(
        number=number,
        status=Status.INTERRUPTED,
        failure=DEVICE_BUSY,
        message=str(error),
        cost_s=cost_s,
    )
