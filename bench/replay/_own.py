"""Our own recording format: written by ``write_recording``, read by the replay.

One JSON object, plain or gzip-compressed. Every operator, workload, gene and constraint is in it,
so that a replay has the same fingerprints as the device that was recorded::

    {"kernelarc_recording": 1, "operator": {...}, "workload": {...},
     "environment": {"identity": {...}, "observations": {...}}, "unit": "us",
     "routes": [{"route": "cpu", "genes": [{"name", "kind", domain, "strategy", "when"}],
                 "constraints": ["a*b <= 64"], "legality": "rows"}],
     "seeds": [[0, [16, 4, null], "heuristic"]], "checked": 5000, "refused": [[0, [16, 3, null]]],
     "columns": ["route", "alleles", "status", "objective", "cost_s", "samples", "failure",
                 "message", "properties"],
     "rows": [[0, [16, 4, null], "OK", 81.25, 0.31, [81.1, 81.25, 83.0], null, "",
               {"registers": 96}], ...]}

``alleles`` stand in gene order, null where a gene is switched off. ``seeds`` are what the device
knew to be worth trying first, best guess first, with the mutation's name; ``checked`` says how many
genomes were asked about, and ``refused`` which of them the device refused. ``legality`` is
``"constraints"`` only where every legal genome has a row and all constraints are expressions;
else ``"rows"``: then a genome is legal where it has a row. ``properties`` are the whole numbers
that were reported of it, registers and shared memory for example; older files lack the column.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelarc.bench._gene_json import gene_from_json, gene_to_json
from kernelarc.bench.replay._answers import Answer, Answers
from kernelarc.bench.replay._job_json import (
    operator_from_json,
    operator_to_json,
    workload_from_json,
    workload_to_json,
)
from kernelarc.bench.replay._outcomes import measured
from kernelarc.bench.replay._parsed import Parsed, RecordedRoute, expressions
from kernelarc.genomes import (
    Allele,
    Environment,
    Evaluation,
    ExpressionConstraint,
    Genome,
    InputError,
    Operator,
    Proposal,
    Space,
    Status,
    Workload,
    allele_from_json,
)

SCHEMA = 1
SCHEMA_KEY = "kernelarc_recording"
_OLDER = ("route", "alleles", "status", "objective", "cost_s", "samples", "failure", "message")
COLUMNS = (*_OLDER, "properties")


def write_recording(
    path: Path,
    *,
    operator: Operator,
    workload: Workload,
    spaces: Mapping[str, Space],
    environment: Environment,
    evaluations: Iterable[Evaluation],
    complete: bool = False,
    seeds: Sequence[Proposal] = (),
    checked: int = 0,
    refused: Iterable[Genome] = (),
) -> int:
    """Write evaluations of one workload as a recording; return how many rows it has.

    The file appears whole or not at all. A name that ends in ``.gz`` is compressed.

    Args:
        path: Where to; an existing regular file is replaced.
        operator: The job.
        workload: The workload that all evaluations are of; others are left out.
        spaces: Every route that was recorded, by name.
        environment: Where it was measured.
        evaluations: REJECTED and INTERRUPTED ones say nothing of a genome and are left out.
        complete: Whether every legal genome of every route is among them.
        seeds: What the device knew to be worth trying first, best guess first.
        checked: How many genomes the device was asked about.
        refused: Those of them that it refused.

    Raises:
        InputError: The place cannot be written, or a genome belongs to no route given.
    """
    head: dict[str, Any] = {
        SCHEMA_KEY: SCHEMA,
        "operator": operator_to_json(operator),
        "workload": workload_to_json(workload),
        "environment": {
            "identity": dict(environment.identity),
            "observations": dict(environment.observations),
        },
    }
    told = [e for e in evaluations if _tells(e) and e.candidate.workload == workload.fingerprint]
    units = {e.measurement.unit for e in told if e.measurement is not None}
    if len(units) > 1:
        raise InputError(f"a recording has one unit, not {', '.join(sorted(units))}")
    head["unit"] = next(iter(units), "us")
    head["routes"] = [_route_to_json(space, complete) for space in spaces.values()]
    head["seeds"] = [[*_genome(spaces, seed.genome), seed.mutation] for seed in seeds]
    head["checked"] = checked
    head["refused"] = [_genome(spaces, genome) for genome in refused]
    head["columns"] = COLUMNS
    _write_whole(Path(path), _texts(head, _rows(spaces, told)))
    return len(told)


def _tells(evaluation: Evaluation) -> bool:
    return evaluation.status not in (Status.REJECTED, Status.INTERRUPTED)


def _route_to_json(space: Space, complete: bool) -> dict[str, Any]:
    texts = [c.text for c in space.constraints if isinstance(c, ExpressionConstraint)]
    whole = complete and len(texts) == len(space.constraints)
    return {
        "route": space.route,
        "genes": [gene_to_json(gene) for gene in space.genes],
        "constraints": texts,
        "legality": "constraints" if whole else "rows",
    }


def _rows(spaces: Mapping[str, Space], told: Iterable[Evaluation]) -> Iterator[list[Any]]:
    for evaluation in told:
        timed = evaluation.measurement
        yield [
            *_genome(spaces, evaluation.candidate.genome),
            evaluation.status.value,
            None if timed is None else timed.objective,
            evaluation.cost_s,
            None if timed is None else timed.samples,
            evaluation.failure,
            evaluation.message,
            _counts(evaluation.properties),
        ]


def _counts(properties: Mapping[str, Any]) -> dict[str, int]:
    """Return what a search may learn from: numbers, not hashes and names."""
    return {name: value for name, value in properties.items() if type(value) is int}


def _genome(spaces: Mapping[str, Space], genome: Genome) -> list[Any]:
    """Return a genome's route, by its place, and its alleles in gene order."""
    if genome.route not in spaces:
        raise InputError(f"route {genome.route!r} is not among those recorded")
    names = spaces[genome.route].names
    return [list(spaces).index(genome.route), [genome.get(name) for name in names]]


