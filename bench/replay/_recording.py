"""A recording in memory: the job, the spaces, and the rows, whatever format the file has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np

from kernelarc.bench.replay._answers import Answer, Answers
from kernelarc.bench.replay._guess import hint_of
from kernelarc.bench.replay._kernel_tuner import CacheReader
from kernelarc.bench.replay._listed import ListedSpace
from kernelarc.bench.replay._own import SCHEMA_KEY, OwnReader
from kernelarc.bench.replay._parsed import Parsed, RecordedRoute
from kernelarc.bench.replay._reading import read_text
from kernelarc.bench.replay._t4 import T4Reader
from kernelarc.bench.replay._walking import Member, Opened, Row, Walker
from kernelarc.genomes import (
    Environment,
    Genome,
    InputError,
    Operator,
    Problem,
    Proposal,
    Space,
    Status,
    Workload,
    assign_strategies,
)

_ROWS_IN = frozenset({"cache", "results", "rows"})


class _Reader(Protocol):
    def member(self, name: str, value: object) -> None: ...
    def row(self, key: str | None, row: object) -> None: ...
    def finish(self, *, unclosed: bool) -> Parsed: ...


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What a recording's rows are. Of several rows for one genome the last one wins.

    Attributes:
        rows: Whole rows in the file.
        genomes: Different genomes among them.
        ok: Genomes with a valid measurement.
        failed: Genomes that failed, or whose measurement is none.
        duplicate: Rows that repeat an earlier genome.
        contradictory: Those among them that say something else than the row they replace.
        dropped: Rows that name no genome of the space, or are no rows at all.
        torn: Whether a last row was cut (the writer was killed) and dropped.
    """

    rows: int
    genomes: int
    ok: int
    failed: int
    duplicate: int
    contradictory: int
    dropped: int
    torn: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded search space.

    Attributes:
        path: The file it was read from; it is never written to.
        kind: ``"kernel_tuner"``, ``"t4"`` or ``"kernelarc"`` (our own).
        operator: Named after the kernel; it has no reference.
        workload: The recorded problem size.
        spaces: By route name; every gene carries a strategy.
        environment: The device that was recorded, and a hash of the recording.
        objective: Name of the recorded number; lower is better.
        unit: Its unit.
        counts: What the rows are.
        unclosed: Whether the file lacks its end, as after a killed run.
        notes: What a person should know about how the file was read.
        seeds: What the recorded device knew to be worth trying first, best guess first.
        checked: Genomes that the device was asked about; 0 where the file does not say.
        refused: Those of them that it refused; they have no rows.
    """

    path: Path
    kind: str
    operator: Operator
    workload: Workload
    spaces: Mapping[str, Space]
    environment: Environment
    objective: str
    unit: str
    counts: RowCounts
    unclosed: bool
    notes: tuple[str, ...]
    seeds: tuple[Proposal, ...]
    checked: int
    refused: int
    _answers: Mapping[str, Answers]

    @property
    def problem(self) -> Problem:
        """The operator with its one workload."""
        return Problem(operator=self.operator, workloads=(self.workload,))

    def answer(self, genome: Genome) -> Answer | None:
        """Return what was recorded for a genome, or None."""
        answers = self._answers.get(genome.route)
        return None if answers is None else answers.find(genome)

    def permute(self, rng: np.random.Generator) -> None:
        """Exchange the measured objectives among the working genomes at random."""
        for answers in self._answers.values():
            answers.permute(rng)


def load_recording(path: Path | str) -> Recording:
    """Read a recorded space: a Kernel Tuner cache, T4 results, or our own recording.

    The content decides the format, not the name. A file that lacks its end (a killed run) is
    read up to its last whole row.

    Raises:
        InputError: The file is missing, empty, broken, no recording, or has no genes.
    """
    path = Path(path)
    text = read_text(path)
    walker = Walker(path, text, _ROWS_IN)
    parsed = _read(path, walker)
    digest = sha256(text.encode()).hexdigest()[:16]
    return _recording(path, parsed, walker, digest)


def _read(path: Path, walker: Walker) -> Parsed:
    header: dict[str, object] = {}
    reader: _Reader | None = None
    for found in walker.walk():
        if isinstance(found, Opened):
            reader = reader or _reader_for(path, found.name, header)
        elif isinstance(found, Row):
            assert reader is not None
            reader.row(found.key, found.value)
        else:
            _give(reader, header, found)
    if reader is None:
        raise InputError(f"{path}: {_other_kind(header)}")
    return reader.finish(unclosed=walker.unclosed)


def _give(reader: _Reader | None, header: dict[str, object], member: Member) -> None:
    header[member.name] = member.value
    if reader is not None:
        reader.member(member.name, member.value)


def _reader_for(path: Path, rows_in: str, header: Mapping[str, object]) -> _Reader:
    makers: Mapping[str, type[CacheReader] | type[T4Reader] | type[OwnReader]] = {
        "cache": CacheReader,
        "results": T4Reader,
        "rows": OwnReader,
    }
    if rows_in == "rows" and SCHEMA_KEY not in header:
        raise InputError(f"{path}: {_other_kind(header)}")
    reader = makers[rows_in](path)
    for name, value in header.items():
        reader.member(name, value)
    return reader


def _other_kind(header: Mapping[str, object]) -> str:
    if "ConfigurationSpace" in header:
        return "is a T1 input: it describes a space but holds no results that could be replayed"
    shown = ", ".join(sorted(header)[:6]) or "none"
    return (
        "is JSON, but no recorded space: a Kernel Tuner cache has 'cache', T4 has 'results', "
        f"our recording has {SCHEMA_KEY!r} (members here: {shown})"
    )


def _recording(path: Path, parsed: Parsed, walker: Walker, digest: str) -> Recording:
    counts = _counts(parsed, walker.torn)
    observed = {
        **parsed.observations,
        "recording": str(path),
        "rows": str(counts.rows),
        "failed": str(counts.failed),
    }
    notes = (*parsed.notes, *_what_was_left_out(counts, unclosed=walker.unclosed))
    if notes:
        observed["note"] = f"{path.name}: {'; '.join(notes)}"
    environment = Environment(
        identity={**parsed.identity, "recording": digest}, observations=observed
    )
    spaces = {route.name: _space(path, route) for route in parsed.routes}
    for name, space in spaces.items():
        space.hint = hint_of(name, parsed.operator, parsed.workload, environment)
    return Recording(
        path=path,
        kind=parsed.kind,
        operator=parsed.operator,
        workload=parsed.workload,
        spaces=spaces,
        environment=environment,
        objective=parsed.objective,
        unit=parsed.unit,
        counts=counts,
        unclosed=walker.unclosed,
        notes=notes,
        seeds=parsed.seeds,
        checked=parsed.checked,
        refused=parsed.refused,
        _answers={route.name: route.answers for route in parsed.routes},
    )


def _counts(parsed: Parsed, torn: bool) -> RowCounts:
    answers = [route.answers for route in parsed.routes]
    genomes = sum(map(len, answers))
    ok = sum(each.count(Status.OK) for each in answers)
    return RowCounts(
        rows=parsed.rows,
        genomes=genomes,
        ok=ok,
        failed=genomes - ok,
        duplicate=sum(each.duplicate for each in answers),
        contradictory=sum(each.contradictory for each in answers),
        dropped=parsed.dropped,
        torn=torn,
    )


def _what_was_left_out(counts: RowCounts, *, unclosed: bool) -> Iterator[str]:
    if unclosed or counts.torn:
        yield f"the file lacks its end: its {counts.rows} whole rows are used"
    if counts.dropped:
        yield (
            f"{counts.dropped} of {counts.rows} rows are not used: they do not give every gene "
            f"a value of its domain"
        )
    if counts.contradictory:
        yield f"{counts.contradictory} rows contradict an earlier one: the last one counts"


def _space(path: Path, route: RecordedRoute) -> Space:
    try:
        space = Space(route.name, route.genes, route.constraints)
        if route.legality == "rows" or _lacks_rows(space, route.answers):
            space = ListedSpace(route.name, route.genes, route.constraints, route.answers)
        return assign_strategies(space)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _lacks_rows(space: Space, answers: Answers) -> bool:
    """Tell whether constraints allow more than was recorded, as in a file of a sampled search."""
    size = space.size()
    return size.exact and size.legal > len(answers)
