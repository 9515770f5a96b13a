"""Figures of curves whose figures are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelarc.engine.comparison._figures import (
    Curves,
    Ground,
    Resampled,
    advantage,
    figures_of,
    geometric_means,
    ground_of,
    optimal_shares,
    permutation_p,
    scores,
)
from kernelarc.engine.comparison._random import expected_best
from kernelarc.engine.comparison._table import load_table


def resampled(*curves: Curves) -> list[Resampled]:
    return [Resampled.of(one, stream) for stream, one in enumerate(curves)]


def score(curves: Curves, ground: Ground) -> float:
    return float(scores(Resampled.of(curves, 0), ground)[0])


def test_means_are_geometric_over_spaces_of_medians_over_seeds() -> None:
    one = np.array([[1.0], [1.2], [9.0]])
    other = np.array([[1.5], [1.5], [1.5]])
    both = resampled(one, other)
    assert geometric_means(both, 0)[0] == pytest.approx((1.2 * 1.5) ** 0.5)
    assert optimal_shares(both, 0)[0] == pytest.approx(1 / 6)


def test_the_score_is_0_on_the_expectation_of_random_search_and_1_at_the_optimum() -> None:
    ground = Ground(np.array([3.0, 2.0, 1.5]), cut=3)
    assert score(np.array([[3.0, 2.0, 1.5]]), ground) == 0.0
    assert score(np.ones((4, 3)), ground) == 1.0
    assert score(np.array([[3.0, 2.0, 1.25]]), ground) == pytest.approx(0.5 / 3)
    assert score(np.array([[5.0, 2.0, 1.5]]), ground) == pytest.approx(-1 / 3)
    assert score(np.ones((1, 3)), Ground(np.ones(3), cut=3)) == 1.0


def test_the_score_is_cut_where_random_search_has_come_far_enough(spaces: Path) -> None:
    table = load_table(spaces / "slope.json")
    ground = ground_of(table, 94)
    expected = expected_best(table, 94) / table.optimum
    median = float(np.nanmedian(table.objectives)) / table.optimum
    bar = 1.0 + 0.05 * (median - 1.0)
    assert expected[ground.cut - 1] <= bar < expected[ground.cut - 2]
    assert ground_of(table, 5).cut == 5


def test_intervals_hold_their_value_and_shrink_with_more_seeds() -> None:
    rng = np.random.default_rng(1)
    ground = {"s": Ground(np.full(4, 2.0), cut=4)}

    def width(seeds: int) -> float:
        spaces = {"s": Resampled.of(1.0 + rng.random((seeds, 4)), 0)}
        found = figures_of("m", spaces, ground, (2, 4)).means[4]
        assert found.low <= found.value <= found.high
        return found.high - found.low

    assert width(400) < 0.5 * width(20)


def test_an_advantage_below_1_is_ours() -> None:
    ours, theirs = resampled(np.full((5, 2), 1.1)), resampled(np.full((6, 2), 1.21))
    found = advantage(ours, theirs, 1)
    assert found.value == pytest.approx(1 / 1.1)
    assert found.low == pytest.approx(found.high)


def test_the_permutation_test_finds_a_difference_and_none() -> None:
    rng = np.random.default_rng(3)
    kernels = ["one", "one", "other"]
    ours = [1.0 + rng.random((20, 1)) for _ in kernels]
    alike = [1.0 + rng.random((20, 1)) for _ in kernels]
    worse = [1.2 * (1.0 + rng.random((20, 1))) for _ in kernels]
    assert permutation_p(ours, worse, kernels, 0) < 0.01
    assert permutation_p(worse, ours, kernels, 0) < 0.01
    assert permutation_p(ours, alike, kernels, 0) > 0.05
    assert permutation_p(ours, ours, kernels, 0) == 1.0


def test_kernels_weigh_alike_however_many_spaces_they_have() -> None:
    """Three spaces of one kernel favour us, the other kernel's only space favours them as much."""
    better, worse = np.full((30, 1), 1.0), np.full((30, 1), 1.3)
    kernels = ["one", "one", "one", "other"]
    ours, theirs = [better] * 3 + [worse], [worse] * 3 + [better]
    assert permutation_p(ours, theirs, kernels, 0) == 1.0
