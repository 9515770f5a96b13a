"""One call of ``append``: entries become rows, and keys are checked, before anything is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelarc.genomes import Candidate, Conclusion, Genome, InputError, Judged
from kernelarc.storage._codec import Values, candidate_row, contest_row, evaluation_row
from kernelarc.storage._contract import ContestRecord, Entry, Event, Round
from kernelarc.storage._texts import conclusion_text, dump


@dataclass(slots=True)
class Tail:
    """Where a campaign's log ends: what the writer needs to go on without looking.

    Attributes:
        workloads: Internal id by fingerprint, the campaign's own only.
        candidate: Highest candidate number; -1 when there is none. ``round`` likewise.
        open: Candidates without an outcome, by number, with their internal id.
    """

    campaign: int
    position: int
    environment: int
    workloads: dict[str, int]
    candidate: int = -1
    round: int = -1
    open: dict[int, tuple[int, Candidate]] = field(default_factory=dict)


class Stored(ABC):
    """Looks up what is stored under a key already. Asked only when a number is not a new one."""

    @abstractmethod
    def round(self, number: int) -> Round | None:
        """Return the round of this number."""

    @abstractmethod
    def candidate(self, number: int) -> Candidate | None:
        """Return the candidate of this number."""

    @abstractmethod
    def judged(self, number: int) -> Judged | None:
        """Return the outcome of the candidate of this number."""


class Group:
    """Rows of one transaction, by table name.

    Attributes:
        rows: What to insert. Genome ids are still missing in the rows of candidates.
        genomes: By fingerprint, the genomes that these rows need.

    Args:
        keys: Internal ids for candidates, at least as many as there are among the entries.
    """

    def __init__(
        self, tail: Tail, stored: Stored, keys: Iterable[int], allow_repeats: bool
    ) -> None:
        self.rows: dict[str, list[Values]] = {}
        self.genomes: dict[str, Genome] = {}
        self._tail = tail
        self._stored = stored
        self._keys = iter(keys)
        self._allow_repeats = allow_repeats
        self._position = tail.position
        self._candidate = tail.candidate
        self._round = tail.round
        self._rounds: dict[int, Round] = {}
        self._asked: dict[int, tuple[int, Candidate]] = {}
        self._told: dict[int, Judged] = {}

    def add(self, entries: Sequence[Entry]) -> None:
        """Turn entries into rows.

        Raises:
            InputError: A key exists, a candidate or workload is missing.
        """
        for entry in entries:
            _ADD[type(entry)](self, entry)

    def committed(self) -> None:
        """Move the campaign's tail: call it once the transaction is committed."""
        tail = self._tail
        tail.position = self._position
        tail.candidate = self._candidate
        tail.round = self._round
        tail.open.update(self._asked)
        for number in self._told:
            tail.open.pop(number, None)

    def _put(self, table: str, values: Values) -> None:
        self._position += 1
        values["campaign_id"] = self._tail.campaign
        values["position"] = self._position
        self.rows.setdefault(table, []).append(values)

    def _repeats(self, what: str, entry: object, found: object | None) -> bool:
        """Tell whether to skip an entry whose key was ``found`` with this content."""
        if found is None:
            return False
        if self._allow_repeats and found == entry:
            return True
        how = "with the same content" if found == entry else "with other content"
        raise InputError(f"campaign {self._tail.campaign}: {what} is stored already, {how}")

    def _add_round(self, entry: Round) -> None:
        number = entry.number
        if number <= self._round:
            found = self._rounds.get(number) or self._stored.round(number)
            if self._repeats(f"round {number}", entry, found):
                return
        self._round = max(self._round, number)
        self._rounds[number] = entry
        self._put("round", {"number": number, "counts": dump(dict(entry.counts))})

    def _add_candidate(self, entry: Candidate) -> None:
        number = entry.number
        if number <= self._candidate:
            here = self._asked.get(number)
            found = here[1] if here is not None else self._stored.candidate(number)
            if self._repeats(f"candidate {number}", entry, found):
                return
        self._candidate = max(self._candidate, number)
        key = next(self._keys)
        self._asked[number] = (key, entry)
        values = candidate_row(entry)
        values["id"] = key
        values["workload_id"] = self._workload(entry.workload)
        values["genome_id"] = entry.genome.fingerprint
        self.genomes[entry.genome.fingerprint] = entry.genome
        self._put("candidate", values)

    def _workload(self, fingerprint: str) -> int:
        try:
            return self._tail.workloads[fingerprint]
        except KeyError:
            raise InputError(
                f"campaign {self._tail.campaign}: workload {fingerprint!r} is none of its "
                f"problem's ({', '.join(self._tail.workloads)})"
            ) from None

    def _add_judged(self, entry: Judged) -> None:
        candidate = entry.evaluation.candidate
        number = candidate.number
        waiting = self._asked.get(number) or self._tail.open.get(number)
        if waiting is None or number in self._told:
            found = self._told.get(number) or self._stored.judged(number)
            if self._repeats(f"the evaluation of candidate {number}", entry, found):
                return
        if waiting is None:
            raise InputError(
                f"campaign {self._tail.campaign}: candidate {number} was never asked, so it "
                f"cannot have an evaluation"
            )
        key, asked = waiting
        if asked is not candidate and asked != candidate:
            raise InputError(
                f"campaign {self._tail.campaign}: the evaluation of candidate {number} is of "
                f"another candidate than the one asked under that number"
            )
        self._told[number] = entry
        values = evaluation_row(entry)
        values["candidate_id"] = key
        values["environment_id"] = self._tail.environment
        self._put("evaluation", values)

    def _add_contest(self, entry: ContestRecord) -> None:
        values = contest_row(entry)
        values["environment_id"] = self._tail.environment
        self._put("contest", values)

    def _add_conclusion(self, entry: Conclusion) -> None:
        values = {
            "operator": entry.operator,
            "fingerprint": entry.fingerprint,
            "text": conclusion_text(entry),
        }
        self._put("conclusion", values)

    def _add_event(self, entry: Event) -> None:
        payload = dump(dict(entry.payload))
        self._put("event", {"kind": entry.kind, "unix_s": entry.unix_s, "payload": payload})


_ADD: dict[type, Callable[[Group, Any], None]] = {
    Round: Group._add_round,
    Candidate: Group._add_candidate,
    Judged: Group._add_judged,
    ContestRecord: Group._add_contest,
    Conclusion: Group._add_conclusion,
    Event: Group._add_event,
}
