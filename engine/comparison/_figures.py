"""What a comparison says in numbers, each with a bootstrap interval over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.comparison._random import expected_best
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Estimate

Curves: TypeAlias = "NDArray[np.float64]"
"""Best after 1, 2, ... evaluations over the optimum, shape (seeds, evaluations)."""

_RESAMPLES = 1000
_STREAM = 20240601
_CUT = 0.95
_LEVEL = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a space's figures are measured against.

    Attributes:
        expected: Random search's expected best over the optimum, shape (evaluations,).
        cut: Evaluations up to which the methodology score averages.
    """

    expected: NDArray[np.float64]
    cut: int


def ground_of(table: Table, length: int) -> Ground:
    """Return a space's ground.

    The score is cut where random search is expected to have covered 95 % of the way from the median
    to the optimum (Willemsen 2024), at the latest at the largest budget.
    """
    expected = expected_best(table, length) / table.optimum
    median = float(np.nanmedian(table.objectives)) / table.optimum
    within = np.flatnonzero(expected <= 1.0 + (1.0 - _CUT) * (median - 1.0))
    return Ground(expected, int(within[0]) + 1 if len(within) else length)


def geometric_mean_of_medians(curves: Sequence[Curves], place: int) -> float:
    """Return the geometric mean over spaces of the median over seeds, at an evaluation."""
    medians = [float(np.median(c[:, place])) for c in curves]
    return float(np.exp(np.mean(np.log(medians))))


def share_at_optimum(curves: Sequence[Curves], place: int) -> float:
    """Return the share of all runs that stand at the optimum."""
    return float(np.mean([np.mean(c[:, place] <= 1.0) for c in curves]))


def score(curves: Curves, ground: Ground) -> float:
    """Return the methodology score of one space: 0 as random search, 1 at the optimum throughout.

    The strategy's curve is the median over the seeds, random search's its expectation: random
    search itself does not score exactly 0.
    """
    found = np.median(curves, axis=0)[: ground.cut]
    expected = ground.expected[: ground.cut]
    span = expected - 1.0
    gained = np.where(span > 1e-12, (expected - found) / np.maximum(span, 1e-12), found <= 1.0)
    return float(gained.mean())


def interval(curves: Sequence[Curves], statistic: Callable[[Sequence[Curves]], float]) -> Estimate:
    """Return a statistic with its 95 % bootstrap interval: seeds are drawn anew in each space."""
    rng = np.random.default_rng(_STREAM)
    drawn = [
        statistic([c[rng.integers(len(c), size=len(c))] for c in curves]) for _ in range(_RESAMPLES)
    ]
    low, high = (float(bound) for bound in np.percentile(drawn, _LEVEL))
    value = statistic(curves)
    return Estimate(
        value=value, low=min(low, value), high=max(high, value), n=sum(map(len, curves))
    )


def advantage(ours: Sequence[Curves], theirs: Sequence[Curves], place: int) -> Estimate:
    """Return our geometric mean of medians over theirs, with its interval: below 1 is better."""

    def ratio(both: Sequence[Curves]) -> float:
        mine, others = both[: len(ours)], both[len(ours) :]
        return geometric_mean_of_medians(mine, place) / geometric_mean_of_medians(others, place)

    return interval([*ours, *theirs], ratio)


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """One method's figures.

    Attributes:
        means: Geometric mean over spaces of median best / optimum, by budget.
        shares: Share of all runs at the optimum, by budget.
        score: Methodology score, mean over spaces.
        medians: Median best / optimum by space and budget.
        scores: Methodology score by space.
    """

    name: str
    means: Mapping[int, Estimate]
    shares: Mapping[int, Estimate]
    score: Estimate
    medians: Mapping[str, Mapping[int, float]]
    scores: Mapping[str, Estimate]


def figures_of(
    name: str, curves: Mapping[str, Curves], grounds: Mapping[str, Ground], budgets: Sequence[int]
) -> MethodFigures:
    """Return a method's figures from its curves by space."""
    listed = list(curves.values())
    places = {budget: budget - 1 for budget in budgets}

    def overall(drawn: Sequence[Curves]) -> float:
        return float(np.mean([score(c, grounds[s]) for s, c in zip(curves, drawn, strict=True)]))

    return MethodFigures(
        name=name,
        means={
            b: interval(listed, lambda c, p=p: geometric_mean_of_medians(c, p))  # type: ignore[misc]
            for b, p in places.items()
        },
        shares={
            b: interval(listed, lambda c, p=p: share_at_optimum(c, p))  # type: ignore[misc]
            for b, p in places.items()
        },
        score=interval(listed, overall),
        medians={
            space: {b: float(np.median(c[:, p])) for b, p in places.items()}
            for space, c in curves.items()
        },
        scores={
            space: interval([c], lambda d, s=space: score(d[0], grounds[s]))  # type: ignore[misc]
            for space, c in curves.items()
        },
    )
