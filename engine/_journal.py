"""The way into the store: units of entries, grouped into transactions, told once committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._observer import Observer
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Conclusion, Judged
from kernelarc.storage import Entry, Event, StoreWriter

_MOST_ENTRIES = 64
_LONGEST_S = 0.1


class Journal:
    """Appends to one campaign's log. A unit is never split over two transactions."""

    def __init__(
        self, writer: StoreWriter, campaign: int, state: CampaignState, observer: Observer
    ) -> None:
        self._writer = writer
        self._campaign = campaign
        self._state = state
        self._observer = observer
        self._waiting: list[Entry] = []
        self._since = 0.0

    def write(
        self, unit: Sequence[Entry], *, follow_up: Callable[[], Sequence[Entry]] | None = None
    ) -> None:
        """Apply a unit to the state and append it; commits when enough waits, or waited enough.

        Args:
            unit: What belongs into one transaction, in order.
            follow_up: Called once the unit is applied; what it returns joins the unit.
        """
        if not unit:
            return
        if not self._waiting:
            self._since = time.monotonic()
        elif len(self._waiting) + len(unit) > _MOST_ENTRIES:
            self.commit()
            self._since = time.monotonic()
        self._apply(unit)
        if follow_up is not None:
            self._apply(follow_up())
        if time.monotonic() - self._since >= _LONGEST_S:
            self.commit()

    def _apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._state.apply(entry)
        self._waiting.extend(entries)

    def event(self, kind: str, **payload: object) -> None:
        """Append an event and commit at once."""
        self.write([Event(kind=kind, payload=payload, unix_s=time.time())])
        self.commit()

    def commit(self) -> None:
        """Acknowledge everything that waits, in one transaction, and tell the observer."""
        if not self._waiting:
            return
        crash_point("before-commit")
        self._writer.append(self._campaign, self._waiting)
        crash_point("after-commit")
        entries, self._waiting = self._waiting, []
        for entry in entries:
            self._tell(entry)

    def _tell(self, entry: Entry) -> None:
        if isinstance(entry, Judged):
            self._observer.on_verdict(entry, self._state.counts)
        elif isinstance(entry, Conclusion):
            self._observer.on_conclusion(entry)
        elif isinstance(entry, Event):
            self._observer.on_event(entry)
