"""Format ``kernel_tuner-cache``: a cache file that Kernel Tuner simulates from and resumes.

One file holds one problem size, so several workloads make several files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kernelarc.genomes import Workload
from kernelarc.storage.exports._naming import paths_for
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import GenomeRow, Subject
from kernelarc.storage.exports._tuner_rows import (
    ERRORS,
    TunerTable,
    costs_ms,
    problem_size,
    tuner_table,
)


def kernel_tuner_cache_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write header and one row for each genome, per workload that has a best."""
    chosen = tuple(w for w in subject.workloads if subject.best(w) is not None)
    places = paths_for(path, subject.workloads)
    return {places[w.fingerprint]: partial(_write, subject, w) for w in chosen}


def _write(subject: Subject, workload: Workload, aside: Path) -> None:
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(_texts(subject, workload))


def _texts(subject: Subject, workload: Workload) -> Iterator[str]:
    found = tuner_table(subject, workload)
    head = {
        "device_name": subject.device_label,
        "kernel_name": subject.operator.name,
        "problem_size": problem_size(subject, workload),
        "tune_params_keys": list(found.table.names),
        "tune_params": {name: list(found.table.domains[name]) for name in found.table.names},
        "objective": found.objective,
        "cache": {},
    }
    yield json.dumps(head, indent=0)[: -len("}\n}")]
    for number, row in enumerate(found.rows):
        cells = found.table.cells(row.genome)
        key = ",".join(str(cell) for cell in cells.values())
        text = json.dumps({key: {**cells, **_outcome(found, row)}}, allow_nan=False)[1:-1]
        yield (",\n" if number else "\n") + text
    yield "}\n}\n"


def _outcome(found: TunerTable, row: GenomeRow) -> dict[str, Any]:
    evaluation = row.evaluation
    compile_ms, benchmark_ms = costs_ms(evaluation)
    costs = {
        "compile_time": compile_ms,
        "verification_time": 0.0,
        "benchmark_time": benchmark_ms,
        "framework_time": 0.0,
        "strategy_time": 0.0,
        "kernelarc": _note(row),
    }
    if row.objective is None:
        word = ERRORS[evaluation.status]
        return {found.objective: word, **costs, "__error__": word}
    times = found.times(row)
    return {
        found.objective: row.objective * found.scale,
        **({"times": times} if times and found.unit else {}),
        **costs,
    }


def _note(row: GenomeRow) -> dict[str, Any]:
    """Say what the format has no word for."""
    evaluation = row.evaluation
    note: dict[str, Any] = {"fingerprint": row.genome.fingerprint, "verdict": row.verdict.value}
    if evaluation.measurement is None:
        return {**note, "status": evaluation.status.value, "failure": evaluation.failure}
    if row.best:
        note |= {"best": True, "audited": row.audited}
    if evaluation.measurement.censored:
        note["censored"] = True
    if row.objective != row.measured:
        note["refused_claim"] = {"measured": row.measured, "unit": evaluation.measurement.unit}
    return note
