"""Which workload the next round is for: the budget goes where the search still gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Half of all candidates are spread evenly over the workloads, so that none starves.
_EVEN_PART = 0.5
# Evaluations of a workload after which an earlier gain, or the first hope, counts half.
_HALF_LIFE = 60
# Log-gain that a workload is believed to hold before anything was tried on it.
_FIRST_HOPE = 0.05
# Candidates a workload that shares are held over: a few rounds, so that shares follow the need.
_MEMORY = 64

_DECAY = 0.5 ** (1 / _HALF_LIFE)


class Need:
    """How much one workload may still gain: its newest log-gains, fading as evaluations pass.

    Part of the campaign's state: it changes only with the log.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = _FIRST_HOPE

    def evaluated(self) -> None:
        """One more evaluation was made."""
        self.value *= _DECAY

    def gained(self, log_gain: float) -> None:
        """A new best was found, worth ``log_gain`` (natural log of the speed-up)."""
        self.value += log_gain


def workload_shares(needs: Mapping[str, float]) -> dict[str, float]:
    """Return each workload's share of the candidates; they sum to 1."""
    total = sum(needs.values())
    even = 1 / len(needs)
    if total <= 0.0:
        return dict.fromkeys(needs, even)
    return {key: _EVEN_PART * even + (1 - _EVEN_PART) * need / total for key, need in needs.items()}


def memory_of(workloads: int) -> int:
    """Return how many of the newest candidates a share is held over."""
    return _MEMORY * workloads


def next_workload(needs: Mapping[str, float], handed: Iterable[str]) -> str:
    """Return the workload that is farthest behind its share of the newest candidates.

    Args:
        needs: By workload, those that have anything left to try, in the problem's order.
        handed: The workload of each of the newest candidates, those in flight included.
    """
    counts = dict.fromkeys(needs, 0)
    for key in handed:
        if key in counts:
            counts[key] += 1
    total = sum(counts.values())
    shares = workload_shares(needs)
    # Rounded, so that the last bits of a sum decide nothing; of equals the first.
    return min(needs, key=lambda key: round(counts[key] - shares[key] * total, 9))
