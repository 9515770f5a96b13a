"""Kernel Tuner's cache files: header members, then one row per configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kernelarc.bench.replay._answers import Answer, Answers
from kernelarc.bench.replay._domains import allele_of, gene_from_values
from kernelarc.bench.replay._outcomes import failed, measured, seconds
from kernelarc.bench.replay._parsed import (
    Parsed,
    RecordedRoute,
    check_names,
    expressions,
    job_of,
    lowered,
)
from kernelarc.genomes import Allele, Gene, InputError

ROUTE = "recorded"
_COSTS_MS = ("compile_time", "verification_time", "benchmark_time")
_NEEDED = frozenset({"tune_params_keys", "tune_params", "objective"})
_MILLISECOND_S = 1e-3
_KINDS: Mapping[type, str] = {list: "a list of names", dict: "an object of gene: values"}
_T = TypeVar("_T")


class CacheReader:
    """Takes a cache file's members and rows as they come and ends with its content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: dict[str, Any] = {}
        self._pending: list[tuple[str, Any]] = []
        self._space: _Rows | None = None

    def member(self, name: str, value: Any) -> None:
        """Take a header member."""
        self._header[name] = value

    def row(self, key: str | None, row: Any) -> None:
        """Take a row; it waits where the header has not yet said what it needs."""
        if self._space is None and self._header.keys() >= _NEEDED:
            self._space = self._rows()
        if self._space is None:
            self._pending.append((key or "", row))
        else:
            self._space.add(key or "", row)

    def finish(self, *, unclosed: bool) -> Parsed:
        """Return the content.

        Raises:
            InputError: There are no genes, or a domain, constraint or objective makes no sense.
        """
        rows = self._space or self._rows()
        for key, row in self._pending:
            rows.add(key, row)
        if rows.total and rows.total == rows.dropped:
            raise InputError(
                f"{self._path}: none of its {rows.total} rows gives every gene "
                f"({', '.join(rows.names)}) a value of the gene's domain"
            )
        if rows.notes and not rows.any_ok and rows.total:
            raise InputError(f"{self._path}: {rows.notes[-1]}, but no row has a time")
        operator, workload = job_of(
            str(self._header.get("kernel_name") or "kernel"), self._header.get("problem_size")
        )
        return Parsed(
            kind="kernel_tuner",
            operator=operator,
            workload=workload,
            identity={"device": str(self._header.get("device_name") or "unknown")},
            objective=rows.objective,
            unit="ms" if rows.objective.startswith("time") else rows.objective,
            routes=(self._route(rows, unclosed),),
            rows=rows.total,
            dropped=rows.dropped,
            notes=rows.notes,
        )

    def _route(self, rows: _Rows, unclosed: bool) -> RecordedRoute:
        said = self._header.get("restrictions") is not None
        constraints = expressions(self._path, self._header.get("restrictions"), list(rows.names))
        legality = "constraints" if said and not unclosed else "rows"
        return RecordedRoute(ROUTE, rows.genes, constraints, rows.answers, legality)

    def _rows(self) -> _Rows:
        domains = self._table("tune_params", dict)
        names = check_names(
            self._path, self._table("tune_params_keys", list) or list(domains), domains
        )
        try:
            genes = tuple(
                gene_from_values(name, _listed(domains[name]) if domains else self._seen(name))
                for name in names
            )
        except InputError as error:
            raise InputError(f"{self._path}: {error}") from error
        return _Rows(genes, *lowered(self._header.get("objective")))

    def _table(self, name: str, kind: type[_T]) -> _T:
        value = self._header.get(name)
        if value is None:
            return kind()
        if not isinstance(value, kind):
            raise InputError(f"{self._path}: {name!r} must be {_KINDS[kind]}, not {value!r:.60}")
        return value

    def _seen(self, name: str) -> list[object]:
        return [row[name] for _, row in self._pending if isinstance(row, dict) and name in row]


class _Rows:
    """Turns rows into answers."""

    def __init__(self, genes: Sequence[Gene], objective: str, notes: tuple[str, ...]) -> None:
        self.genes = tuple(genes)
        self.names = tuple(gene.name for gene in genes)
        self.objective = objective
        self.notes = notes
        self.answers = Answers(self.names)
        self.total = self.dropped = 0
        self.any_ok = False
        self._by_value = [
            {allele: self.answers.place(i, allele) for allele in gene.values()}
            for i, gene in enumerate(genes)
        ]
        self._by_text = [{str(v): place for v, place in d.items()} for d in self._by_value]

    def add(self, key: str, row: Any) -> None:
        """Take one row; one that names no genome of the space is counted as dropped."""
        self.total += 1
        places = self._find(key, row) if isinstance(row, dict) else None
        if places is None:
            self.dropped += 1
            return
        answer = self._answer(row)
        self.any_ok = self.any_ok or answer.failure is None
        self.answers.add_at(places, answer)

    def _answer(self, row: Mapping[str, Any]) -> Answer:
        cost_s = seconds(row, _COSTS_MS, _MILLISECOND_S)
        error = row.get("__error__")
        if error is not None:
            return failed(str(error), cost_s)
        samples = row.get("times") if self.objective == "time" else None
        return measured(row.get(self.objective), cost_s, samples, name=self.objective)

    def _find(self, key: str, row: Mapping[str, Any]) -> list[int] | None:
        try:
            return [known[row[n]] for n, known in zip(self.names, self._by_value, strict=True)]
        except (KeyError, TypeError):
            return self._find_slowly(key.split(","), row)

    def _find_slowly(self, parts: list[str], row: Mapping[str, Any]) -> list[int] | None:
        """Read values that stand only in the key, or that are lists or null in the row."""
        places = []
        for i, name in enumerate(self.names):
            found = _known(self._by_value[i], row[name]) if name in row else None
            if found is None and len(parts) == len(self.names):
                found = self._by_text[i].get(parts[i])
            if found is None:
                return None
            places.append(found)
        return places


def _known(by_value: Mapping[Allele, int], value: object) -> int | None:
    try:
        return by_value.get(allele_of(value))
    except (TypeError, ValueError):
        return None


def _listed(domain: object) -> list[object]:
    return domain if isinstance(domain, list) else [domain]
