"""Who watches a campaign that the command line runs: a live display, a log file, both, nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from kernelarc.cli._log_file import LogFile
from kernelarc.cli._progress import LiveDisplay
from kernelarc.engine import Counts, Observer, Progress
from kernelarc.genomes import BaselineAttempt, Conclusion, Judged, StoppedError
from kernelarc.storage import Event


class Watchers(Observer):
    """Passes everything on to each of several observers."""

    def __init__(self, watchers: Sequence[Observer]) -> None:
        self._watchers = tuple(watchers)
        self.resumed_with = ""

    def on_start(self, facts: Mapping[str, Any]) -> None:
        """Pass on."""
        self.resumed_with = f"kernelarc resume {facts['store']} {facts['campaign_id']}"
        for watcher in self._watchers:
            watcher.on_start(facts)

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """Pass on."""
        for watcher in self._watchers:
            watcher.on_verdict(judged, counts)

    def on_conclusion(self, conclusion: Conclusion) -> None:
        """Pass on."""
        for watcher in self._watchers:
            watcher.on_conclusion(conclusion)

    def on_event(self, event: Event) -> None:
        """Pass on."""
        for watcher in self._watchers:
            watcher.on_event(event)

    def on_baseline(self, attempt: BaselineAttempt) -> None:
        """Pass on."""
        for watcher in self._watchers:
            watcher.on_baseline(attempt)

    def on_progress(self, progress: Progress) -> None:
        """Pass on."""
        for watcher in self._watchers:
            watcher.on_progress(progress)


@contextmanager
def watching(log_file: Path | None) -> Iterator[Observer]:
    """Give an observer that draws on a terminal (and on nothing else) and writes the log."""
    watchers: list[Observer] = []
    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        if log_file is not None:
            watchers.append(stack.enter_context(LogFile(log_file)))
        if console.is_terminal:
            watchers.append(stack.enter_context(LiveDisplay(console)))
        everybody = Watchers(watchers)
        try:
            yield everybody
        except KeyboardInterrupt:
            if not everybody.resumed_with:
                raise
            raise StoppedError(f"stopped at once; go on with: {everybody.resumed_with}") from None
