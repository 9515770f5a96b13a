"""The campaign's state: a pure fold over its log.

Everything that influences a decision (populations, incumbents, evidence, counters) changes only
in ``CampaignState.apply``, entry by entry in log order. A running campaign applies what it
appends; a resumed one applies what it reads. Both therefore stand at the same state, and resume
needs no snapshot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelarc.engine._arena import STORE, Arena
from kernelarc.engine._attribution import plan_job
from kernelarc.engine._compare import (
    FAR,
    contest_speedup,
    exact_speedup,
    unpaired_speedup,
)
from kernelarc.engine._counting import Counting
from kernelarc.engine._credits import Credits
from kernelarc.engine._pool import ConclusionPool
from kernelarc.engine._sharing import memory_of
from kernelarc.engine._traps import ClosedRegion
from kernelarc.genomes import (
    Candidate,
    Conclusion,
    Estimate,
    Evaluation,
    Judged,
    Status,
    Verdict,
)
from kernelarc.storage import ContestRecord, Counts, Entry, Event, Round

REMATCH = "final.rematch"
"""The mutation of a candidate that won a final and is evaluated again."""


@dataclass(slots=True)
class _OpenRound:
    outstanding: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A region that an evaluation closed, or opened again by passing inside."""

    evaluation: Evaluation
    region: ClosedRegion
    opened: bool


