"""Timing with events that are nodes of a CUDA graph.

The host takes no part in a span: lead-in, first event, calls and last event are one graph, so
neither launch overhead nor the host's scheduling is measured. A cold span rotates over buffer
sets that together exceed twice the L2 cache, or follows a sweep through it or a write over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.genomes import StoppedError

Call = Callable[[], None]
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of its own in a captured graph
_WALL_FACTOR, _WALL_LEAST_US = 1.5, 1000.0


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls between two events, and what runs before the first of them, untimed."""

    before: Sequence[Call]
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Span:
    """One timed replay.

    Attributes:
        call_us: Microseconds per call by the events.
        escaped: Whether the wall clock saw far more time than the events: work on another
            stream, or a device that somebody else uses.
    """

    call_us: float
    escaped: bool


class Clock:
    """Captures and replays timed graphs on one stream.

    Args:
        driver: The module ``cuda.bindings.driver``.
        stream: A CuPy stream that is not the default one.
        events: How many events a graph may hold.
    """

    def __init__(self, driver: Any, stream: Any, events: int = 8) -> None:
        self._driver, self._stream = driver, stream
        self._handle = driver.CUstream(stream.ptr)
        self._events = [self._checked(driver.cuEventCreate(0)) for _ in range(events)]

    @staticmethod
    def _checked(answer: tuple[Any, ...]) -> Any:
        if int(answer[0]) != 0:
            raise StoppedError(f"the device's clock failed: {answer[0]}")
        return answer[1] if len(answer) > 1 else None

    def _record(self, place: int, flags: int) -> None:
        self._checked(self._driver.cuEventRecordWithFlags(self._events[place], self._handle, flags))

    def _elapsed_us(self, first: int, last: int) -> float:
        events = self._events
        return 1e3 * float(
            self._checked(self._driver.cuEventElapsedTime(events[first], events[last]))
        )

    def once(self, call: Call, runway: Call | None = None) -> float:
        """Launch a call directly and return its microseconds.

        Args:
            call: Launches.
            runway: Launches something that lasts longer than the host needs to queue the call;
                without it, launch overhead is part of the time.
        """
        if runway is not None:
            runway()
        self._record(0, 0)
        call()
        self._record(1, 0)
        self._stream.synchronize()
        return self._elapsed_us(0, 1)

    def graph(self, segments: Sequence[Segment]) -> TimedGraph:
        """Capture segments into one graph. Nothing runs yet."""
        self._stream.begin_capture()
        try:
            for i, segment in enumerate(segments):
                for call in segment.before:
                    call()
                self._record(2 * i, _EXTERNAL)
                for call in segment.calls:
                    call()
                self._record(2 * i + 1, _EXTERNAL)
        finally:
            graph = self._stream.end_capture()
        return TimedGraph(self, graph, len(segments), sum(len(s.calls) for s in segments))

    def replay(self, graph: Any, segments: int, calls: int) -> Span:
        """Launch a graph, wait for it, read its events."""
        begun = time.perf_counter()
        graph.launch(self._stream)
        self._stream.synchronize()
        wall_us = 1e6 * (time.perf_counter() - begun)
        timed_us = sum(self._elapsed_us(2 * i, 2 * i + 1) for i in range(segments))
        escaped = timed_us >= _WALL_LEAST_US and wall_us > _WALL_FACTOR * timed_us + 200.0
        return Span(timed_us / calls, escaped)


@dataclass(frozen=True, slots=True)
class TimedGraph:
    """A captured graph that knows its clock."""

    clock: Clock
    graph: Any
    segments: int
    calls: int

    def replay(self) -> Span:
        """Replay once."""
        return self.clock.replay(self.graph, self.segments, self.calls)


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """Calls that cannot be captured, launched directly: what the host does counts.

    Attributes:
        each: Called in turn, one a replay.
        runway: Launched before each, untimed.
    """

    clock: Clock
    each: Iterator[Call]
    runway: Call
    calls: int = 1

    def replay(self) -> Span:
        """Launch the next call."""
        return Span(self.clock.once(next(self.each), self.runway), escaped=False)
