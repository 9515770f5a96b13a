"""What a comparison says in numbers, each with a bootstrap interval over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.comparison._random import expected_best
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Estimate

Array: TypeAlias = "NDArray[np.float64]"
Curves: TypeAlias = "NDArray[np.float64]"
"""Best after 1, 2, ... evaluations over the optimum, shape (seeds, evaluations)."""

_RESAMPLES = 1000
_PERMUTATIONS = 4000
_CHUNK = 50  # resamples at once: bounds the memory
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

    expected: Array
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


@dataclass(frozen=True, slots=True)
class Resampled:
    """A space's runs of one method, as they are (row 0) and with the seeds drawn anew.

    Attributes:
        medians: Median best over the optimum, shape (1 + resamples, evaluations).
        optimal: Share of the runs at the optimum, of the same shape.
        runs: How many runs there are.
    """

    medians: Array
    optimal: Array
    runs: int

    @classmethod
    def of(cls, curves: Curves, stream: int) -> Resampled:
        """Resample; ``stream`` keeps the draws of different spaces and methods apart."""
        n = len(curves)
        drawn = np.random.default_rng([_STREAM, stream]).integers(n, size=(_RESAMPLES, n))
        chunks = [np.arange(n)[None], *np.array_split(drawn, -(-_RESAMPLES // _CHUNK))]
        at_optimum = curves <= 1.0
        return cls(
            np.concatenate([np.median(curves[chunk], axis=1) for chunk in chunks]),
            np.concatenate([at_optimum[chunk].mean(axis=1) for chunk in chunks]),
            n,
        )


def geometric_means(spaces: Sequence[Resampled], place: int) -> Array:
    """Return the geometric mean over spaces of the medians at an evaluation, by resample."""
    means: Array = np.exp(np.mean([np.log(one.medians[:, place]) for one in spaces], axis=0))
    return means


def optimal_shares(spaces: Sequence[Resampled], place: int) -> Array:
    """Return the share of all runs that stand at the optimum, by resample."""
    shares: Array = np.mean([one.optimal[:, place] for one in spaces], axis=0)
    return shares


def scores(space: Resampled, ground: Ground) -> Array:
    """Return the methodology score of one space, by resample.

    0 is random search, 1 the optimum throughout. The strategy's curve is the median over the seeds,
    random search's its expectation: so random search itself does not score exactly 0.
    """
    found = space.medians[:, : ground.cut]
    expected = ground.expected[: ground.cut]
    span = expected - 1.0
    gained = np.where(span > 1e-12, (expected - found) / np.maximum(span, 1e-12), found <= 1.0)
    averages: Array = gained.mean(axis=1)
    return averages


def estimate(resamples: Array, runs: int) -> Estimate:
    """Return a statistic (the first of ``resamples``) with its 95 % bootstrap interval."""
    value = float(resamples[0])
    low, high = (float(bound) for bound in np.percentile(resamples[1:], _LEVEL))
    return Estimate(value=value, low=min(low, value), high=max(high, value), n=runs)


def advantage(ours: Sequence[Resampled], theirs: Sequence[Resampled], place: int) -> Estimate:
    """Return our geometric mean of medians over theirs, with its interval: below 1 is better."""
    ratio = geometric_means(ours, place) / geometric_means(theirs, place)
    return estimate(ratio, sum(one.runs for one in (*ours, *theirs)))


def permutation_p(
    ours: Sequence[Curves], theirs: Sequence[Curves], kernels: Sequence[str], place: int
) -> float:
    """Return how likely two methods of equal worth would differ as much as these, two-sided.

    The statistic is the difference of mean log best, averaged over a kernel's spaces and then over
    kernels, which weigh alike. Runs change sides at random within each space.

    Args:
        ours: Curves by space.
        theirs: Of the other method, on the same spaces.
        kernels: The kernel of each space.
        place: Evaluation that is compared.
    """
    rng = np.random.default_rng(_STREAM)
    weight = {kernel: 1.0 / (len(set(kernels)) * kernels.count(kernel)) for kernel in kernels}
    found = np.zeros(1 + _PERMUTATIONS)
    for one, other, kernel in zip(ours, theirs, kernels, strict=True):
        both = np.log(np.concatenate([one[:, place], other[:, place]]))
        rows = np.tile(both, (1 + _PERMUTATIONS, 1))
        rows[1:] = rng.permuted(rows[1:], axis=1)
        difference = rows[:, : len(one)].mean(axis=1) - rows[:, len(one) :].mean(axis=1)
        found += weight[kernel] * difference
    as_far = np.abs(found) >= abs(found[0]) - 1e-12
    return float(as_far.mean())


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
    name: str,
    spaces: Mapping[str, Resampled],
    grounds: Mapping[str, Ground],
    budgets: Sequence[int],
) -> MethodFigures:
    """Return a method's figures from its runs by space."""
    listed = list(spaces.values())
    runs = sum(one.runs for one in listed)
    by_space = {space: scores(one, grounds[space]) for space, one in spaces.items()}
    return MethodFigures(
        name=name,
        means={b: estimate(geometric_means(listed, b - 1), runs) for b in budgets},
        shares={b: estimate(optimal_shares(listed, b - 1), runs) for b in budgets},
        score=estimate(np.mean(list(by_space.values()), axis=0), runs),
        medians={
            space: {b: float(one.medians[0, b - 1]) for b in budgets}
            for space, one in spaces.items()
        },
        scores={space: estimate(by_space[space], one.runs) for space, one in spaces.items()},
    )
