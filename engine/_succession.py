"""Who takes a starting genome's place when an audit does not find its time again.

A start has no predecessor that it could be compared with. If its time holds only in the process
that searched, nothing that is honest ever looked faster. So the genomes that were measured next
are timed beside it in the fresh process: one that is surely faster there takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from kernelarc.bench import Session, rounds_needed
from kernelarc.engine._arena import Arena
from kernelarc.engine._compare import (
    FAR,
    baseline_column,
    column_speedup,
    joined_contest,
    visited_speedup,
)
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Candidate, Contest, Evaluation, Judged, Status, Verdict
from kernelarc.storage import ContestRecord, Entry, Round

_CONTESTS = 3
_SUCCESSOR = "audit.successor"


def overstated(arena: Arena, claim: Judged, contest: Contest) -> bool:
    """Tell whether a claim is much slower in an audit's contest than it ever was before."""
    found = median(contest.column(fingerprint(claim)))
    return found > FAR * arena.ledger.bar(claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """Tries the genomes that were measured next against a start whose time is in doubt.

    Where they turn out overstated as well, those after them are tried, three times in all. A
    machine that is slower now than it was slows all alike: it costs contests and refutes nobody.

    Attributes:
        session: The audit's own.
        state: Read only.
        rivals: Genomes to try at once.
        rounds: Interleaved rounds.
    """

    session: Session
    state: CampaignState
    rivals: int
    rounds: int

    def units(self, arena: Arena, start: Judged) -> Iterator[list[Entry]]:
        """Yield units that hand out the successor, refute the start and uphold the successor.

        Nothing where the start stands. What succeeds is evaluated here once more: in the search
        it was perhaps stopped early, as clearly slower than the start.
        """
        won = self._won(arena, start)
        if won is None:
            return
        visits, successor = won
        before = successor.evaluation.candidate
        candidate = Candidate(
            number=self.state.next_number,
            round=self.state.next_round,
            workload=arena.key,
            island=before.island,
            mutation=_SUCCESSOR,
            genome=before.genome,
        )
        yield [Round(number=candidate.round, counts={}), candidate]
        evaluation = self._evaluated(candidate)
        if evaluation.status is not Status.OK:
            yield [Judged(evaluation=evaluation, verdict=Verdict.FAIL)]
            return
        yield [
            _record(arena, visits, start, upheld=False),
            Judged(evaluation=evaluation, verdict=Verdict.KEEP),
            _record(arena, visits, successor, upheld=True),
        ]

    def _evaluated(self, candidate: Candidate) -> Evaluation:
        self.session.submit([candidate], limit={})
        (evaluation,) = self.session.collect()
        return evaluation

    def _won(self, arena: Arena, start: Judged) -> tuple[list[Contest], Judged] | None:
        ranked = self._ranked(arena)
        claims = self.rivals * _CONTESTS
        for first in range(0, claims, self.rivals):
            tried = ranked[first : first + self.rivals]
            if not tried:
                break
            visits = self._visits(
                arena, [start, *tried], max(self.rounds, rounds_needed(0.95, claims))
            )
            contest = joined_contest(visits)
            found = _fastest(contest, start, tried, claims=claims)
            if found is not None:
                return visits, found
            if not all(overstated(arena, judged, contest) for judged in tried):
                break
        return None

    def _ranked(self, arena: Arena) -> list[Judged]:
        """Return the best measured genomes that are no claims, the best first, each once."""
        out = set(map(fingerprint, arena.ledger.claims)) | arena.ledger.refuted
        found: dict[str, Judged] = {}
        for judged in arena.view.best(arena.view.count()):
            if fingerprint(judged) not in out:
                found.setdefault(fingerprint(judged), judged)
        return list(found.values())

    def _visits(self, arena: Arena, claims: Sequence[Judged], rounds: int) -> list[Contest]:
        genomes = [claim.evaluation.candidate.genome for claim in claims]
        baseline = self.session.baseline_name(arena.workload) is not None
        return [
            self.session.contest(arena.workload, genomes, rounds=rounds, baseline=baseline)
            for _ in range(self.session.patience)
        ]


def _fastest(
    contest: Contest, start: Judged, tried: Sequence[Judged], *, claims: int
) -> Judged | None:
    """Return the fastest of those that are surely faster than the start."""
    found = {}
    for judged in tried:
        gain = column_speedup(contest, fingerprint(judged), fingerprint(start), claims=claims)
        if gain is not None and gain.low > 1.0:
            found[gain.value] = judged
    return found[max(found)] if found else None


def _record(
    arena: Arena, visits: Sequence[Contest], subject: Judged, *, upheld: bool
) -> ContestRecord:
    contest, name = joined_contest(visits), fingerprint(subject)
    baseline = baseline_column(contest)
    return ContestRecord(
        purpose="audit",
        workload=arena.key,
        subject=name,
        against=baseline or "",
        contest=contest,
        speedup=visited_speedup(visits, name, baseline) if baseline else None,
        upheld=upheld,
    )
