"""Shared by every test: a lock folder of its own, and a small recorded space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep device locks of parallel test processes apart."""
    folder = tmp_path_factory.getbasetemp() / "locks"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("KERNELARC_LOCK_DIR", str(folder))


def recorded_rows(tile: int, unroll: int) -> dict[str, Any]:
    """Return one row of the small space: tile 16 is best, unroll 4 helps, tile 64 fails at 8."""
    time_ms: float | str = 1.0 + abs(tile - 16) / 16 + abs(unroll - 4) / 8
    if tile == 64 and unroll == 8:
        time_ms = "RuntimeFailedConfig"
    return {"tile": tile, "unroll": unroll, "time": time_ms, "times": [time_ms] * 3}


@pytest.fixture
def small_space(tmp_path: Path) -> Path:
    """Write a Kernel Tuner cache of 28 rows and return its path."""
    parameters = {"tile": [1, 2, 4, 8, 16, 32, 64], "unroll": [1, 2, 4, 8]}
    cache = {
        f"{tile},{unroll}": recorded_rows(tile, unroll)
        for tile in parameters["tile"]
        for unroll in parameters["unroll"]
    }
    path = tmp_path / "small.json"
    path.write_text(
        json.dumps(
            {
                "device_name": "Recorded GPU",
                "kernel_name": "small",
                "problem_size": [1024],
                "tune_params_keys": list(parameters),
                "tune_params": parameters,
                "objective": "time",
                "cache": cache,
            }
        )
    )
    return path
