"""A race has as many rounds as its time has room for; who is far behind sits the later ones out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from kernelarc.bench.experiments.sol_race import raced

_OVERHEAD_S = 0.01


class Track:
    """Runners of fixed speed, and the clock that runs with them."""

    def __init__(
        self, times_us: Mapping[str, float], fails: Mapping[str, int] | None = None
    ) -> None:
        self.now, self._times, self._fails = 0.0, times_us, fails or {}
        self.calls: list[tuple[str, int]] = []

    def measure(self, name: str, done: int) -> float | None:
        self.calls.append((name, done))
        self.now += _OVERHEAD_S + 1e-6 * self._times[name]
        return None if self._fails.get(name) == done else self._times[name]

    def race(self, seconds: float, **options: set[str]) -> dict[str, list[float]]:
        rng = np.random.default_rng(4)
        return raced(
            list(self._times), self.measure, seconds, rng, clock=lambda: self.now, **options
        )


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 2), (0.3, 14), (100.0, 100)])
def test_rounds_fill_the_time(seconds: float, rounds: int) -> None:
    track = Track({"ours": 100.0, "best": 120.0})
    samples = track.race(seconds)
    assert {name: len(each) for name, each in samples.items()} == {"ours": rounds, "best": rounds}
    assert track.now <= max(seconds, 2 * 2.1 * _OVERHEAD_S)
    assert samples["ours"] == [100.0] * rounds
    firsts = [name for name, _ in track.calls[::2]]
    assert rounds == 2 or set(firsts) == {"ours", "best"}, "the order changes"


def test_who_is_far_behind_sits_out_unless_it_is_asked_for() -> None:
    times = {"ours": 500.0, "best": 120.0, "close": 200.0, "slow": 90_000.0}
    samples = Track(times).race(1.0, staying={"ours"})
    assert len(samples["slow"]) == 3
    assert len(samples["ours"]) == len(samples["best"]) == len(samples["close"]) > 10


def test_a_failure_ends_that_runner_alone_and_rounds_stay_aligned() -> None:
    samples = Track({"ours": 100.0, "other": 100.0}, fails={"other": 5}).race(1.0)
    assert len(samples["other"]) == 5
    assert len(samples["ours"]) > 20
