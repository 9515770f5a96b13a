"""Intervals cover as often as they say, on skewed, heavy-tailed, stepped and drifting samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench import (
    clearly_slower,
    measurement_of,
    median_estimate,
    noise_floor,
    paired_speedup,
    reaches,
    rounds_needed,
)

REPEATS = 1500

Draw = Callable[[np.random.Generator, int], "NDArray[np.float64]"]

NOISES: dict[str, tuple[Draw, float]] = {
    "lognormal": (lambda rng, n: rng.lognormal(0.0, 0.6, n), 1.0),
    "heavy tail": (lambda rng, n: 1.0 + rng.pareto(1.1, n), 2.0 ** (1 / 1.1)),
    "two steps": (lambda rng, n: 10.0 + rng.integers(0, 3, n).astype(np.float64), 11.0),
}


def least_coverage(confidence: float, repeats: int) -> float:
    """Four standard errors below what is promised: a right interval is never below it."""
    return confidence - 4.0 * math.sqrt(confidence * (1.0 - confidence) / repeats)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [5, 8, 13, 40])
def test_median_interval_covers_as_often_as_it_says(noise: str, n: int) -> None:
    draw, median = NOISES[noise]
    rng = np.random.default_rng(n)
    found = [median_estimate(draw(rng, n).tolist()) for _ in range(REPEATS)]
    covered = sum(one.low <= median <= one.high for one in found) / REPEATS
    assert covered >= least_coverage(found[0].confidence, REPEATS)
    assert all(one.low <= one.value <= one.high and one.n == n for one in found)


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (20, 6, 15), (40, 14, 27)])
def test_median_interval_takes_the_known_order_statistics(n: int, low: int, high: int) -> None:
    found = median_estimate([float(rank) for rank in range(n, 0, -1)])
    assert (found.low, found.high, found.confidence) == (low, high, 0.95)


@pytest.mark.parametrize(("n", "reached"), [(1, 0.0), (2, 0.5), (5, 0.9375)])
def test_too_few_samples_give_the_range_and_say_so(n: int, reached: float) -> None:
    found = median_estimate([float(rank) for rank in range(1, n + 1)])
    assert (found.low, found.high) == (1.0, n)
    assert found.confidence == pytest.approx(reached)
    assert not reaches(found)


def test_an_estimate_needs_samples_that_are_numbers() -> None:
    for samples in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(ValueError, match="sample"):
            median_estimate(samples)


@pytest.mark.parametrize("n", [6, 20, 40])
def test_paired_speedup_covers_under_drift_and_heavy_tails(n: int) -> None:
    rng = np.random.default_rng(100 + n)
    hits = 0
    for _ in range(REPEATS):
        drift = np.linspace(1.0, 1.3, n) * (1.0 + 0.1 * rng.random())
        challenger = 100.0 * drift * (1.0 + 0.02 * rng.pareto(1.5, n))
        incumbent = 103.0 * drift * (1.0 + 0.02 * rng.pareto(1.5, n))
        found = paired_speedup(challenger.tolist(), incumbent.tolist())
        hits += found.low <= 1.03 <= found.high
    assert hits / REPEATS >= least_coverage(0.95, REPEATS)


def test_drift_fools_blocks_but_not_pairs() -> None:
    """Row 16: the same kernel, timed A then B while the clock falls, against A B A B."""
    drift = np.linspace(1.0, 1.15, 40)
    noise = np.random.default_rng(3).lognormal(0.0, 0.002, 40)
    times = 100.0 * drift * noise
    blocks = paired_speedup(times[20:].tolist(), times[:20].tolist())
    pairs = paired_speedup(times[1::2].tolist(), times[::2].tolist())
    assert blocks.high < 0.95  # a wrong "slower", with a narrow interval
    assert pairs.low > 0.99


@pytest.mark.parametrize("claims", [1, 20])
def test_false_claims_stay_below_the_level_of_the_whole_family(claims: int) -> None:
    """Row 17: of equal contenders, hardly ever is one of many called faster."""
    rng = np.random.default_rng(17)
    families, n = 300, rounds_needed(claims=claims) + 6
    wrong = 0
    for _ in range(families):
        incumbent = rng.lognormal(0.0, 0.05, n).tolist()
        rivals = [rng.lognormal(0.0, 0.05, n).tolist() for _ in range(claims)]
        wrong += any(paired_speedup(rival, incumbent, claims=claims).low > 1.0 for rival in rivals)
    assert wrong / families <= 1.0 - least_coverage(0.95, families)


def test_uncorrected_claims_are_wrong_too_often() -> None:
    """The planted fault of row 17: twenty claims, each at its own level."""
    rng = np.random.default_rng(17)
    wrong = 0
    for _ in range(100):
        incumbent = rng.lognormal(0.0, 0.05, 20).tolist()
        wrong += any(
            paired_speedup(rng.lognormal(0.0, 0.05, 20).tolist(), incumbent).low > 1.0
            for _ in range(20)
        )
    assert wrong / 100 > 0.10


def test_a_true_gain_is_found() -> None:
    rng = np.random.default_rng(5)
    new = rng.lognormal(0.0, 0.01, 20)
    old = 1.05 * rng.lognormal(0.0, 0.01, 20)
    found = paired_speedup(new.tolist(), old.tolist(), claims=50)
    assert 1.03 < found.low <= found.value <= found.high < 1.07
    assert reaches(found)


def test_rounds_needed_is_where_the_range_reaches_the_level() -> None:
    assert (rounds_needed(), rounds_needed(claims=100)) == (6, 12)
    for claims in (1, 7, 100):
        n = rounds_needed(claims=claims)
        ones = [1.0] * n
        assert reaches(paired_speedup(ones, ones, claims=claims))
        assert not reaches(paired_speedup(ones[1:], ones[1:], claims=claims))


@pytest.mark.parametrize(
    ("challenger", "incumbent"),
    [([1.0], [1.0, 2.0]), ([], []), ([math.nan], [1.0]), ([0.0], [1.0]), ([1.0], [-1.0])],
)
def test_pairs_must_be_pairs_of_times(challenger: list[float], incumbent: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pair|sample"):
        paired_speedup(challenger, incumbent)


def test_only_what_is_slow_at_its_fastest_is_censored() -> None:
    assert clearly_slower([400.0, 210.0, 300.0], limit=100.0)
    assert not clearly_slower([400.0, 140.0, 300.0], limit=100.0)  # one honest fast sample
    assert not clearly_slower([400.0, 400.0], limit=100.0)  # too few to tell


def test_a_censored_objective_is_a_lower_bound() -> None:
    samples = (220.0, 205.0, 900.0)
    full, bound = measurement_of(samples), measurement_of(samples, censored=True)
    assert (full.objective, full.censored) == (220.0, False)
    assert (bound.objective, bound.censored) == (205.0, True)
    assert full.samples == samples


def test_noise_floor_sees_a_sick_instrument() -> None:
    rng = np.random.default_rng(8)
    first, second = rng.lognormal(0.0, 0.01, 30), rng.lognormal(0.0, 0.01, 30)
    well = noise_floor(first.tolist(), second.tolist())
    sick = noise_floor(first.tolist(), (1.1 * second).tolist())
    assert well.healthy
    assert 0.01 < well.spread < 0.06
    assert not sick.healthy


def test_a_mean_is_not_used() -> None:
    """Row 26: one sample a thousand times as long moves neither value nor interval much."""
    calm = [100.0 + 0.1 * i for i in range(20)]
    struck = [*calm[:-1], 100_000.0]
    assert median_estimate(struck).value == median_estimate(calm).value
    assert median_estimate(struck).high < 102.0
