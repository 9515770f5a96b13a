"""From an evaluation to a verdict: confirmation, traps, retractions and attributed wins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernelarc.bench import Session, rounds_needed
from kernelarc.engine._arena import Arena
from kernelarc.engine._attribution import Job, Trial, needed_changes, win
from kernelarc.engine._compare import (
    FAR,
    column_speedup,
    contest_speedup,
    exact_speedup,
)
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._pool import ConclusionPool
from kernelarc.engine._predicates import with_predicate
from kernelarc.engine._state import REMATCH, CampaignState
from kernelarc.engine._traps import ClosedRegion
from kernelarc.genomes import (
    Conclusion,
    ConclusionKind,
    Estimate,
    Evaluation,
    Genome,
    Judged,
    Status,
    Verdict,
)
from kernelarc.storage import ContestRecord, Entry

_SCREENING_ROUNDS, _SCREENING_WINS = 5, 4
# More rounds leave of an interval's half width what the root says, with a little hope.
_HOPE = 0.85
# Where finals are held, only a gain of more than this is tried at once.
_LEAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a claim must meet. From the settings.

    Attributes:
        margin: The interval's lower bound must exceed 1 + margin.
        confirm_rounds: Interleaved rounds at least.
        traps: Whether failures close regions.
    """

    margin: float
    confirm_rounds: int
    traps: bool