def _texts(head: Mapping[str, Any], rows: Iterable[list[Any]]) -> Iterator[str]:
    yield json.dumps(head, separators=(",", ":"))[:-1] + ',"rows":['
    for number, row in enumerate(rows):
        yield (",\n" if number else "\n") + json.dumps(row, separators=(",", ":"))
    yield "]}\n"


def _write_whole(path: Path, texts: Iterable[str]) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file, so no recording can be written there")
    content = "".join(texts).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


class OwnReader:
    """Takes a recording's members and rows as they come and ends with its content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: dict[str, Any] = {}
        self._rows: list[Any] = []

    def member(self, name: str, value: Any) -> None:
        """Take a header member; a schema newer than ours is refused at once."""
        if name == SCHEMA_KEY and value != SCHEMA:
            raise InputError(
                f"{self._path}: has recording schema {value!r}; this version reads {SCHEMA}"
            )
        self._header[name] = value

    def row(self, key: str | None, row: Any) -> None:
        """Take one row."""
        self._rows.append(row)

    def finish(self, *, unclosed: bool) -> Parsed:
        """Return the content.

        Raises:
            InputError: A member is missing or malformed.
        """
        try:
            return self._parsed(unclosed)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"{self._path}: is a malformed recording ({what})") from error
        except InputError as error:
            shown = str(error)
            prefix = "" if shown.startswith(str(self._path)) else f"{self._path}: "
            raise InputError(prefix + shown) from error

    def _parsed(self, unclosed: bool) -> Parsed:
        routes = tuple(self._route(entry, unclosed) for entry in self._header["routes"])
        if not routes:
            raise InputError("names no routes and so no genes")
        dropped = sum(not self._take(routes, row) for row in self._rows)
        environment = self._header["environment"]
        return Parsed(
            kind="kernelarc",
            operator=operator_from_json(self._header["operator"]),
            workload=workload_from_json(self._header["workload"]),
            identity=dict(environment["identity"]),
            observations=dict(environment.get("observations", {})),
            objective="objective",
            unit=str(self._header["unit"]),
            routes=routes,
            rows=len(self._rows),
            dropped=dropped,
            seeds=tuple(self._seed(routes, *entry) for entry in self._header.get("seeds", ())),
            checked=int(self._header.get("checked", 0)),
            refused=len(self._header.get("refused", ())),
        )

    @staticmethod
    def _seed(
        routes: tuple[RecordedRoute, ...], place: int, alleles: list[Any], mutation: str
    ) -> Proposal:
        route = routes[place]
        named = zip(route.genes, alleles, strict=True)
        held = {g.name: allele_from_json(value) for g, value in named if value is not None}
        return Proposal(genome=Genome(route.name, held), mutation=str(mutation))

    def _route(self, entry: Mapping[str, Any], unclosed: bool) -> RecordedRoute:
        genes = tuple(gene_from_json(gene) for gene in entry["genes"])
        if not genes:
            raise InputError(f"names no genes for route {entry['route']!r}")
        names = [gene.name for gene in genes]
        constraints = expressions(self._path, entry.get("constraints"), names)
        legality = "rows" if unclosed else str(entry.get("legality", "rows"))
        return RecordedRoute(
            str(entry["route"]), genes, constraints, Answers(tuple(names)), legality
        )

    def _take(self, routes: tuple[RecordedRoute, ...], row: Any) -> bool:
        """Add a row; False where it names no genome of the route."""
        columns = _OLDER if len(row) == len(_OLDER) else COLUMNS
        cells = dict(zip(columns, row, strict=True))
        route = routes[cells["route"]]
        alleles: dict[str, Allele] = {}
        for gene, value in zip(route.genes, cells["alleles"], strict=True):
            if value is None:
                continue
            allele = allele_from_json(value)
            if not gene.contains(allele):
                return False
            alleles[gene.name] = allele
        route.answers.add(alleles, _answer(cells))
        return True


def _answer(cells: Mapping[str, Any]) -> Answer:
    status = Status(cells["status"])
    cost_s = float(cells["cost_s"])
    properties = {str(n): int(value) for n, value in cells.get("properties", {}).items()}
    if status is Status.OK:
        answer = measured(cells["objective"], cost_s, cells["samples"], name="objective")
        return replace(answer, properties=properties) if properties else answer
    failure, message = str(cells["failure"]), str(cells["message"])
    return Answer(
        status=status, cost_s=cost_s, failure=failure, message=message, properties=properties
    )
