"""The conclusions in force: retained by gain, taken back by retractions."""

from __future__ import annotations

from kernelarc.genomes import Conclusion, ConclusionKind


def _gain(conclusion: Conclusion) -> tuple[float, str]:
    size = conclusion.speedup.value if conclusion.speedup else float(len(conclusion.evidence))
    return (size, conclusion.fingerprint)


class ConclusionPool:
    """Wins and traps of one campaign, at most ``retention`` of each kind (None: unbounded).

    Migration hands out what the pool admits: a conclusion that is not among the retained ones
    when it is made reaches no island.
    """

    def __init__(self, retention: int | None) -> None:
        self._retention = retention
        self._active: dict[str, Conclusion] = {}

    def admit(self, conclusion: Conclusion) -> bool:
        """Take a conclusion in; tell whether islands are to receive it."""
        if conclusion.kind is ConclusionKind.RETRACTION:
            return self._active.pop(conclusion.retracts or "", None) is not None
        if conclusion.fingerprint in self._active:
            return False
        self._active[conclusion.fingerprint] = conclusion
        return self._retain(conclusion)

    def _retain(self, newest: Conclusion) -> bool:
        same = [c for c in self._active.values() if c.kind is newest.kind]
        if self._retention is None or len(same) <= self._retention:
            return True
        least = min(same, key=_gain)
        del self._active[least.fingerprint]
        return least is not newest

    def active(self, kind: ConclusionKind) -> list[Conclusion]:
        """Return the retained conclusions of a kind, oldest first."""
        return [c for c in self._active.values() if c.kind is kind]
