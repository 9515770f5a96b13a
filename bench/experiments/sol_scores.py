"""Scores from traces of SOL-ExecBench's own harness: ours beside torch's variants, one method.

    python -m kernelarc.bench.experiments.sol_scores PROBLEM ours.jsonl --baseline name=its.jsonl

PROBLEM is a problem folder or a packaged problem. The baseline of a workload is the fastest of the
traces given and of the reference that the harness times beside every solution. Scores are figures
of the traces' device, not comparable with the public board's.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.bench._scoring import datasheet, limit_us, score
from kernelarc.genomes import (
    Problem,
    Workload,
    bytes_of,
    flops_of,
    load_problem,
    packaged_problem,
    packaged_problems,
    tensor_bytes,
)

Traces = dict[str, dict[str, Any]]


def traces(path: Path) -> Traces:
    """Return the evaluations of a trace file by the workload's uuid."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {row["workload"]["uuid"]: row["evaluation"] for row in rows}


def scored(problem: Problem, ours: Traces, others: Mapping[str, Traces]) -> list[dict[str, Any]]:
    """Return one row a workload that passed; a failed one has its status alone."""
    return [_row(problem, workload, ours, others) for workload in problem.workloads]


def _row(
    problem: Problem, workload: Workload, ours: Traces, others: Mapping[str, Traces]
) -> dict[str, Any]:
    found = ours[workload.uuid]
    row: dict[str, Any] = {"workload": workload.label, "status": found["status"]}
    if found["status"] != "PASSED":
        return row
    operator = problem.operator
    sheet = datasheet(found["environment"]["hardware"])
    times = {name: _latency_us(rows.get(workload.uuid)) for name, rows in others.items()}
    references = [rows.get(workload.uuid) for rows in (ours, *others.values())]
    times["torch eager"] = min(_reference_us(evaluation) for evaluation in references)
    best = min(times, key=lambda name: times[name])
    moved = bytes_of(operator, workload) or tensor_bytes(operator, workload)
    assert sheet is not None
    flops = flops_of(operator, workload)
    least = limit_us(sheet, flops=flops, bytes_moved=moved, dtype="bfloat16")
    assert least is not None
    latency = _latency_us(found)
    result = score(latency, times[best], least)
    return {
        **row,
        "latency_us": round(latency, 3),
        "baseline": best,
        "baselines_us": {n: round(t, 3) if math.isfinite(t) else None for n, t in times.items()},
        "limit_us": round(least, 3),
        "speedup": round(times[best] / latency, 4),
        "score": round(result.value, 4),
        "clamped": result.clamped,
    }


def _latency_us(evaluation: Mapping[str, Any] | None) -> float:
    if evaluation is None or evaluation["status"] != "PASSED":
        return math.inf
    return float(evaluation["performance"]["latency_ms"]) * 1e3


def _reference_us(evaluation: Mapping[str, Any] | None) -> float:
    if evaluation is None or evaluation["status"] != "PASSED":
        return math.inf
    return float(evaluation["performance"]["reference_latency_ms"]) * 1e3 or math.inf


def named_problem(name: str) -> Problem:
    """Return a packaged problem, or the one in a folder."""
    return packaged_problem(name) if name in packaged_problems() else load_problem(name)


def main() -> None:
    """Print a JSON object with a row for each workload and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem")
    parser.add_argument("ours", type=Path)
    parser.add_argument("--baseline", action="append", default=[], metavar="NAME=FILE")
    given = parser.parse_args()
    problem = named_problem(given.problem)
    others = {
        name: traces(Path(path))
        for name, _, path in (text.partition("=") for text in given.baseline)
    }
    ours = traces(given.ours)
    rows = scored(problem, ours, others)
    passed = [row for row in rows if row["status"] == "PASSED"]
    first = next(iter(ours.values()))
    print(
        json.dumps(
            {
                "problem": problem.operator.name,
                "note": "figures of this device in the harness; not the public board's",
                "environment": first["environment"],
                "timestamp": first["timestamp"],
                "passed": f"{len(passed)}/{len(rows)}",
                "mean_score": round(sum(r["score"] for r in passed) / max(len(passed), 1), 4),
                "geomean_speedup": round(
                    math.exp(sum(math.log(r["speedup"]) for r in passed) / max(len(passed), 1)), 4
                ),
                "workloads": rows,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
