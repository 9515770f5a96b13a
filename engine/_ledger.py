"""The claims of one workload: which genome was best when, and what audits said of it.

The best is a query over this ledger, outside every population: nothing an island forgets can
lose it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from kernelarc.genomes import Estimate, Judged
from kernelarc.storage import ContestRecord


def fingerprint(judged: Judged) -> str:
    """Return the fingerprint of the genome that was judged."""
    return judged.evaluation.candidate.genome.fingerprint


@dataclass(slots=True)
class Ledger:
    """Start and KEEPs of one workload in order, refutations and audits by genome.

    Attributes:
        claims: The starting genome, then every KEEP.
        tried: How many claims were ever tried, the refused ones included: confirmations are
            corrected for it.
        refuted: Genomes whose claim an audit did not uphold, or that failed there.
        bars: By genome, the least median that any contest gave it: what a challenger must look
            faster than. A genome that was first timed in a slow moment would otherwise be
            challenged by everything that comes near it.
        final_at: Evaluations of the workload when the newest final was held.
        beaten: Genomes that took part in one: they need not come again.
        nominee: Who won the newest final, until it is evaluated again.
        audited: Speed-up over the baseline (None without one) of genomes that an audit upheld.
    """

    claims: list[Judged] = field(default_factory=list)
    tried: int = 0
    refuted: set[str] = field(default_factory=set)
    audited: dict[str, Estimate | None] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    final_at: int = 0
    beaten: set[str] = field(default_factory=set)
    nominee: str | None = None

    def standing(self) -> list[Judged]:
        """Return the claims that no audit refuted, oldest first."""
        return [claim for claim in self.claims if fingerprint(claim) not in self.refuted]

    @property
    def incumbent(self) -> Judged | None:
        """The best that stands: the newest claim not refuted."""
        for claim in reversed(self.claims):
            if fingerprint(claim) not in self.refuted:
                return claim
        return None

    @property
    def keeps(self) -> int:
        """How many claims beat an earlier one and still stand (the start is none)."""
        return sum(1 for claim in self.standing() if claim is not self.claims[0])

    def apply(self, record: ContestRecord, *, evaluated: int = 0) -> None:
        """Take note of a contest: confirmations count as tries, audits uphold or refute.

        Args:
            record: Of this workload.
            evaluated: Evaluations of the workload until then.
        """
        if record.purpose == "confirm":
            self.tried += 1
            self._lower_bar(record)
        elif record.purpose in {"heat", "final"}:
            self.final_at = evaluated
            self.beaten.update(record.contest.names)
            self._lower_bar(record)
            if record.purpose == "final" and record.upheld:
                self.nominee = record.subject
        elif record.purpose == "audit":
            self._audit(record)

    def _lower_bar(self, record: ContestRecord) -> None:
        name = record.against
        if name in record.contest.names and name not in record.contest.failures:
            found = median(record.contest.column(name))
            self.bars[name] = min(found, self.bars.get(name, found))

    def bar(self, claim: Judged) -> float:
        """Return the objective below which a candidate claims to be faster than this one."""
        assert claim.evaluation.measurement is not None
        objective = claim.evaluation.measurement.objective
        return min(objective, self.bars.get(fingerprint(claim), objective))

    def _audit(self, record: ContestRecord) -> None:
        if record.upheld:
            self.audited[record.subject] = (
                record.speedup if record.against.startswith("baseline:") else None
            )
        else:
            self.refuted.add(record.subject)
            self.audited.pop(record.subject, None)
