"""A recorded space that campaigns run over."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

RecordedSpace = Callable[..., Path]
Alleles = dict[str, int]


def trapped(alleles: Alleles) -> bool:
    """Tell where the space fails unless told otherwise: one pair of alleles."""
    return alleles["vector"] == 8 and alleles["stage"] == 1


def cost(a: Alleles) -> float:
    """Return the recorded time, 5.0 at the one optimum."""
    found = 5.0 + abs(a["tile_m"] - 64) / 16 + abs(a["tile_n"] - 128) / 32
    found += abs(a["vector"] - 4) * 0.7 + 0.9 * (a["stage"] == 0)
    return found + 0.3 * abs(a["unroll"] - 3) + 0.4 * (a["order"] == (a["tile_m"] > 32))


DOMAINS = {
    "tile_m": [16, 32, 64, 128],
    "tile_n": [16, 32, 64, 128],
    "vector": [1, 2, 4, 8],
    "stage": [0, 1],
    "unroll": [1, 2, 3, 4, 5],
    "order": [0, 1],
}


def _row(alleles: Alleles, fail: Callable[[Alleles], bool]) -> dict[str, object]:
    if fail(alleles):
        return {"time": "RuntimeFailedConfig", "compile_time": 200.0}
    time = cost(alleles)
    return {"time": time, "times": [time] * 3, "compile_time": 100.0}


@pytest.fixture
def recorded_space(tmp_path: Path) -> RecordedSpace:
    """Return a function that writes a recorded space of ours: 6 genes, 1,200 legal genomes."""

    def write(name: str = "recorded.json.gz", fail: Callable[[Alleles], bool] = trapped) -> Path:
        genomes = [dict(zip(DOMAINS, values, strict=True)) for values in product(*DOMAINS.values())]
        rows = {
            ",".join(map(str, alleles.values())): _row(alleles, fail)
            for alleles in genomes
            if alleles["tile_m"] * alleles["tile_n"] <= 8192
        }
        cache = {
            "device_name": "Test device",
            "kernel_name": "planted",
            "problem_size": [512, 512],
            "tune_params_keys": list(DOMAINS),
            "tune_params": DOMAINS,
            "objective": "time",
            "restrictions": ["tile_m * tile_n <= 8192"],
            "cache": rows,
        }
        path = tmp_path / name
        text = json.dumps(cache).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write
