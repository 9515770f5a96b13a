"""The search loop: rounds out, evaluations in, verdicts in ask order, until a reason to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelarc.bench import Session
from kernelarc.engine._asking import Asker
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._effects import without_effect
from kernelarc.engine._finals import Finals
from kernelarc.engine._journal import Journal
from kernelarc.engine._judging import Attributor, Judge
from kernelarc.engine._signals import StopRequest
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Candidate, Evaluation

# A final's winner may leave room for another, once: the best beside it were in the same one.
_CLOSING_FINALS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop searching.

    Attributes:
        budget: Unique evaluations in all, extensions included; None is unlimited.
        seconds: Wall seconds in all; None is unlimited.
        audit_every: Unique evaluations between audits; None audits at the end only.
        window: Candidates of one round.
    """

    budget: int | None
    seconds: float | None
    audit_every: int | None
    window: int


class Pipeline:
    """Drives one session. Holds no state that matters: the fold does."""

    def __init__(
        self,
        *,
        session: Session,
        state: CampaignState,
        journal: Journal,
        asker: Asker,
        judge: Judge,
        attributor: Attributor,
        finals: Finals,
        limits: Limits,
        stop: StopRequest,
        on_round: Callable[[], None],
        target_reached: Callable[[], bool],
        elapsed_s: Callable[[], float],
    ) -> None:
        self._session = session
        self._state = state
        self._journal = journal
        self._asker = asker
        self._judge = judge
        self._attributor = attributor
        self._finals = finals
        self._limits = limits
        self._stop = stop
        self._on_round = on_round
        self._target_reached = target_reached
        self._elapsed_s = elapsed_s
        self._ready: dict[int, Evaluation] = {}
        self._exhausted = False

    def run(self) -> str:
        """Search until a reason to stop; return it.

        Returns:
            ``"budget"``, ``"seconds"``, ``"plateau"``, ``"exhausted"``, ``"target"``,
            ``"signal"``, or ``"audit"`` when an audit is due and the search goes on after it.
        """
        if self._state.pending:
            self._submit(list(self._state.pending.values()))
        while True:
            self._open_rounds()
            if not self._state.pending:
                self._journal.commit()
                return self._reason() or "exhausted"
            if (reason := self._collect()) is not None:
                self._journal.commit()
                return reason

    def close(self) -> None:
        """Judge what is in flight, and hold the last finals: the search itself is over.

        Where the time is up, what nobody has begun with is given up.
        """
        if self._session.finalists < 2:
            return
        if self._urgent() == "seconds":
            self._session.withdraw()
        self._drain()
        for _ in range(_CLOSING_FINALS):
            for unit in self._finals.units(closing=True):
                self._journal.write(unit)
            while (drawn := self._asker.rematch()) is not None:
                opened, candidates = drawn
                self._journal.write([opened, *candidates])
                self._journal.commit()
                self._submit(candidates)
            if not self._state.pending:
                break
            self._drain()
        self._journal.commit()

    def _drain(self) -> None:
        self._settle_next()  # what came out of order before the search was over
        for evaluation in self._session.collect():
            self._ready[evaluation.candidate.number] = evaluation
            self._settle_next()

    def _settle_next(self) -> None:
        while self._state.pending and (number := next(iter(self._state.pending))) in self._ready:
            self._settle(self._ready.pop(number))

    def _collect(self) -> str | None:
        """Judge what comes in, in ask order; return a reason to stop at once, or None."""
        for evaluation in self._session.collect():
            crash_point("after-evaluation")
            self._ready[evaluation.candidate.number] = evaluation
            while self._state.pending and (n := next(iter(self._state.pending))) in self._ready:
                self._settle(self._ready.pop(n))
                if (reason := self._urgent()) is not None:
                    return reason
            if self._session.lag:
                self._open_rounds()
        return None

    def _settle(self, evaluation: Evaluation) -> None:
        self._journal.write(self._judge.unit(evaluation), follow_up=self._judge.follow_up)
        crash_point("after-verdict")

    def _urgent(self) -> str | None:
        if self._stop.name is not None:
            return "signal"
        limit = self._limits.seconds
        if limit is not None and self._elapsed_s() >= limit:
            return "seconds"
        return None

    def _remaining(self) -> int:
        if self._limits.budget is None:
            return self._limits.window
        allowed = self._limits.budget + self._state.budget_added
        return allowed - self._state.counting.spent - len(self._state.pending)

    def _reason(self) -> str | None:
        """Return why no further round is to be opened, or None."""
        tests: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("target", self._target_reached),
            ("budget", lambda: self._remaining() <= 0),
            ("exhausted", lambda: self._exhausted),
            ("plateau", self._without_effect),
            ("audit", self._audit_due),
        )
        return self._urgent() or next((reason for reason, holds in tests if holds()), None)

    def _without_effect(self) -> bool:
        deterministic = self._session.deterministic
        arenas = self._state.arenas.values()
        return all(without_effect(arena, deterministic=deterministic) for arena in arenas)

    def _audit_due(self) -> bool:
        every = self._limits.audit_every
        return every is not None and self._state.counting.spent - self._state.audited_at >= every

    def _open_rounds(self) -> None:
        """Open every round that may be open now: the lag says how far asking runs ahead."""
        state = self._state
        while state.complete_through() >= state.next_round - 1 - self._session.lag:
            for unit in (*self._attributor.units(), *self._finals.units()):
                self._journal.write(unit)
            if self._reason() is not None or not self._open_round():
                return

    def _open_round(self) -> bool:
        crash_point("before-tell")
        self._state.tell_for(self._state.next_round)
        crash_point("after-tell")
        self._on_round()
        crash_point("before-ask")
        drawn = self._asker.next_round(min(self._limits.window, self._remaining()))
        if drawn is None:
            self._exhausted = True
            return False
        crash_point("after-ask")
        opened, candidates = drawn
        self._journal.write([opened, *candidates])
        if not self._session.deterministic:
            self._journal.commit()
        self._submit(candidates)
        return True

    def _submit(self, candidates: list[Candidate]) -> None:
        crash_point("before-submit")
        limit = {
            key: incumbent.evaluation.measurement.objective
            for key, arena in self._state.arenas.items()
            if (incumbent := arena.ledger.incumbent) is not None
            and incumbent.evaluation.measurement is not None
        }
        self._session.submit(candidates, limit=limit)
        crash_point("after-submit")
