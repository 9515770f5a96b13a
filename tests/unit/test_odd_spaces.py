"""Campaigns on odd recorded spaces: they end, with the right code, and say what happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelarc.bench import load_recording
from kernelarc.cli import exit_code


def write(path: Path, domains: dict[str, list[Any]], cache: dict[str, Any], **more: Any) -> Path:
    document = {
        "device_name": "d",
        "kernel_name": "k",
        "problem_size": 64,
        "tune_params_keys": list(domains),
        "tune_params": domains,
        "objective": "time",
        **more,
        "cache": cache,
    }
    path.write_text(json.dumps(document))
    return path


def row(a: int, b: int, time: Any) -> tuple[str, dict[str, Any]]:
    return f"{a},{b}", {"a": a, "b": b, "time": time}


def grid(time: Any, n: int = 12) -> dict[str, Any]:
    return dict(row(a, b, time(a, b)) for a in range(n) for b in range(n))


DOMAINS = {"a": list(range(12)), "b": list(range(12))}


def search(
    path: Path, capsys: pytest.CaptureFixture[str], budget: int = 500
) -> tuple[int, dict[str, Any]]:
    words = ["run", str(path), "--budget", str(budget), "--store", str(path.with_suffix(".db"))]
    code = exit_code([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_space_where_everything_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = grid(lambda a, b: "CompilationFailedConfig" if a % 2 else "RuntimeFailedConfig")
    code, found = search(write(tmp_path / "s.json", DOMAINS, cache), capsys)
    assert code == 1
    assert found["best"] is None
    assert (found["status"], found["reason"]) == ("finished", "exhausted")
    assert found["evaluations"]["failed"] == found["evaluations"]["unique"] == 144


def test_a_space_with_one_legal_genome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "s.json", DOMAINS, grid(lambda a, b: 1.0 + a + b), restrictions=["a * b == 121"]
    )
    code, found = search(path, capsys)
    assert code == 0
    assert found["reason"] == "exhausted"
    assert found["evaluations"]["unique"] == 1
    assert found["best"]["genome"] == {"a": 11, "b": 11}


def test_a_space_where_all_are_equal_stops_by_plateau(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = search(write(tmp_path / "s.json", DOMAINS, grid(lambda a, b: 2.5)), capsys)
    assert code == 0
    assert found["reason"] == "plateau"
    assert 100 <= found["evaluations"]["unique"] < 144
    assert found["best"]["objective"] == 2.5


@pytest.mark.parametrize("bad", [float("nan"), -1.0, 0.0, "3.5", "garbage", None, True, 1e30])
def test_times_that_are_no_times_are_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: Any
) -> None:
    """The genome that would be best has no time; it must not win, and must not break anything."""
    cache = dict(
        row(a, b, bad if (a, b) == (0, 0) else 1.0 + a + b) for a in (0, 1) for b in (0, 1)
    )
    path = write(tmp_path / "s.json", {"a": [0, 1], "b": [0, 1]}, cache)
    code, found = search(path, capsys)
    assert code == 0
    assert found["best"]["objective"] == 2.0
    assert (found["evaluations"]["failed"], found["evaluations"]["measured"]) == (1, 3)


def test_of_contradictory_rows_the_last_one_wins_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.json", {"a": [0, 1], "b": [0]}, {})
    rows = [row(0, 0, 1.0), row(1, 0, 5.0), row(0, 0, 7.0), row(1, 0, 5.0)]
    text = ", ".join(f'"{key}": {json.dumps(value)}' for key, value in rows)
    path.write_text(path.read_text().replace('"cache": {}', '"cache": {' + text + "}"))
    counts = load_recording(path).counts
    assert (counts.rows, counts.genomes) == (4, 2)
    assert (counts.duplicate, counts.contradictory) == (2, 1)
    _, found = search(path, capsys)
    assert found["best"]["genome"] == {"a": 1, "b": 0}
    assert found["best"]["objective"] == 5.0


def test_genes_of_one_value_take_no_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    domains: dict[str, list[Any]] = {"a": list(range(12)), "b": [4], "c": ["only"]}
    cache = {
        f"{a},4,only": {"a": a, "b": 4, "c": "only", "time": 1.0 + (a - 7) ** 2} for a in range(12)
    }
    code, found = search(write(tmp_path / "s.json", domains, cache), capsys, budget=6)
    assert code == 0
    assert found["best"]["genome"]["b"] == 4
    assert found["evaluations"]["unique"] == 6


def test_a_space_of_genes_with_one_value_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.json", {"a": [3], "b": [4]}, dict([row(3, 4, 2.0)]))
    code, found = search(path, capsys)
    assert (code, found["reason"]) == (0, "exhausted")
    assert found["best"]["objective"] == 2.0


def test_a_budget_larger_than_the_space_ends_by_exhaustion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.json", DOMAINS, grid(lambda a, b: 1.0 + a + 0.5 * b))
    code, found = search(path, capsys, budget=10_000)
    assert (code, found["reason"]) == (0, "exhausted")
    assert found["evaluations"]["unique"] == 144
