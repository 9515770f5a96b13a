"""The auditor: standing claims re-measured in a fresh worker, the baseline beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelarc.bench import Session
from kernelarc.engine._arena import Arena
from kernelarc.engine._compare import baseline_column, column_speedup
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._judging import retraction, wins_of
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Conclusion, Contest, Estimate, Judged
from kernelarc.storage import ContestRecord, Entry


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

    def __init__(self, session: Session, state: CampaignState, *, top: int, rounds: int) -> None:
        """Make an auditor.

        Args:
            session: A fresh one: no worker that searched is left in it.
            state: Read only.
            top: Claims to try per workload, the newest first; at least 1.
            rounds: Interleaved rounds.
        """
        self._session = session
        self._state = state
        self._top = top
        self._rounds = rounds

    def units(self) -> Iterator[list[Entry]]:
        """Yield one unit per contest: its records, and retractions of wins that fell.

        Goes on until each workload's best is upheld or no claim is left.
        """
        for arena in self._state.arenas.values():
            # Where all of the newest claims fall, the ones before them are tried.
            while (incumbent := arena.ledger.incumbent) is not None:
                if fingerprint(incumbent) in arena.ledger.audited:
                    break
                yield self._audit(arena)
                crash_point("between-audits")

    def _audit(self, arena: Arena) -> list[Entry]:
        # One more than is tried: the last of them is only what the others are compared with.
        standing = arena.ledger.standing()
        claims = standing[-(self._top + 1) :]
        contest = self._session.contest(
            arena.workload,
            [c.evaluation.candidate.genome for c in claims],
            rounds=1 if self._session.deterministic else self._rounds,
            baseline=self._session.baseline_name(arena.workload) is not None,
        )
        findings = self._findings(claims, contest, started=len(claims) == len(standing))
        return self._records(arena, contest, findings)

    def _findings(self, claims: list[Judged], contest: Contest, *, started: bool) -> list[Finding]:
        findings: list[Finding] = []
        predecessor = claims[0]
        if started or fingerprint(predecessor) in contest.failures:
            findings.append(self._finding(contest, predecessor, None))
        for claim in claims[1:]:
            finding = self._finding(contest, claim, predecessor)
            findings.append(finding)
            if finding.upheld:
                predecessor = claim
        return findings

    def _finding(self, contest: Contest, claim: Judged, before: Judged | None) -> Finding:
        name = fingerprint(claim)
        baseline = baseline_column(contest)
        over_baseline = column_speedup(contest, name, baseline, claims=1) if baseline else None
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