class Judge:
    """Deterministic code decides, from measurements alone, what is correct and faster."""

    def __init__(self, session: Session, state: CampaignState, rules: Rules) -> None:
        self._session = session
        self._state = state
        self._rules = rules

    def unit(self, evaluation: Evaluation) -> list[Entry]:
        """Return everything that an evaluation changes, to be committed together.

        Runs a confirmation on the device where the evaluation claims to be the new best.
        """
        arena = self._state.arenas[evaluation.candidate.workload]
        verdict, contest = self._verdict(arena, evaluation)
        crash_point("before-verdict")
        unit: list[Entry] = [] if contest is None else [contest]
        unit.append(Judged(evaluation=evaluation, verdict=verdict))
        return unit

    def _verdict(
        self, arena: Arena, evaluation: Evaluation
    ) -> tuple[Verdict, ContestRecord | None]:
        if evaluation.status is not Status.OK:
            untried = evaluation.status in {Status.REJECTED, Status.INTERRUPTED}
            return (Verdict.REJECT if untried else Verdict.FAIL), None
        incumbent = arena.ledger.incumbent
        if incumbent is None:
            return Verdict.ACCEPT, None
        judged = Judged(evaluation=evaluation, verdict=Verdict.ACCEPT)
        if self._session.deterministic:
            return self._by_value(exact_speedup(judged, incumbent)), None
        assert evaluation.measurement is not None
        claims = self._claims(arena, evaluation, incumbent)
        if evaluation.measurement.censored or not claims:
            return self._by_value(exact_speedup(judged, incumbent), claims=False), None
        return self._confirm(arena, judged, incumbent)

    def _claims(self, arena: Arena, evaluation: Evaluation, incumbent: Judged) -> bool:
        """Tell whether this is a claim; small gains wait for a final where there are any."""
        if evaluation.candidate.mutation == REMATCH:
            return fingerprint(incumbent) != evaluation.candidate.genome.fingerprint
        leap = _LEAP if self._session.finalists > 1 else 0.0
        assert evaluation.measurement is not None
        return evaluation.measurement.objective < arena.ledger.bar(incumbent) * (1 - leap)

    def _by_value(self, speedup: Estimate, *, claims: bool = True) -> Verdict:
        if claims and speedup.low > 1.0 + self._rules.margin:
            return Verdict.KEEP
        return Verdict.ACCEPT if speedup.high >= 1.0 - self._rules.margin else Verdict.REVERT

    def _confirm(
        self, arena: Arena, judged: Judged, incumbent: Judged
    ) -> tuple[Verdict, ContestRecord | None]:
        crash_point("before-confirm")
        found = None
        if self._promising(arena, judged, incumbent):
            found = self._contested(arena, judged, incumbent)
        crash_point("after-confirm")
        return found or (Verdict.ACCEPT, None)

    def _contested(
        self, arena: Arena, judged: Judged, incumbent: Judged
    ) -> tuple[Verdict, ContestRecord]:
        """Try a claim: in few rounds where the gain is large, in more where it is not.

        Level 0.01 / (k (k + 1)) for the k-th claim, divided among its contests: all claims of a
        campaign together stay below 0.01, so that even twenty campaigns on nothing end without
        a KEEP.
        """
        k = arena.ledger.tried + 1
        longer = self._rules.confirm_rounds * 3 ** np.arange(self._session.patience)
        claims = 5 * (1 + len(longer)) * k * (k + 1)
        least = rounds_needed(claims=claims)
        contenders = [judged.evaluation.candidate.genome, incumbent.evaluation.candidate.genome]
        tries = [least, *(max(int(rounds), least) for rounds in longer)]
        for rounds in tries:
            contest = self._session.contest(arena.workload, contenders, rounds=rounds)
            speedup = contest_speedup(contest, judged, incumbent, claims=claims)
            verdict = self._by_value(speedup) if speedup is not None else Verdict.REVERT
            within = speedup is not None and self._within_reach(speedup, tries[-1] / rounds)
            if verdict is Verdict.KEEP or not within:
                break
        return verdict, ContestRecord(
            purpose="confirm",
            workload=arena.key,
            subject=fingerprint(judged),
            against=fingerprint(incumbent),
            contest=contest,
            speedup=speedup,
            upheld=verdict is Verdict.KEEP,
        )

    def _within_reach(self, speedup: Estimate, longer: float) -> bool:
        """Tell whether as many times the rounds could lift the lower bound over the margin."""
        needed = speedup.value - (1.0 + self._rules.margin)
        left = _HOPE * longer**-0.5
        return needed > 0 and left * (speedup.value - speedup.low) < needed

    def _gains(self, speedup: Estimate) -> bool:
        return speedup.value > 1.0 + self._rules.margin

    def _promising(self, arena: Arena, judged: Judged, incumbent: Judged) -> bool:
        """Tell from a short contest whether a claim is worth a long one.

        Among equals every second candidate looks faster than the incumbent by chance. The short
        contest only ever drops claims, and none of its samples counts in the long one: it costs
        no confidence. One that fails here goes on, so that the long contest records it.
        """
        rematch = judged.evaluation.candidate.mutation == REMATCH
        if rematch or exact_speedup(judged, incumbent).value > FAR:
            return True
        genomes = [judged.evaluation.candidate.genome, incumbent.evaluation.candidate.genome]
        contest = self._session.contest(arena.workload, genomes, rounds=_SCREENING_ROUNDS)
        speedup = contest_speedup(contest, judged, incumbent, claims=1)
        if speedup is None:
            return True
        wins = sum(row[0] < row[1] for row in contest.samples)
        return self._gains(speedup) and wins >= _SCREENING_WINS

    def follow_up(self) -> list[Entry]:
        """Return the conclusions that the newest verdicts lead to: traps and their retractions.

        They belong into the same transaction as the verdicts.
        """
        findings, self._state.findings = self._state.findings, []
        if not self._rules.traps:
            return []
        drawn: list[Entry] = []
        for finding in findings:
            arena = self._state.arenas[finding.evaluation.candidate.workload]
            trap = self._trap(arena, finding.evaluation, finding.region)
            drawn.append(self._opened(trap, finding.evaluation) if finding.opened else trap)
        return drawn

    def _trap(self, arena: Arena, evaluation: Evaluation, closed: ClosedRegion) -> Conclusion:
        where = " with ".join(f"{name}={value}" for name, value in closed.region)
        return Conclusion(
            kind=ConclusionKind.TRAP,
            operator=arena.workload.operator,
            workload=arena.key,
            route=evaluation.candidate.genome.route,
            island=evaluation.candidate.island,
            why=f"{where}: {len(closed.evidence)} of {len(closed.evidence)} genomes tried there "
            f"failed ({closed.failure})",
            region=dict(closed.region),
            failure=closed.failure,
            evidence=closed.evidence,
        )

    def _opened(self, trap: Conclusion, evaluation: Evaluation) -> Conclusion:
        number = evaluation.candidate.number
        return retraction(
            trap,
            why=f"{trap.why.split(':')[0]}: candidate {number} passed there",
            evidence=(number,),
        )


