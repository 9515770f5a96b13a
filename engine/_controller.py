"""Who may propose how much: candidates go where earlier ones brought gains."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from kernelarc.engine._arena import Tally

# Half of all candidates are spread evenly, so that no island starves and credit can return.
_EVEN_PART = 0.5
# An island's gain counts as if it had made this many average candidates beforehand.
_PRIOR_CANDIDATES = 10
# Multiples of the golden ratio's fraction fill [0, 1) evenly, however many are taken.
_GOLDEN = 0.6180339887498949
# Log-gains in all below which there is nothing to learn from.
_LEAST_GAIN = 1e-9


def shares(tallies: Mapping[str, Tally]) -> dict[str, float]:
    """Return each awake island's share of the proposals; they sum to 1.

    The learned part follows the log-gain of an island's KEEPs per candidate, shrunk towards the
    average of all islands.
    """
    if not tallies:
        return {}
    even = 1 / len(tallies)
    gain = sum(t.gain for t in tallies.values())
    judged = sum(t.judged for t in tallies.values())
    if judged == 0 or gain < _LEAST_GAIN:
        return dict.fromkeys(tallies, even)
    mean = gain / judged
    scores = {
        name: (t.gain + _PRIOR_CANDIDATES * mean) / (t.judged + _PRIOR_CANDIDATES)
        for name, t in tallies.items()
    }
    total = sum(scores.values())
    return {
        name: _EVEN_PART * even + (1 - _EVEN_PART) * score / total for name, score in scores.items()
    }


def allocate(
    tallies: Mapping[str, Tally], waiting: Mapping[str, int], n: int, *, learned: bool = True
) -> dict[str, int]:
    """Divide ``n`` candidates among the awake islands.

    The slots are laid evenly over the cumulated shares, from an offset that moves with the
    number of candidates so far: over rounds of any size everybody gets its share, and no random
    number is drawn.

    Args:
        tallies: Outcomes so far.
        waiting: Candidates in flight by island.
        n: Slots to give.
        learned: Whether outcomes count; if not, all get the same.
    """
    wanted = shares(tallies if learned else {name: Tally() for name in tallies})
    if not wanted or n <= 0:
        return {}
    so_far = sum(t.judged for t in tallies.values()) + sum(waiting.values())
    offset = (so_far * _GOLDEN) % 1.0
    names, ends = list(wanted), list(accumulate(wanted.values()))
    slots: Counter[str] = Counter()
    for slot in range(n):
        place = bisect(ends, (slot + offset) / n * ends[-1])
        slots[names[min(place, len(names) - 1)]] += 1
    return {name: slots[name] for name in names if slots[name]}
