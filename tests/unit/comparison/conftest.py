"""Small recorded spaces with a known optimum."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

Score = Callable[[int, int, int], float | str]


def write_space(path: Path, score: Score, *, sizes: tuple[int, int, int] = (8, 6, 2)) -> Path:
    """Write a Kernel Tuner cache of three genes; ``a + b`` above 11 is illegal."""
    domains = {name: list(range(size)) for name, size in zip("abc", sizes, strict=True)}
    rows = {}
    for genome in product(*domains.values()):
        if genome[0] + genome[1] > 11:
            continue
        value = score(*genome)
        row: dict[str, object] = {**dict(zip("abc", genome, strict=True)), "time": value}
        if isinstance(value, str):
            row["__error__"] = value
        rows[",".join(map(str, genome))] = row
    document = {
        "device_name": "a device",
        "kernel_name": path.name.partition(".")[0],
        "problem_size": [64, 64],
        "tune_params_keys": list(domains),
        "tune_params": domains,
        "objective": "time",
        "restrictions": ["a + b <= 11"],
        "cache": rows,
    }
    path.write_text(json.dumps(document))
    return path


def bowl(a: int, b: int, c: int) -> float | str:
    """A smooth landscape whose best is at (5, 2, 1), with a strip that does not compile."""
    if b == 5:
        return "CompilationFailedConfig"
    return 1.0 + 0.1 * (a - 5) ** 2 + 0.07 * (b - 2) ** 2 + 0.3 * (1 - c)


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    """A folder of two spaces."""
    folder = tmp_path / "spaces"
    folder.mkdir()
    write_space(folder / "bowl.json", bowl)
    write_space(folder / "slope.json", lambda a, b, c: 2.0 + a + 0.1 * b + 0.01 * c)
    return folder
