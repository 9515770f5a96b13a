"""The auditor: standing claims re-measured in a fresh worker, the baseline beside them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernelarc.bench import Session
from kernelarc.engine._arena import Arena
from kernelarc.engine._compare import (
    baseline_column,
    column_speedup,
    joined_contest,
    visited_speedup,
)
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._judging import retraction, wins_of
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._state import CampaignState
from kernelarc.engine._succession import Succession, overstated
from kernelarc.genomes import Conclusion, Contest, Estimate, Judged
from kernelarc.storage import ContestRecord, Entry


def _unaudited(arena: Arena) -> bool:
    """Tell whether there is a best that no audit upheld."""
    best = arena.ledger.incumbent
    return best is not None and fingerprint(best) not in arena.ledger.audited


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an audit found about one claim.

    Attributes:
        claim: The claim that was tried.
        over_predecessor: Its speed-up over the claim before it; None for the start, or when one
            of them failed.
        over_baseline: Its speed-up over the baseline; None without one.
        upheld: Whether the claim stands.
    """

    claim: Judged
    over_predecessor: Estimate | None
    over_baseline: Estimate | None
    upheld: bool


class Auditor:
    """Tries the newest claims of every workload, in a session of its own."""

    def __init__(
        self,
        session: Session,
        state: CampaignState,
        *,
        top: int,
        rounds: int,
        again: Collection[str] = (),
    ) -> None:
        """Make an auditor.

        Args:
            session: A fresh one: no worker that searched is left in it.
            state: Read only.
            top: Claims to try per workload, the newest first; at least 1.
            rounds: Interleaved rounds.
            again: Workloads whose best is tried although an audit upheld it: beside others.
        """
        self._session = session
        self._state = state
        self._top = top
        self._rounds = rounds
        self._again = frozenset(again)
        self._succession = Succession(session=session, state=state, rivals=top, rounds=rounds)
        self._visited: set[str] = set()
        self.spent_s = {"first_visits_s": 0.0, "later_visits_s": 0.0}
        """Seconds of contests: a workload's first chooses its baseline and makes all ready."""

    def units(self) -> Iterator[list[Entry]]:
        """Yield one unit per workload: its records, and retractions of wins that fell.

        Where a start gives way to another genome, there are more: see ``Succession``.

        Where contests are cheap, each workload is visited several times with all others in
        between: what a claim is worth changes with the heat that came before.

        Goes on until each workload's best is upheld or no claim is left.
        """
        waiting = [arena for arena in self._state.arenas.values() if self._is_due(arena)]
        visits: dict[str, list[Contest]] = {arena.key: [] for arena in waiting}
        for _ in range(self._session.patience):
            for arena in waiting:
                visits[arena.key].append(self._contest(arena))
        for arena in waiting:
            contests = visits[arena.key]
            # Where all of the newest claims fall, the ones before them are tried.
            while contests:
                yield from self._audit(arena, contests)
                crash_point("between-audits")
                contests = [self._contest(arena)] if _unaudited(arena) else []

    def _is_due(self, arena: Arena) -> bool:
        has_best = arena.ledger.incumbent is not None
        return _unaudited(arena) or (has_best and arena.key in self._again)

    def _claims(self, arena: Arena) -> list[Judged]:
        """Return whom to try, and one more: it is only what the others are compared with."""
        return arena.ledger.standing()[-(self._top + 1) :]

    def _contest(self, arena: Arena) -> Contest:
        begun = time.monotonic()
        found = self._session.contest(
            arena.workload,
            [claim.evaluation.candidate.genome for claim in self._claims(arena)],
            rounds=1 if self._session.deterministic else self._rounds,
            baseline=self._session.baseline_name(arena.workload) is not None,
        )
        which = "later_visits_s" if arena.key in self._visited else "first_visits_s"
        self._visited.add(arena.key)
        self.spent_s[which] += time.monotonic() - begun
        return found

    def _audit(self, arena: Arena, visits: list[Contest]) -> Iterator[list[Entry]]:
        claims = self._claims(arena)
        started = len(claims) == len(arena.ledger.standing())
        contest = joined_contest(visits)
        findings = self._findings(claims, visits, contest, started=started)
        upheld = [finding.claim for finding in findings if finding.upheld]
        doubtful = started and upheld == claims[:1] and overstated(arena, claims[0], contest)
        if doubtful and not self._session.deterministic:
            if findings[1:]:
                yield self._records(arena, contest, findings[1:])
            yield from self._succession.units(arena, claims[0])
            if not _unaudited(arena):
                return
            findings = findings[:1]
        yield self._records(arena, contest, findings)

    def _findings(
        self, claims: list[Judged], visits: list[Contest], contest: Contest, *, started: bool
    ) -> list[Finding]:
        findings: list[Finding] = []
        predecessor = claims[0]
        if started or fingerprint(predecessor) in contest.failures:
            findings.append(self._finding(visits, contest, predecessor, None))
        for claim in claims[1:]:
            finding = self._finding(visits, contest, claim, predecessor)
            findings.append(finding)
            if finding.upheld:
                predecessor = claim
        return findings

    def _finding(
        self, visits: list[Contest], contest: Contest, claim: Judged, before: Judged | None
    ) -> Finding:
        name = fingerprint(claim)
        baseline = baseline_column(contest)
        over_baseline = visited_speedup(visits, name, baseline) if baseline else None
        gain = column_speedup(contest, name, fingerprint(before), claims=1) if before else None
        alive = name not in contest.failures
        compared = before is not None and fingerprint(before) not in contest.failures
        upheld = alive and (not compared or (gain is not None and gain.low > 1.0))
        return Finding(
            claim=claim, over_predecessor=gain, over_baseline=over_baseline, upheld=upheld
        )

    def _records(self, arena: Arena, contest: Contest, findings: list[Finding]) -> list[Entry]:
        baseline = baseline_column(contest) or ""
        unit: list[Entry] = []
        for finding in findings:
            name = fingerprint(finding.claim)
            unit.append(
                ContestRecord(
                    purpose="audit",
                    workload=arena.key,
                    subject=name,
                    against=baseline,
                    contest=contest,
                    speedup=finding.over_baseline,
                    upheld=finding.upheld,
                )
            )
            if not finding.upheld:
                unit.extend(self._fallen(finding, contest))
        return unit

    def _fallen(self, finding: Finding, contest: Contest) -> Iterator[Conclusion]:
        name = fingerprint(finding.claim)
        gain = finding.over_predecessor
        if name in contest.failures:
            why = f"in a fresh process it failed: {contest.failures[name]}"
        elif gain is not None:
            why = f"in a fresh process it was {gain.value:.4f} [{gain.low:.4f}, {gain.high:.4f}] x"
        else:
            why = "in a fresh process it could not be compared"
        for conclusion in wins_of(self._state.pool, name):
            yield retraction(
                conclusion,
                why=f"{why} the genome before it",
                evidence=(finding.claim.evaluation.candidate.number,),
            )
