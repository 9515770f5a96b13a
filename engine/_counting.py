"""Counting a campaign as it goes: the numbers that the store's ``counts`` reads from its rows."""

from __future__ import annotations

from dataclasses import dataclass

from kernelarc.genomes import Status
from kernelarc.storage import ContestRecord, Counts, Round

# Said of the moment or of the device, not of the genome.
_SILENT = (Status.REJECTED, Status.INTERRUPTED)


@dataclass(slots=True)
class Counting:
    """Part of the campaign's state: it changes only with the log.

    Attributes:
        spent: What a budget counts: the evaluations made here, whatever came of them.
    """

    spent: int = 0
    _asked: int = 0
    _rejected: int = 0
    _duplicate: int = 0
    _failed: int = 0
    _measured: int = 0
    _confirmations: int = 0
    _audits: int = 0

    def counts(self) -> Counts:
        """Return the counters as they stand."""
        return Counts(
            asked=self._asked,
            rejected=self._rejected,
            duplicate=self._duplicate,
            unique=self._failed + self._measured,
            failed=self._failed,
            measured=self._measured,
            confirmations=self._confirmations,
            audits=self._audits,
        )

    def round(self, entry: Round) -> None:
        """Count what the islands were asked for."""
        for counts in entry.counts.values():
            self._asked += counts.get("asked", 0)
            self._rejected += counts.get("rejected", 0)
            self._duplicate += counts.get("duplicate", 0)

    def evaluation(self, status: Status) -> None:
        """Count an evaluation of a pair of genome and workload that had none here."""
        self.spent += 1
        if status is Status.OK:
            self._measured += 1
        elif status not in _SILENT:
            self._failed += 1
        elif status is Status.REJECTED:
            self._rejected += 1

    def contest(self, record: ContestRecord) -> None:
        """Count a confirmation or an audit."""
        self._confirmations += record.purpose == "confirm"
        self._audits += record.purpose == "audit"
