"""Records to rows and back. The two hot paths of the store: kept free of needless work."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from types import MappingProxyType
from typing import Any

from kernelarc.genomes import (
    Allele,
    Candidate,
    Contest,
    Genome,
    InputError,
    Judged,
    Measurement,
    Status,
    Verdict,
)
from kernelarc.storage import _assembly as assembly
from kernelarc.storage._contract import ContestRecord, Event, Round
from kernelarc.storage._texts import alleles_from, dump, estimate_from, estimate_text, load

Values = dict[str, Any]
"""One row to insert, by column name."""

_STATUS = {status.value: status for status in Status}
_VERDICT = {verdict.value: verdict for verdict in Verdict}
_GENOMES_KEPT = 8192


def _alleles(text: str, what: str) -> dict[str, Allele]:
    """Parse alleles long after their row was read: damage shows only now."""
    try:
        return alleles_from(text)
    except (ValueError, TypeError, InputError) as error:
        raise InputError(
            f"store: damaged, {what} cannot be read ({error}): restore a copy"
        ) from error


class StoredGenome(Genome):
    """A genome from the store: its alleles are parsed when they are first looked at.

    Most of a long log is read only for fingerprints and objectives; parsing and hashing every
    genome again would take most of the time of a resume, and its dictionary most of the memory.
    """

    __slots__ = ()

    def __init__(self, route: str, canonical: str, fingerprint: str) -> None:
        self.route = route
        self.canonical = canonical
        self.fingerprint = fingerprint

    def __getattr__(self, name: str) -> dict[str, Allele]:
        if name != "_alleles":
            raise AttributeError(name)
        self._alleles = _alleles(self.canonical, f"the genome {self.fingerprint}")
        return self._alleles


class StoredProperties(Mapping[str, Allele]):
    """An evaluation's properties from the store: parsed when they are first looked at."""

    __slots__ = ("_parsed", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._parsed: dict[str, Allele] | None = None

    def _read(self) -> dict[str, Allele]:
        if self._parsed is None:
            self._parsed = _alleles(self._text, "an evaluation's properties")
        return self._parsed

    def __getitem__(self, name: str) -> Allele:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


_NONE: Mapping[str, Allele] = MappingProxyType({})


def genome_row(genome: Genome, key: int) -> Values:
    """Make the row of a genome that the store does not hold yet."""
    return {
        "id": key,
        "fingerprint": genome.fingerprint,
        "route": genome.route,
        "canonical": genome.canonical,
    }


def parents_text(parents: Sequence[str]) -> str | None:
    """Join fingerprints with spaces; None for no parents."""
    if not parents:
        return None
    text = " ".join(parents)
    if len(text.split()) != len(parents):
        raise InputError(f"parents {list(parents)!r}: each must be a fingerprint without spaces")
    return text


def candidate_row(c: Candidate) -> Values:
    """Make the row of a candidate; the writer adds the keys."""
    return {
        "number": c.number,
        "round": c.round,
        "island": c.island,
        "mutation": c.mutation,
        "parents": parents_text(c.parents),
    }


@functools.lru_cache(maxsize=256)
def _layout(n: int) -> struct.Struct:
    return struct.Struct(f"<{n}d")


def _doubles(samples: Sequence[float]) -> bytes:
    return _layout(len(samples)).pack(*samples)


def _undoubled(blob: bytes) -> tuple[float, ...]:
    return _layout(len(blob) // 8).unpack(blob)


_NO_MEASUREMENT: Values = dict.fromkeys(
    ("objective", "unit", "censored", "cache", "launches", "samples")
)


def _measurement_part(m: Measurement | None) -> Values:
    if m is None:
        return _NO_MEASUREMENT
    if math.isnan(m.objective):
        raise InputError("a measurement's objective is NaN: such an outcome is a failure")
    return {
        "objective": m.objective,
        "unit": m.unit,
        "censored": int(m.censored),
        "cache": m.cache,
        "launches": m.launches,
        "samples": _doubles(m.samples),
    }


def evaluation_row(judged: Judged) -> Values:
    """Make the row of an evaluation and its verdict; the writer adds the keys."""
    e = judged.evaluation
    return {
        "status": e.status.value,
        "verdict": judged.verdict.value,
        "cost_s": e.cost_s,
        **_measurement_part(e.measurement),
        "failure": e.failure,
        # Compilers print bytes that are no text; what stands for them must not stop the store.
        "message": e.message.encode("utf-8", "replace").decode().replace("\0", "?") or None,
        "properties": dump(dict(e.properties)) if e.properties else None,
    }


def contest_row(record: ContestRecord) -> Values:
    """Make the row of a contest; the writer adds the keys."""
    contest = record.contest
    return {
        "purpose": record.purpose,
        "workload": record.workload,
        "subject": record.subject,
        "against": record.against,
        "upheld": int(record.upheld),
        "speedup": estimate_text(record.speedup),
        "names": dump(list(contest.names)),
        "samples": _doubles([sample for row in contest.samples for sample in row]),
        "failures": dump(dict(contest.failures)),
        "unit": contest.unit,
    }


def contest_from(row: Sequence[Any]) -> ContestRecord:
    """Read a contest back from the columns of ``contest_row``, in that order."""
    purpose, workload, subject, against, upheld, speedup, names, samples, failures, unit = row
    columns = tuple(load(names))
    flat, width = _undoubled(samples), max(len(columns), 1)
    rounds = tuple(flat[i : i + width] for i in range(0, len(flat), width))
    contest = Contest(names=columns, samples=rounds, failures=load(failures), unit=unit)
    return ContestRecord(
        purpose=purpose,
        workload=workload,
        subject=subject,
        against=against,
        contest=contest,
        speedup=estimate_from(speedup),
        upheld=bool(upheld),
    )


def round_from(row: Sequence[Any]) -> Round:
    """Read a round back from (number, counts)."""
    number, counts = row
    return Round(number=number, counts=load(counts))


def event_from(row: Sequence[Any]) -> Event:
    """Read an event back from (kind, unix_s, payload)."""
    kind, unix_s, payload = row
    return Event(kind=kind, unix_s=unix_s, payload=load(payload))


class Decoder:
    """Rows to candidates and evaluations; keeps recent genomes so that equal ones are shared.

    Attributes:
        workloads: Fingerprint by internal id.
    """

    def __init__(self, workloads: Mapping[int, str]) -> None:
        self.workloads = workloads
        self._genomes: dict[str, Genome] = {}

    def genome(self, fingerprint: str, route: str, canonical: str) -> Genome:
        """Return the genome, the same object as last time where it is still kept."""
        found = self._genomes.get(fingerprint)
        if found is None:
            if len(self._genomes) >= _GENOMES_KEPT:
                self._genomes.clear()
            found = StoredGenome(intern(route), canonical, fingerprint)
            self._genomes[fingerprint] = found
        return found

    def candidate(self, row: Sequence[Any]) -> Candidate:
        """Decode the columns of ``_queries.CANDIDATE`` after id and position."""
        number, asked, workload, island, mutation, parents, fingerprint, route, canonical = row
        return assembly.candidate(
            number=number,
            asked=asked,
            workload=self.workloads[workload],
            island=intern(island),
            mutation=intern(mutation),
            genome=self.genome(fingerprint, route, canonical),
            parents=tuple(parents.split(" ")) if parents else (),
        )

    @staticmethod
    def judged(candidate: Candidate, row: Sequence[Any]) -> Judged:
        """Decode the columns of ``_queries.EVALUATION`` after id and position."""
        status, verdict, cost_s, objective, unit, censored, cache, launches = row[:8]
        samples, failure, message, properties = row[8:]
        measured = None
        if samples is not None:
            measured = assembly.measurement(
                samples=_undoubled(samples),
                objective=objective,
                unit=intern(unit),
                censored=censored == 1,
                cache=intern(cache),
                launches=launches,
            )
        return assembly.judged(
            verdict=_VERDICT[verdict],
            of=candidate,
            status=_STATUS[status],
            measured=measured,
            failure=failure if failure is None else intern(failure),
            message=message or "",
            cost_s=cost_s,
            properties=StoredProperties(properties) if properties else _NONE,
        )
