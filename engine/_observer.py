"""What a running campaign tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelarc.genomes import BaselineAttempt, Conclusion, Judged
from kernelarc.storage import Counts, Event

__all__ = ["Counts", "IslandShare", "Observer", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandShare:
    """One island's part in the campaign so far.

    Attributes:
        asleep: Why it proposes nothing here, or None.
        proposals: Candidates of its that were evaluated.
        keeps: How many of them became the best.
        share: Its fraction of all candidates, 0 to 1.
    """

    asleep: str | None
    proposals: int
    keeps: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A snapshot for a progress display.

    Attributes:
        evaluated: Evaluations so far, as a budget counts them.
        budget: Evaluations allowed, or None.
        seconds: Wall seconds allowed, or None.
        rate: Unique evaluations per second in this process.
        best: Label of the first workload's best, None before there is one.
        objective: Its number, in ``unit``.
        gain: Objective of the starting genome over that of the best.
        stage: ``"search"``, ``"confirm"``, ``"audit"``, in a person's words.
    """

    evaluated: int
    budget: int | None
    seconds: float | None
    elapsed_s: float
    rate: float
    best: str | None
    objective: float | None
    unit: str
    gain: float | None
    stage: str
    counts: Counts
    islands: Mapping[str, IslandShare] = field(default_factory=dict)


class Observer:
    """Callbacks of a campaign; every one does nothing by default. Called in the same thread.

    What is told, but for baselines that are tried, was committed before: a verdict that an
    observer has seen survives a crash.
    An exception raised here stops the campaign, resumable.
    """

    def on_start(self, facts: Mapping[str, Any]) -> None:
        """The campaign starts or resumes; ``facts`` holds id, store, device, spaces, islands."""

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """A candidate was evaluated and judged."""

    def on_conclusion(self, conclusion: Conclusion) -> None:
        """A win, trap or retraction was recorded."""

    def on_event(self, event: Event) -> None:
        """Something happened to the campaign (audited, finished, interrupted)."""

    def on_baseline(self, attempt: BaselineAttempt) -> None:
        """A baseline is being tried, and once more: it has been tried. Nothing is stored yet."""

    def on_progress(self, progress: Progress) -> None:
        """Called after every round and stage."""
