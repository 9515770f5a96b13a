"""The log file: one line per verdict, conclusion and event, for reading after the fact."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from kernelarc.cli._text import allele, number
from kernelarc.engine import Counts, Observer
from kernelarc.genomes import Conclusion, InputError, Judged
from kernelarc.storage import Event


class LogFile(Observer):
    """Appends to a file. It is opened when the campaign starts, so bad input writes nothing."""

    def __init__(self, path: Path) -> None:
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"--log {path}: not a file in a folder that exists")
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._write("error", f"{type(error).__name__}: {error}")
        if self._file is not None:
            self._file.close()

    def on_start(self, facts: Mapping[str, Any]) -> None:
        """Open the file and note what was started."""
        try:
            self._file = self._path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--log {self._path}: {error.strerror}") from None
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

    def _write(self, kind: str, text: str) -> None:
        if self._file is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%S")
            self._file.write(f"{now} {kind} {' '.join(text.split())}\n")


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={allele(value)}" for name, value in values.items())
