"""The log file: one line per verdict, conclusion and event, for reading after the fact."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import click

from kernelarc.cli._attempts import attempt_begun, attempt_ended
from kernelarc.cli._text import allele, number
from kernelarc.engine import Counts, Observer
from kernelarc.genomes import BaselineAttempt, Conclusion, InputError, Judged
from kernelarc.storage import Event

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \w+ ")


class LogFile(Observer):
    """Appends to a file that is new, empty, or a log already.

    It is opened before the campaign, so that a place that cannot be written is said before a
    store is made; where no campaign starts, a file that was made is taken away again.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"--log {path}: not a file in a folder that exists")
        if path.exists() and not path.is_file():
            raise InputError(f"--log {path}: is no regular file")
        self._path = path
        self._file: TextIO | None = None
        self._is_new = not path.exists()
        self._has_lines = False

    def __enter__(self) -> Self:
        try:
            self._demand_log()
            self._file = self._path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--log {self._path}: {error.strerror}") from None
        return self

    def _demand_log(self) -> None:
        if self._is_new:
            return
        with self._path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(80)
        if first and not _LINE.match(first):
            raise InputError(
                f"--log {self._path}: is there and is no log of kernelarc; nothing is added to it"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._has_lines:
            self._write("error", f"{type(error).__name__}: {error}")
        if self._file is not None:
            self._file.close()
        if self._is_new and not self._has_lines:
            self._path.unlink(missing_ok=True)

    def on_start(self, facts: Mapping[str, Any]) -> None:
        """Note what was started."""
        self._write("start", _pairs(facts))

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """Note a verdict with its genome."""
        evaluation = judged.evaluation
        candidate = evaluation.candidate
        measured = evaluation.measurement
        outcome = (
            f"{number(measured.objective)} {measured.unit}{' or more' * measured.censored}"
            if measured is not None
            else f"{evaluation.failure}: {evaluation.message}"
        )
        self._write(
            judged.verdict.value,
            f"#{candidate.number} {candidate.island}/{candidate.mutation} "
            f"{candidate.genome.fingerprint} {outcome} | {candidate.genome.route} "
            + _pairs(candidate.genome),
        )

    def on_conclusion(self, conclusion: Conclusion) -> None:
        """Note what was learned."""
        self._write(conclusion.kind.value, f"{conclusion.island}: {conclusion.why}")

    def on_event(self, event: Event) -> None:
        """Note what happened to the campaign."""
        self._write(event.kind, _pairs(event.payload))

    def on_baseline(self, attempt: BaselineAttempt) -> None:
        """Note what is being tried, and what came of it."""
        said = attempt_begun if attempt.seconds is None else attempt_ended
        self._write("baseline", said(attempt))

    def _write(self, kind: str, text: str) -> None:
        if self._file is None:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        self._has_lines = True
        try:
            self._file.write(f"{now} {kind} {' '.join(text.split())}\n")
        except OSError as error:
            # The store is what counts: a campaign does not end because nobody can follow it.
            self._abandon()
            why = error.strerror
            click.echo(f"kernelarc: --log {self._path}: {why}; going on without it", err=True)

    def _abandon(self) -> None:
        file, self._file = self._file, None
        with contextlib.suppress(OSError):  # closing flushes what could not be written
            if file is not None:
                file.close()


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={allele(value)}" for name, value in values.items())
