"""Speed-ups between two genomes: exact on a deterministic device, with an interval elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kernelarc.bench import paired_speedup
from kernelarc.genomes import Contest, Estimate, Judged

# What is slower by more than this needs no interleaved rounds to be called so.
FAR = 1.15
# Rounds that count as one stretch of a contest.
_STRETCH = 10


def exact_speedup(judged: Judged, over: Judged) -> Estimate:
    """Return the ratio of two objectives as an estimate without spread (deterministic devices)."""
    mine, theirs = judged.evaluation.measurement, over.evaluation.measurement
    if mine is None or theirs is None:
        raise ValueError("a speed-up needs two measured evaluations")
    ratio = theirs.objective / mine.objective
    n = min(len(mine.samples), len(theirs.samples))
    return Estimate(value=ratio, low=ratio, high=ratio, n=n)


def unpaired_speedup(judged: Judged, over: Judged) -> Estimate:
    """Return the ratio of two medians that were not timed side by side.

    The interval is the widest that the samples allow: slowest against fastest. Where even that
    lies above 1, no pairing is needed to call one faster.
    """
    mine, theirs = judged.evaluation.measurement, over.evaluation.measurement
    if mine is None or theirs is None:
        raise ValueError("a speed-up needs two measured evaluations")
    return Estimate(
        value=theirs.objective / mine.objective,
        low=min(theirs.samples) / max(mine.samples),
        high=max(theirs.samples) / min(mine.samples),
        n=min(len(mine.samples), len(theirs.samples)),
    )


def column_speedup(contest: Contest, challenger: str, over: str, *, claims: int) -> Estimate | None:
    """Return how much faster one contender is than another, from their paired rounds.

    Args:
        contest: With both as columns.
        challenger: Column name of the one that would be faster.
        over: Column name of the other.
        claims: How many claims were made in all; the interval is corrected for it.

    Returns:
        None when either did not take part or failed there, or they were never timed in one round.
    """
    if challenger not in contest.names or over not in contest.names:
        return None
    if challenger in contest.failures or over in contest.failures:
        return None
    columns = zip(contest.column(challenger), contest.column(over), strict=True)
    # A slow baseline takes part in some of the rounds only.
    pairs = [pair for pair in columns if not any(map(math.isnan, pair))]
    if not pairs:
        return None
    if len(contest.samples) == 1:
        # A deterministic device answers the same for ever: one round says all, without spread.
        ((mine, theirs),) = pairs
        return Estimate(value=theirs / mine, low=theirs / mine, high=theirs / mine, n=1)
    own, others = zip(*pairs, strict=True)
    return paired_speedup(own, others, claims=claims)


def contest_speedup(
    contest: Contest, judged: Judged, over: Judged, *, claims: int
) -> Estimate | None:
    """``column_speedup`` between the genomes of two evaluations."""
    return column_speedup(
        contest,
        judged.evaluation.candidate.genome.fingerprint,
        over.evaluation.candidate.genome.fingerprint,
        claims=claims,
    )


def joined_contest(visits: Sequence[Contest]) -> Contest:
    """Return several contests of the same contenders as one; who failed in any has failed."""
    return replace(
        visits[0],
        samples=tuple(row for visit in visits for row in visit.samples),
        failures={name: why for visit in visits for name, why in visit.failures.items()},
    )


def visited_speedup(visits: Sequence[Contest], challenger: str, over: str) -> Estimate | None:
    """Return a speed-up over several visits: the interval holds what each stretch of them found.

    Pairs that were timed one after the other share buffers and heat, and a long visit begins on
    a cool device and ends on a hot one. So the interval of all pairs alone would be too narrow.
    """
    if len(visits) == 1:
        return column_speedup(visits[0], challenger, over, claims=1)
    whole = column_speedup(joined_contest(visits), challenger, over, claims=1)
    if whole is None:
        return None
    found = [
        speedup.value
        for visit in visits
        for start in range(0, len(visit.samples), _STRETCH)
        if (part := visit.samples[start : start + _STRETCH])
        and (speedup := column_speedup(replace(visit, samples=part), challenger, over, claims=1))
    ]
    return replace(whole, low=min(whole.low, *found), high=max(whole.high, *found))


def baseline_column(contest: Contest) -> str | None:
    """Return the baseline's column name, or None when it did not take part or failed."""
    for name in contest.names:
        if name.startswith("baseline:") and name not in contest.failures:
            return name
    return None
