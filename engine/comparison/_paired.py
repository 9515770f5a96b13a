"""Two ways of searching on the same spaces with the same seeds: is the difference chance?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Estimate

Array: TypeAlias = "NDArray[np.float64]"

_FLIPS = 20_000
_EXACT_BLOCKS = 14  # up to here all 2^n signs are tried
_RESAMPLES = 2_000
_CHUNK = 500
_STREAM = 20261201
_LEVEL = (2.5, 97.5)
_TINY = 1e-12


def differences(one: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, Array]:
    """Return log(one / other) by space, shape (seeds,): the seeds must stand in the same order.

    Raises:
        ValueError: The spaces or their seeds are not the same.
    """
    if one.keys() != other.keys() or any(one[s].shape != other[s].shape for s in one):
        raise ValueError("a paired test needs the same spaces and seeds on both sides")
    return {space: np.log(one[space]) - np.log(other[space]) for space in one}


def blocks(found: Mapping[str, Array], kernels: Mapping[str, str]) -> Array:
    """Return the mean over a kernel's spaces by seed, shape (kernels, seeds).

    Spaces of one kernel are not independent problems: with one seed they stand or fall together.
    """
    by_kernel: dict[str, list[Array]] = {}
    for space, values in found.items():
        by_kernel.setdefault(kernels[space], []).append(values)
    return np.array([np.mean(spaces, axis=0) for spaces in by_kernel.values()])


def sign_flip_p(block: Array) -> float:
    """Return how likely two equal searches would differ on average as much as these, two-sided.

    Under equality each block's difference is as likely to have either sign. The statistic is the
    mean of all blocks, kernels weighing alike. Few blocks are tried in all ways; of many, a sample
    that counts what was found among its own draws, so that no chance is given as 0.

    Args:
        block: Differences, shape (kernels, seeds).
    """
    moving = block[np.abs(block) > _TINY]
    if not len(moving):
        return 1.0
    found = abs(float(moving.sum()))
    exact = len(moving) <= _EXACT_BLOCKS
    signs = _all_signs(len(moving)) if exact else _drawn_signs(len(moving))
    as_far = [np.abs(some @ moving) >= found * (1 - _TINY) for some in signs]
    hits, tried = sum(int(a.sum()) for a in as_far), sum(len(a) for a in as_far)
    return hits / tried if exact else (hits + 1) / (tried + 1)


def _all_signs(count: int) -> Iterator[Array]:
    yield np.array(list(itertools.product((-1.0, 1.0), repeat=count)))


def _drawn_signs(count: int) -> Iterator[Array]:
    rng = np.random.default_rng([_STREAM, 0])
    for _ in range(_FLIPS // _CHUNK):
        yield rng.choice((-1.0, 1.0), size=(_CHUNK, count))


def ratio_of(block: Array) -> Estimate:
    """Return the geometric mean of the ratios, kernels weighing alike, with a 95 % interval.

    The interval is a bootstrap over the seeds, drawn anew for each kernel.
    """
    kernels, seeds = block.shape
    rng = np.random.default_rng([_STREAM, 1])
    drawn = rng.integers(seeds, size=(_RESAMPLES, kernels, seeds))
    means = np.take_along_axis(block[None], drawn, axis=2).mean(axis=(1, 2))
    value = float(np.exp(block.mean()))
    low, high = (float(np.exp(bound)) for bound in np.percentile(means, _LEVEL))
    return Estimate(value=value, low=min(low, value), high=max(high, value), n=block.size)


def holm(chances: Sequence[float]) -> list[float]:
    """Return the chances corrected for how many were asked for (Holm), in the same order."""
    order = np.argsort(chances, kind="stable")
    corrected, highest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = highest
    return corrected
