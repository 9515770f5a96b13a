"""Which workloads are like each other: what won on one is tried early on its neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelarc.genomes import Workload

_UNLIKE = 8.0  # what an axis or an option counts that only one of the two has, or has otherwise


def distance(left: Workload, right: Workload) -> float:
    """Return how far two workloads of one operator are apart: doublings of axes, added up."""
    names = left.axes.keys() | right.axes.keys()
    total = 0.0
    for name in names:
        mine, other = left.axes.get(name), right.axes.get(name)
        total += abs(math.log2(mine / other)) if mine and other else _UNLIKE
    options = left.options.keys() | right.options.keys()
    unlike = sum(left.options.get(name) != right.options.get(name) for name in options)
    return total + _UNLIKE * unlike


def nearest_first(workload: Workload, others: Iterable[Workload]) -> list[Workload]:
    """Return the others, the nearest first, equals by fingerprint."""
    return sorted(others, key=lambda other: (distance(workload, other), other.fingerprint))
