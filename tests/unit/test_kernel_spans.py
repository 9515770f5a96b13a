"""What is timed together, and what the cache holds before it."""

from __future__ import annotations

import pytest

from kernelarc.bench.kernels._spans import segments_of, timed_alone


def called(count: int, call_us: float, *, evict: bool) -> tuple[list[str], list[int]]:
    """Return all that a span runs, in order, and how many timed calls each segment has."""
    seen: list[str] = []

    def note(word: str) -> object:
        return lambda: seen.append(word)

    calls = [note(f"call {i}") for i in range(count)]
    made = segments_of(
        calls,  # type: ignore[arg-type]
        call_us,
        restore=[note("restore")],  # type: ignore[list-item]
        evict=note("evict") if evict else None,  # type: ignore[arg-type]
    )
    for segment in made:
        for call in (*segment.before, *segment.calls):
            call()
    return seen, [len(segment.calls) for segment in made]


@pytest.mark.parametrize(
    ("count", "call_us", "timed"), [(2, 160.0, 2), (2, 45.0, 4), (3, 200.0, 3)]
)
def test_a_long_call_is_timed_alone_behind_a_full_cache(
    count: int, call_us: float, timed: int
) -> None:
    seen, widths = called(count, call_us, evict=True)
    assert widths == [1] * timed
    calls = [f"call {i % count}" for i in range(timed)]
    assert seen == ["restore", *(word for call in calls for word in ("evict", call))]
    assert {f"call {i}" for i in range(count)} <= set(seen), "every set is written"


def test_short_calls_follow_each_other_on_all_sets() -> None:
    seen, widths = called(3, 10.0, evict=False)
    assert widths == [12]
    assert seen[:3] == ["restore", "call 2", "call 2"]
    assert seen[3:] == ["call 0", "call 1", "call 2"] * 4


def test_the_events_around_a_short_call_would_weigh_too_much() -> None:
    assert timed_alone(41.0, 2)
    assert timed_alone(20.0, 4)
    assert not timed_alone(3.0, 2)
    assert not timed_alone(41.0, 5), "more sets than the clock has events for"
