"""Who may propose how much: candidates go where earlier ones brought gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kernelarc.engine._arena import Tally

# Half of all candidates are spread evenly, so that no island starves and credit can return.
_EVEN_PART = 0.5
# An island's gain counts as if it had made this many average candidates beforehand.
_PRIOR_CANDIDATES = 10


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
    if gain <= 0:
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


def allocate(tallies: Mapping[str, Tally], waiting: Mapping[str, int], n: int) -> dict[str, int]:
    """Divide ``n`` candidates among the awake islands.

    Each slot goes to the island that is furthest behind its share; ties go by name order. No
    random number is drawn.

    Args:
        tallies: Outcomes so far.
        waiting: Candidates in flight by island.
        n: Slots to give.
    """
    wanted = shares(tallies)
    given = {name: t.judged + waiting.get(name, 0) for name, t in tallies.items()}
    total = sum(given.values())
    slots: Counter[str] = Counter()
    for _ in range(n if wanted else 0):
        total += 1
        name = max(wanted, key=lambda k: wanted[k] * total - given[k])
        given[name] += 1
        slots[name] += 1
    return {name: slots[name] for name in tallies if slots[name]}