@dataclass(slots=True)
class CampaignState:
    """All that a campaign knows. See ``apply``.

    Attributes:
        arenas: By workload fingerprint, in the problem's order.
        pending: Candidates handed out and not yet judged, by number, in ask order.
        handed: Workload of each of the newest candidates, oldest first: who had their share.
        finished: Payload of the newest ``finished`` event, None while the campaign is open.
        budget_added: Evaluations that extensions added.
        elapsed_s: Wall seconds that earlier processes spent on this campaign.
        audited_at: What of the budget was spent at the newest complete audit.
        credits: What islands and operators have brought: what the controller decides by.
        findings: What the newest verdicts showed about regions; who runs the campaign draws the
            conclusions and empties the list.
    """

    arenas: Mapping[str, Arena]
    pool: ConclusionPool
    migrate: bool
    lag: int
    counting: Counting = field(default_factory=Counting)
    credits: Credits = field(default_factory=Credits)
    pending: dict[int, Candidate] = field(default_factory=dict)
    handed: deque[str] = field(default_factory=deque)
    next_number: int = 0
    next_round: int = 0
    finished: Mapping[str, object] | None = None
    budget_added: int = 0
    elapsed_s: float = 0.0
    audited_at: int = 0
    findings: list[Finding] = field(default_factory=list)
    _rounds: dict[int, _OpenRound] = field(default_factory=dict)
    _contest: ContestRecord | None = None
    _first_open: int = 0

    def __post_init__(self) -> None:
        """Bound what is remembered of who had their share."""
        self.handed = deque(self.handed, maxlen=memory_of(len(self.arenas)))

    @property
    def counts(self) -> Counts:
        """What was done so far, as the store would count it."""
        return self.counting.counts()

    def apply(self, entry: Entry) -> None:
        """Take in one entry of the log. The order of calls is the order of the log."""
        if isinstance(entry, Judged):
            self._judged(entry)
        elif isinstance(entry, Candidate):
            self._candidate(entry)
        elif isinstance(entry, Round):
            self._round(entry)
        elif isinstance(entry, ContestRecord):
            self._contested(entry)
        elif isinstance(entry, Conclusion):
            self._concluded(entry)
        else:
            self._event(entry)

    def _round(self, entry: Round) -> None:
        # Who asked this round had told the islands first: a log that is read does the same here,
        # so that no more of it waits than in the campaign that wrote it.
        self.tell_for(entry.number)
        self._rounds[entry.number] = _OpenRound()
        self.next_round = entry.number + 1
        self.counting.round(entry)

    def _candidate(self, candidate: Candidate) -> None:
        self.pending[candidate.number] = candidate
        self.handed.append(candidate.workload)
        self.next_number = candidate.number + 1
        self._rounds[candidate.round].outstanding += 1
        arena = self.arenas[candidate.workload]
        arena.view.reserve(candidate.genome.fingerprint)
        if candidate.mutation == "attribute.revert":
            arena.attribution.spent += 1
        elif candidate.mutation == REMATCH:
            arena.ledger.nominee = None

    def _judged(self, judged: Judged) -> None:
        evaluation = judged.evaluation
        candidate = evaluation.candidate
        arena = self.arenas[candidate.workload]
        del self.pending[candidate.number]
        self._rounds[candidate.round].outstanding -= 1
        passed = evaluation.status is Status.OK
        again = candidate.genome.fingerprint in arena.objectives
        if candidate.island != STORE and not again:
            self.counting.evaluation(evaluation.status)
        arena.judged(judged)
        measurement = evaluation.measurement
        self.credits.judged(
            candidate.workload,
            candidate.island,
            candidate.mutation,
            judged.verdict,
            measurement.objective if passed and measurement is not None else None,
        )
        if judged.verdict is Verdict.KEEP:
            self._kept(arena, judged)
        elif passed and not arena.ledger.claims:
            arena.ledger.claims.append(judged)
        self._contest = None
        self._evidence(arena, evaluation)

    def _evidence(self, arena: Arena, evaluation: Evaluation) -> None:
        genome, status = evaluation.candidate.genome, evaluation.status
        traps = arena.traps[genome.route]
        if status is Status.OK:
            regions = traps.passed(genome)
        else:
            number = evaluation.candidate.number
            regions = traps.failed(genome, status, evaluation.failure or "", number)
        for region in regions:
            self.findings.append(Finding(evaluation, region, opened=status is Status.OK))

    def _kept(self, arena: Arena, judged: Judged) -> None:
        before = arena.ledger.incumbent
        arena.ledger.claims.append(judged)
        if before is not None:
            gain = exact_speedup(judged, before).value
            arena.kept(judged.evaluation.candidate.island, math.log(max(gain, 1.0)))
        over = [
            (parent, speedup)
            for parent in (arena.parent_of(judged), before)
            if parent is not None and (speedup := self._over_parent(judged, parent)) is not None
        ]
        job = plan_job(judged, over, arena.space_of(judged.evaluation.candidate.genome))
        if job is not None:
            arena.attribution.push(job)

    def _over_parent(self, judged: Judged, parent: Judged) -> Estimate | None:
        """Return the gain over the parent; None where it is near and was not in the contest."""
        if self._contest is None:  # a deterministic device
            return exact_speedup(judged, parent)
        found = contest_speedup(self._contest.contest, judged, parent, claims=1)
        apart = unpaired_speedup(judged, parent)
        return found or (apart if apart.value > FAR else None)

    def _contested(self, record: ContestRecord) -> None:
        arena = self.arenas[record.workload]
        arena.ledger.apply(record, evaluated=arena.evaluated)
        self.counting.contest(record)
        self._contest = record if record.purpose == "confirm" else None

    def _concluded(self, conclusion: Conclusion) -> None:
        arena = self.arenas[conclusion.workload]
        if conclusion.genome is not None:
            arena.attribution.drop(conclusion.genome.fingerprint)
        if self.pool.admit(conclusion):
            for target in self.arenas.values():
                # A trap of one workload says nothing of another; a gain is worth trying there.
                if target is arena or conclusion.kind.value == "win":
                    target.concluded(conclusion, self.next_round - 1)

    def _event(self, event: Event) -> None:
        payload = event.payload
        if event.kind in {"finished", "interrupted", "stopped"}:
            self.elapsed_s += float(payload.get("process_seconds", 0.0))
            self.finished = payload if event.kind == "finished" else None
        elif event.kind == "extended":
            self.budget_added += int(payload.get("budget", 0))
            self.finished = None
        elif event.kind == "started" and "credit" in payload:
            self.credits.begin(payload["credit"])
        elif event.kind == "audited":
            self.audited_at = self.counting.spent

    def complete_through(self) -> int:
        """Return the newest round whose candidates, and those of all earlier ones, are judged."""
        while (opened := self._rounds.get(self._first_open)) and not opened.outstanding:
            del self._rounds[self._first_open]
            self._first_open += 1
        return self._first_open - 1

    def tell_for(self, round_number: int) -> None:
        """Bring the islands to where they stand when round ``round_number`` is asked."""
        for arena in self.arenas.values():
            arena.tell_until(round_number - 1 - self.lag, migrate=self.migrate)
