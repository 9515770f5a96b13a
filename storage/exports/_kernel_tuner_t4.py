"""Format ``kernel_tuner-t4``: the results file of the autotuning community's T4 schema 1.0.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kernelarc.genomes import Status, Workload
from kernelarc.storage.exports._naming import paths_for
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import GenomeRow, Subject
from kernelarc.storage.exports._tuner_rows import (
    TunerTable,
    costs_ms,
    problem_size,
    tuner_table,
)

SCHEMA_VERSION = "1.0.0"
_INVALIDITY = {
    Status.OK: "correct",
    Status.COMPILE_ERROR: "compile",
    Status.LAUNCH_ERROR: "runtime",
    Status.TIMEOUT: "timeout",
    Status.WRONG_RESULT: "correctness",
}


def kernel_tuner_t4_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write metadata and one result for each genome, per workload that has a best."""
    chosen = tuple(w for w in subject.workloads if subject.best(w) is not None)
    places = paths_for(path, subject.workloads)
    return {places[w.fingerprint]: partial(_write, subject, w) for w in chosen}


def _write(subject: Subject, workload: Workload, aside: Path) -> None:
    found = tuner_table(subject, workload)
    with aside.open("w", encoding="utf-8") as file:
        json.dump(
            {
                "schema_version": SCHEMA_VERSION,
                "metadata": _metadata(subject, workload),
                "results": [_result(found, row) for row in found.rows],
            },
            file,
            indent=1,
            allow_nan=False,
        )


def _metadata(subject: Subject, workload: Workload) -> dict[str, Any]:
    return {
        "timeunit": "milliseconds",
        "kernel_name": subject.operator.name,
        "problem_size": problem_size(subject, workload),
        "device_name": subject.device_label,
        "environment": {
            "device_query": dict(subject.campaign.environment.identity),
            "requirements": [],
        },
    }


def _result(found: TunerTable, row: GenomeRow) -> dict[str, Any]:
    evaluation = row.evaluation
    compile_ms, benchmark_ms = costs_ms(evaluation)
    measurements = []
    if row.objective is not None:
        value = row.objective * found.scale
        measurements.append({"name": found.objective, "value": value, "unit": found.unit})
    return {
        "configuration": found.table.cells(row.genome),
        "objectives": [found.objective],
        "times": {
            "compilation": compile_ms,
            "benchmark": benchmark_ms,
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": found.times(row) if found.unit else [],
        },
        "invalidity": _INVALIDITY[evaluation.status],
        "correctness": 0 if evaluation.status is Status.WRONG_RESULT else 1,
        "measurements": measurements,
    }
