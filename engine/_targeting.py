"""Stopping at a wanted speed-up over the baseline."""

from __future__ import annotations

from kernelarc.bench import Session
from kernelarc.engine._compare import baseline_column, column_speedup
from kernelarc.engine._journal import Journal
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._state import CampaignState
from kernelarc.storage import ContestRecord

_ROUNDS = 20


class TargetSpeedup:
    """Tells whether every workload's best is confirmed to be as fast as wanted.

    Each new best is timed beside the baseline once. On a device without a baseline the answer is
    always no.
    """

    def __init__(
        self, session: Session, state: CampaignState, journal: Journal, wanted: float | None
    ) -> None:
        self._session = session
        self._state = state
        self._journal = journal
        self._wanted = wanted
        self._tried: dict[str, bool] = {}

    def __call__(self) -> bool:
        """Return whether the search has reached its target."""
        if self._wanted is None:
            return False
        return all(self._reached(key) for key in self._state.arenas)

    def _reached(self, key: str) -> bool:
        arena = self._state.arenas[key]
        best = arena.ledger.incumbent
        if best is None or self._session.baseline_name(arena.workload) is None:
            return False
        name = fingerprint(best)
        if name not in self._tried:
            self._tried[name] = self._try(key, name)
        return self._tried[name]

    def _try(self, key: str, name: str) -> bool:
        arena = self._state.arenas[key]
        best = arena.ledger.incumbent
        assert best is not None
        assert self._wanted is not None
        contest = self._session.contest(
            arena.workload, [best.evaluation.candidate.genome], rounds=_ROUNDS, baseline=True
        )
        baseline = baseline_column(contest)
        speedup = column_speedup(contest, name, baseline, claims=1) if baseline else None
        reached = speedup is not None and speedup.low >= self._wanted
        record = ContestRecord(
            purpose="target",
            workload=key,
            subject=name,
            against=baseline or "",
            contest=contest,
            speedup=speedup,
            upheld=reached,
        )
        self._journal.write([record])
        return reached
