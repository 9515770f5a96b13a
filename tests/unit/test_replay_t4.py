"""T4 results files: metadata and a list of results, each with its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelarc.bench import Recording, load_recording
from kernelarc.genomes import Genome, Status


def result(a: int, b: str, time: object, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": "2025-05-24 10:00:00",
        "configuration": {"a": a, "b": b},
        "times": {
            "compilation": 900.0,
            "benchmark": 100.0,
            "validation": 0.0,
            "framework": 5.0,
            "search_algorithm": 7.0,
            "runtimes": [2.0, 1.0, 3.0],
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [
            {"name": "time", "value": time, "unit": "ms"},
            {"name": "energy", "value": 4.0, "unit": "J"},
        ],
        "objectives": ["time"],
        **more,
    }


def read(path: Path, results: list[Any], **more: Any) -> Recording:
    document = {
        "results": results,
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds"},
        **more,
    }
    path.write_text(json.dumps(document))
    return load_recording(path)


def test_results_become_rows(tmp_path: Path) -> None:
    found = read(tmp_path / "stencil.json", [result(1, "x", 2.0), result(2, "y", 3.0)])
    assert (found.kind, found.operator.name, found.unit) == ("t4", "stencil", "ms")
    assert found.counts.ok == 2
    assert found.spaces["recorded"].size().legal == 2
    answer = found.answer(Genome("recorded", {"a": 2, "b": "y"}))
    assert answer is not None
    assert answer.objective == 3.0
    assert answer.cost_s == pytest.approx(1.0)
    assert answer.samples == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"invalidity": "timeout"}, Status.TIMEOUT),
        ({"invalidity": "compile"}, Status.COMPILE_ERROR),
        ({"invalidity": "runtime"}, Status.LAUNCH_ERROR),
        ({"invalidity": "correctness"}, Status.WRONG_RESULT),
        ({"invalidity": "constraints"}, Status.REJECTED),
        ({"correctness": 0}, Status.WRONG_RESULT),
        ({"measurements": []}, Status.LAUNCH_ERROR),
        ({"measurements": "none"}, Status.LAUNCH_ERROR),
        ({"invalidity": "unheard of"}, Status.LAUNCH_ERROR),
    ],
)
def test_invalidity_becomes_a_status(
    tmp_path: Path, fields: dict[str, Any], status: Status
) -> None:
    found = read(tmp_path / "a.json", [result(1, "x", 2.0), result(2, "x", 3.0, **fields)])
    answer = found.answer(Genome("recorded", {"a": 2, "b": "x"}))
    assert answer is not None
    assert answer.status is status


def test_the_objective_of_the_file_decides(tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", [result(1, "x", 2.0, objectives=["energy"])])
    answer = found.answer(Genome("recorded", {"a": 1, "b": "x"}))
    assert answer is not None
    assert (answer.objective, found.unit, answer.samples) == (4.0, "J", ())


def test_units_of_time_are_kept(tmp_path: Path) -> None:
    measured = {"measurements": [{"name": "time", "value": 7.0, "unit": ""}]}
    found = read(
        tmp_path / "a.json", [result(1, "x", 0, **measured)], metadata={"timeunit": "microseconds"}
    )
    answer = found.answer(Genome("recorded", {"a": 1, "b": "x"}))
    assert answer is not None
    assert (answer.objective, found.unit) == (7.0, "us")
    assert answer.cost_s == pytest.approx(0.001)


def test_results_that_are_none_are_dropped_and_counted(tmp_path: Path) -> None:
    odd = [result(1, "x", 2.0), 5, {"configuration": {}}, result(1, "x", 2.5)]
    odd.append({**result(1, "x", 1.0), "configuration": {"a": 1}})
    counts = read(tmp_path / "a.json", odd).counts
    assert (counts.rows, counts.dropped, counts.genomes) == (5, 3, 1)
    assert (counts.duplicate, counts.contradictory) == (1, 1)
