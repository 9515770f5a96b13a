"""Statistics of timed samples: medians, paired ratios, their intervals, censoring, noise floor.

Every interval here is made of order statistics, so it assumes nothing about the shape of the
noise: timings are skewed, have heavy tails and come in steps. What an interval does assume is
that the values it is given are independent, which is why speed-ups come from *pairs* timed one
right after the other: a drift of the clock is the same for both halves and falls out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelarc.genomes import Estimate, Measurement

CENSOR_RATIO = 1.5
CENSOR_SAMPLES = 3


def _checked(samples: Sequence[float]) -> list[float]:
    values = [float(sample) for sample in samples]
    if not values:
        raise ValueError("no samples: a statistic needs at least one")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a sample is not finite: a failed contender has no statistic")
    return sorted(values)


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return 0.5 * (ordered[middle - 1] + ordered[middle])


def _miss(n: int, depth: int) -> float:
    """Chance that the interval from the ``depth``-th smallest to largest misses the median."""
    return 2.0 * sum(math.comb(n, k) for k in range(depth)) / 2.0**n


def _depth(n: int, allowed_miss: float) -> int:
    """Deepest symmetric order statistic whose interval misses at most that often, at least 1."""
    depth = 1
    while depth < (n + 1) // 2 and _miss(n, depth + 1) <= allowed_miss:
        depth += 1
    return depth


def _estimate(samples: Sequence[float], confidence: float, claims: int) -> Estimate:
    ordered = _checked(samples)
    n = len(ordered)
    depth = _depth(n, (1.0 - confidence) / claims)
    reached = max(0.0, 1.0 - claims * _miss(n, depth)) if n > 1 else 0.0
    return Estimate(
        value=_median(ordered),
        low=ordered[depth - 1],
        high=ordered[n - depth],
        n=n,
        confidence=min(confidence, reached),
    )


def _check_level(confidence: float, claims: int) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    if claims < 1:
        raise ValueError(f"the number of claims is at least 1, not {claims}")


def median_estimate(samples: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Return the median with its order-statistic interval.

    The interval covers the true median at least as often as its ``confidence`` says, for any
    continuous or stepped distribution of independent samples. Where there are too few samples for
    the level that was asked, the interval is the whole range and ``confidence`` is what that
    range reaches: 0.9375 for five samples, 0 for one.

    Raises:
        ValueError: There is no sample, or one is not finite.
    """
    _check_level(confidence, 1)
    return _estimate(samples, confidence, 1)


def paired_speedup(
    challenger: Sequence[float],
    incumbent: Sequence[float],
    *,
    confidence: float = 0.95,
    claims: int = 1,
) -> Estimate:
    """Return how much faster the challenger is: the median of incumbent/challenger over pairs.

    Args:
        challenger: Samples of one contender, shape (rounds,), all positive.
        incumbent: Samples of the other, the i-th timed right beside the challenger's i-th.
        confidence: Chance that *all* the claims' intervals cover at once.
        claims: How many such claims are made in all (Bonferroni).

    Returns:
        The ratio with its sign-test interval: 1.10 is ten per cent faster. As in
        ``median_estimate``, too few pairs give the whole range and the confidence that it
        reaches: a claim stands only where ``reaches(estimate, confidence)``.

    Raises:
        ValueError: Unequal lengths, none at all, or a sample that is not finite and positive.
    """
    _check_level(confidence, claims)
    if len(challenger) != len(incumbent):
        raise ValueError(f"pairs are needed, not {len(challenger)} against {len(incumbent)}")
    if not all(value > 0 for value in (*challenger, *incumbent)):
        raise ValueError("a sample is not a positive number: a failed contender has no speed-up")
    ratios = [old / new for new, old in zip(challenger, incumbent, strict=True)]
    return _estimate(ratios, confidence, claims)


def reaches(estimate: Estimate, confidence: float = 0.95) -> bool:
    """Tell whether the interval had enough samples for the level that was asked of it."""
    return estimate.confidence >= confidence - 1e-12


def rounds_needed(confidence: float = 0.95, claims: int = 1) -> int:
    """Return the fewest pairs whose whole range reaches the level: 6 for one claim, 12 for 100."""
    _check_level(confidence, claims)
    allowed = (1.0 - confidence) / claims
    n = 2
    while _miss(n, 1) > allowed * (1.0 + 1e-12):
        n += 1
    return n


def clearly_slower(
    samples: Sequence[float],
    limit: float,
    *,
    ratio: float = CENSOR_RATIO,
    least: int = CENSOR_SAMPLES,
) -> bool:
    """Tell whether timing can stop: even the fastest of ``least`` samples is far over the limit.

    Noise only ever adds time, so the fastest sample is the fairest to the candidate.
    """
    return len(samples) >= least and min(samples) > ratio * limit


def measurement_of(
    samples: Sequence[float],
    *,
    censored: bool = False,
    unit: str = "us",
    cache: str = "cold",
    launches: int = 1,
) -> Measurement:
    """Return the record of timed samples: median, or for a censored one its lower bound.

    The fastest sample of a censored measurement is a bound: a full one would have had a median
    that is hardly below it.
    """
    ordered = _checked(samples)
    return Measurement(
        samples=tuple(float(sample) for sample in samples),
        objective=ordered[0] if censored else _median(ordered),
        unit=unit,
        censored=censored,
        cache=cache,
        launches=launches,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """What timing the same thing against itself shows about the instrument.

    Attributes:
        ratio: The A/A speed-up with its interval; a healthy instrument's covers 1.
        spread: How far a single pair's ratio strays from 1 in 95 of 100 pairs: 0.02 is 2 %.
    """

    ratio: Estimate
    spread: float

    @property
    def healthy(self) -> bool:
        """Whether equal things look equal."""
        return self.ratio.low <= 1.0 <= self.ratio.high


def noise_floor(
    first: Sequence[float], second: Sequence[float], *, confidence: float = 0.95
) -> NoiseFloor:
    """Return the noise floor from pairs of timings of one and the same binary.

    Raises:
        ValueError: As ``paired_speedup``.
    """
    ratio = paired_speedup(first, second, confidence=confidence)
    strays = sorted(
        math.expm1(abs(math.log(old / new))) for new, old in zip(first, second, strict=True)
    )
    return NoiseFloor(ratio=ratio, spread=float(np.quantile(strays, 0.95)))