def retraction(conclusion: Conclusion, *, why: str, evidence: tuple[int, ...]) -> Conclusion:
    """Return what takes a conclusion back."""
    return Conclusion(
        kind=ConclusionKind.RETRACTION,
        operator=conclusion.operator,
        workload=conclusion.workload,
        route=conclusion.route,
        island=conclusion.island,
        why=why,
        evidence=evidence,
        retracts=conclusion.fingerprint,
    )


class Attributor:
    """Draws wins from KEEPs whose reverts are all evaluated."""

    def __init__(self, session: Session, state: CampaignState, rules: Rules) -> None:
        self._session = session
        self._state = state
        self._rules = rules

    def units(self, *, final: bool = False) -> Iterator[list[Entry]]:
        """Yield one unit per win that can be drawn now; at the end, of all that wait."""
        waiting = {(c.workload, c.genome.fingerprint) for c in self._state.pending.values()}
        for arena in self._state.arenas.values():
            for job in list(arena.attribution.jobs):

                def seen(genome: Genome, arena: Arena = arena) -> bool:
                    key = genome.fingerprint
                    return arena.view.evaluated(key) and (arena.key, key) not in waiting

                done = all(map(seen, job.trials(arena.objectives).values()))
                if done or (final and job.teaches(seen)):
                    yield self._draw(arena, job)

    def _draw(self, arena: Arena, job: Job) -> list[Entry]:
        kept, record = self._gain_kept(arena, job)
        conclusion = win(job, needed_changes(job, kept), arena.workload.operator, arena.key)
        conclusion = with_predicate(conclusion, self._state.pool, self._state.arenas)
        return [conclusion] if record is None else [record, conclusion]

    def _gain_kept(self, arena: Arena, job: Job) -> tuple[dict[Trial, bool], ContestRecord | None]:
        """Say for each trial whether the child is as fast without those changes."""
        child = job.child.evaluation
        assert child.measurement is not None
        limit = child.measurement.objective * (1 + self._rules.margin)
        trials = job.trials(arena.objectives)
        times = {
            genes: arena.objectives[genome.fingerprint]
            for genes, genome in trials.items()
            if genome.fingerprint in arena.objectives
        }
        tried = {genes: time <= limit for genes, time in times.items()}
        near = {genes: trials[genes] for genes, time in times.items() if time < limit * FAR}
        if self._session.deterministic or not near:
            return tried, None
        kept, record = self._by_contest(arena, job, near)
        return {**tried, **kept}, record

    def _by_contest(
        self, arena: Arena, job: Job, trials: dict[Trial, Genome]
    ) -> tuple[dict[Trial, bool], ContestRecord]:
        child = job.child.evaluation.candidate.genome
        contest = self._session.contest(
            arena.workload, [child, *trials.values()], rounds=self._rules.confirm_rounds
        )
        kept = {}
        for genes, genome in trials.items():
            ratio = column_speedup(
                contest, genome.fingerprint, child.fingerprint, claims=len(trials)
            )
            kept[genes] = ratio is not None and ratio.high >= 1.0
        return kept, ContestRecord(
            purpose="attribute",
            workload=arena.key,
            subject=child.fingerprint,
            against=next(iter(trials.values())).fingerprint,
            contest=contest,
            speedup=job.speedup,
            upheld=not all(kept.values()),
        )


def wins_of(pool: ConclusionPool, genome: str) -> list[Conclusion]:
    """Return the wins in force whose genome this is."""
    return [
        c
        for c in pool.active(ConclusionKind.WIN)
        if c.genome is not None and c.genome.fingerprint == genome
    ]
