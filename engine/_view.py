"""The evaluation log of one workload, as islands may see it: read-only and bounded."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Collection, Sequence

from kernelarc.genomes import Judged, Status

_RECENT = 512
_BEST = 512


def rank_key(judged: Judged) -> tuple[float, str]:
    """Order evaluations best first, ties by fingerprint, so that order never depends on timing."""
    evaluation = judged.evaluation
    assert evaluation.measurement is not None
    return (evaluation.measurement.objective, evaluation.candidate.genome.fingerprint)


class LogView:
    """One island's window on the evaluations of its workload (the ``View`` protocol)."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._tried: set[str] = set()
        self._recent: deque[Judged] = deque(maxlen=_RECENT)
        self._best: list[Judged] = []
        self._keys: list[tuple[float, str]] = []
        self._count = 0

    def reserve(self, fingerprint: str) -> None:
        """Note a genome as handed out or known, so that nobody proposes it again."""
        self._seen.add(fingerprint)

    def add(self, judged: Judged) -> None:
        """Add one evaluation, in ask order; what came back untried may be proposed again."""
        fingerprint = judged.evaluation.candidate.genome.fingerprint
        if judged.evaluation.status is Status.INTERRUPTED:
            if fingerprint not in self._tried:
                self._seen.discard(fingerprint)
            return
        self._seen.add(fingerprint)
        self._tried.add(fingerprint)
        self._recent.append(judged)
        self._count += 1
        if judged.evaluation.status is Status.OK:
            self._rank(judged)

    def _rank(self, judged: Judged) -> None:
        key = rank_key(judged)
        if len(self._keys) == _BEST and key >= self._keys[-1]:
            return
        place = bisect.bisect(self._keys, key)
        self._keys.insert(place, key)
        self._best.insert(place, judged)
        del self._keys[_BEST:], self._best[_BEST:]

    def evaluated(self, fingerprint: str) -> bool:
        """Tell whether a genome was evaluated, is in flight, or is known from the store."""
        return fingerprint in self._seen

    def recent(self, n: int) -> Sequence[Judged]:
        """Return the newest evaluations, oldest first, at most ``n`` (and at most 512)."""
        return list(self._recent)[-n:] if n > 0 else []

    def best(self, n: int) -> Sequence[Judged]:
        """Return the best OK evaluations, best first, at most ``n`` (and at most 512)."""
        return self._best[:n]

    def count(self) -> int:
        """Return how many evaluations there are in all."""
        return self._count

    def find(self, fingerprint: str) -> Judged | None:
        """Return a recent or good evaluation by genome; None when it left the window."""
        for judged in (*reversed(self._recent), *self._best):
            if judged.evaluation.candidate.genome.fingerprint == fingerprint:
                return judged
        return None


class OwnView(LogView):
    """The log closed: an island sees its own evaluations, and of others only that they are."""

    def __init__(self, shared: LogView) -> None:
        super().__init__()
        self._shared = shared

    def evaluated(self, fingerprint: str) -> bool:
        """Duplicates are recognised campaign-wide in either mode."""
        return self._shared.evaluated(fingerprint)

    def hear(self, judged: Judged) -> None:
        """Take in the evaluation that another island's conclusion rests on; once."""
        if judged.evaluation.candidate.genome.fingerprint not in self._seen:
            self.add(judged)


class DraftView:
    """A view in the middle of a round: what others proposed for it counts as in flight."""

    def __init__(self, view: LogView, taken: Collection[str]) -> None:
        self._view, self._taken = view, taken

    def evaluated(self, fingerprint: str) -> bool:
        """Tell whether a genome is known, or was proposed for this round already."""
        return fingerprint in self._taken or self._view.evaluated(fingerprint)

    def recent(self, n: int) -> Sequence[Judged]:
        """Return the newest evaluations."""
        return self._view.recent(n)

    def best(self, n: int) -> Sequence[Judged]:
        """Return the best OK evaluations."""
        return self._view.best(n)

    def count(self) -> int:
        """Return how many evaluations there are in all."""
        return self._view.count()
