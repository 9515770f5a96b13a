"""Which calls are timed together and what runs before them: here it is chosen what caches hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelarc.bench.cuda._clock import Call, Segment

_SPAN_US, _MOST_CALLS = 120.0, 96
_MOST_SEGMENTS = 4  # of a graph: each takes two of the clock's events
_ALONE_US = 20.0


def timed_alone(floor_us: float, sets: int) -> bool:
    """Tell whether a job's calls are timed one by one.

    Around a call that takes less than its events weigh, they would be part of the figure; and a
    span is on all sets.

    Args:
        floor_us: No call takes less.
        sets: Buffer sets that a span's calls are on.
    """
    return floor_us >= _ALONE_US and sets <= _MOST_SEGMENTS


def segments_of(
    calls: Sequence[Call], call_us: float, *, restore: Sequence[Call], evict: Call | None
) -> list[Segment]:
    """Return one span of cold calls, on all sets in turn, several times where calls are short.

    Calls that follow each other find in the cache what the one before them left there, written
    with their own hints: a kernel that marks what it writes as soon to be evicted looks better
    than it is wherever other kernels ran before it. So a job that lasts is timed call by call,
    each behind a write that fills the cache; short calls follow each other.

    Args:
        calls: One a set.
        call_us: About what one takes.
        restore: Untimed, before the first.
        evict: Fills the cache before every call; None where calls follow each other.
    """
    most = _MOST_CALLS if evict is None else _MOST_SEGMENTS
    turns = math.ceil(_SPAN_US / max(call_us * len(calls), 1e-3))
    each = list(calls) * max(1, min(turns, most // len(calls)))
    if evict is None:
        lead = 2 if call_us < 50 else 1 if call_us < 500 else 0
        return [Segment([*restore, *list(calls[-1:]) * lead], each)]
    return [
        Segment([*(restore if place == 0 else ()), evict], [call])
        for place, call in enumerate(each)
    ]
