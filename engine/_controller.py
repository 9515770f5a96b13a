"""Who may propose how much, and by what: a bandit over islands and their operators.

Its arms are islands and operators by name, its context the situation that a workload's search is in
(``Credits``). It draws no random number: shares follow credit, and floors keep exploring.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from kernelarc.engine._credits import ALL, Credits

# Half of all candidates are spread evenly, so that no island starves and credit can return.
_EVEN_PART = 0.5
# By how much an operator's chance is raised, or lowered, at most.
_MOST_ADVICE = 2.0
# Multiples of the golden ratio's fraction fill [0, 1) evenly, however many are taken.
_GOLDEN = 0.6180339887498949


def shares(credits_: Credits, islands: Iterable[str], context: str) -> dict[str, float]:
    """Return each awake island's share of the proposals in a situation; they sum to 1."""
    credit = {name: credits_.credit((name, ALL), context) for name in islands}
    total = sum(credit.values())
    return {
        name: _EVEN_PART / len(credit) + (1 - _EVEN_PART) * found / total
        for name, found in credit.items()
    }


def even(islands: Iterable[str]) -> dict[str, float]:
    """Return the same share for every island."""
    names = list(islands)
    return dict.fromkeys(names, 1 / len(names)) if names else {}


def advice(credits_: Credits, island: str, context: str) -> dict[str, float]:
    """Return by what an island should multiply its operators' chances in a situation.

    Operators that nothing is known of are left out: theirs stay as they are.
    """
    whole = credits_.credit((island, ALL), context)
    return {
        name: _bounded(credits_.credit((island, name), context) / whole)
        for name in credits_.operators(island)
    }


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / _MOST_ADVICE), _MOST_ADVICE)


def allocate(wanted: Mapping[str, float], so_far: int, n: int) -> dict[str, int]:
    """Divide ``n`` candidates among the awake islands.

    The slots are laid evenly over the cumulated shares, from an offset that moves with the
    number of candidates so far: over rounds of any size everybody gets its share, and no random
    number is drawn.

    Args:
        wanted: Each island's share.
        so_far: Candidates that islands have made, those in flight included.
        n: Slots to give.
    """
    if not wanted or n <= 0:
        return {}
    offset = (so_far * _GOLDEN) % 1.0
    names, ends = list(wanted), list(accumulate(wanted.values()))
    slots: Counter[str] = Counter()
    for slot in range(n):
        place = bisect(ends, (slot + offset) / n * ends[-1])
        slots[names[min(place, len(names) - 1)]] += 1
    return {name: slots[name] for name in names if slots[name]}
