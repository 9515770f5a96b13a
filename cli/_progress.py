"""The live display on standard error: budget, best so far, and what each island contributed."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernelarc.cli._attempts import attempt_begun, attempt_ended
from kernelarc.cli._text import duration, number, quantity
from kernelarc.engine import IslandShare, Observer, Progress
from kernelarc.genomes import BaselineAttempt, Conclusion, ConclusionKind

_PAUSE_S = 0.2
_BAR = 40


class LiveDisplay(Observer):
    """Draws a campaign in place while it runs.

    It draws only when called: a thread that redraws would run beside what is being timed. Once
    the terminal is gone it draws no more: the campaign does not need it.
    """

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._title = ""
        self._newest = ""
        self._drawn_at = 0.0
        self._stage = self._attempt = ""
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()

    def on_start(self, facts: Mapping[str, Any]) -> None:
        """Say what was started."""
        self._title = (
            f"campaign {facts.get('campaign_id', '?')}: "
            f"{facts.get('target', '')} on {facts.get('device', '')}, store {facts.get('store')}"
        )
        self._draw(Text(self._title))

    def on_conclusion(self, conclusion: Conclusion) -> None:
        """Remember the newest lesson for the last line."""
        if conclusion.kind is not ConclusionKind.TRAP:
            self._newest = f"{conclusion.island}: {conclusion.why}"

    def on_baseline(self, attempt: BaselineAttempt) -> None:
        """Say what is being tried: it may take a minute, in which nothing else is drawn."""
        said = attempt_begun if attempt.seconds is None else attempt_ended
        self._attempt = said(attempt)
        if self._progress is not None:
            self._draw(self._drawing(self._progress))

    def on_progress(self, progress: Progress) -> None:
        """Redraw, at most a few times a second and whenever the stage changes."""
        now = time.monotonic()
        self._progress, self._attempt = progress, ""
        if now - self._drawn_at >= _PAUSE_S or progress.stage != self._stage:
            self._drawn_at, self._stage = now, progress.stage
            self._draw(self._drawing(progress))

    def _draw(self, drawing: RenderableType) -> None:
        if self._live.is_started:
            try:
                self._live.update(drawing, refresh=True)
            except OSError:
                self._live.console.file = io.StringIO()
                self._live.stop()

    def _drawing(self, progress: Progress) -> Group:
        return Group(
            Text(self._title, style="bold", no_wrap=True, overflow="ellipsis"),
            _budget_row(progress),
            *([Text(self._attempt, style="yellow")] if self._attempt else []),
            Text(best_line(progress), style="green"),
            _island_table(progress.islands),
            Text(self._newest, style="dim", no_wrap=True, overflow="ellipsis"),
        )


def best_line(progress: Progress) -> str:
    """Return the best so far in words."""
    if progress.objective is None:
        return "best: nothing valid yet"
    gain = f", {progress.gain:.3g} x its starting genome" if progress.gain else ""
    return f"best {progress.best or ''}: {quantity(progress.objective, progress.unit)}{gain}"


def estimated_end_s(progress: Progress) -> float | None:
    """Return the seconds until the first limit is reached at the present rate."""
    ends = []
    if progress.budget is not None and progress.rate > 0:
        ends.append((progress.budget - progress.evaluated) / progress.rate)
    if progress.seconds is not None:
        ends.append(progress.seconds - progress.elapsed_s)
    return max(min(ends), 0.0) if ends else None


def fraction_done(progress: Progress) -> float:
    """Return how much of the nearest limit is used, 0 to 1."""
    used = [0.0]
    if progress.budget:
        used.append(progress.evaluated / progress.budget)
    if progress.seconds:
        used.append(progress.elapsed_s / progress.seconds)
    return min(max(used), 1.0)


def _budget_row(progress: Progress) -> Table:
    end = estimated_end_s(progress)
    of = f" of {progress.budget}" if progress.budget is not None else ""
    row = Table.grid(padding=(0, 2))
    row.add_row(
        progress.stage,
        ProgressBar(total=1.0, completed=fraction_done(progress), width=_BAR),
        f"{progress.evaluated}{of}",
        f"{number(progress.rate, 3)}/s",
        duration(progress.elapsed_s) + (f", about {duration(end)} left" if end is not None else ""),
    )
    return row


def _island_table(islands: Mapping[str, IslandShare]) -> Table:
    found = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("island", "candidates", "KEEPs", "share"):
        found.add_column(heading, justify="left" if heading == "island" else "right")
    for name, share in islands.items():
        if share.asleep is None:
            cells = (name, str(share.proposals), str(share.keeps), f"{share.share:.0%}")
            found.add_row(*cells)
    return found
