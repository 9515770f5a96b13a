"""The experiment that compares searches with and without the bandit: what it plays and says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np

from kernelarc.bench.experiments.resource_bandit import WAYS, Task, compared, paired, play

GENES = {"BLOCK_M": [32, 64, 128, 256], "num_stages": [1, 2, 3, 4], "maxnreg": [0, 64, 128, 192]}


def record(path: Path, best: int) -> Path:
    """Write a recorded space in which a tile wants a cap that grows with it."""
    rows = {
        ",".join(map(str, values)): {
            "time": 1.0
            + abs(values[0] - best) / 64
            + abs(values[1] - 3) / 10
            + abs((values[2] or 255) - values[0]) / 100
        }
        for values in itertools.product(*GENES.values())
    }
    document = {
        "device_name": "A", "kernel_name": "planted", "problem_size": [best],
        "tune_params_keys": list(GENES), "tune_params": GENES, "objective": "time", "cache": rows,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def test_a_campaign_is_followed_by_unique_evaluations(tmp_path: Path) -> None:
    one, two = record(tmp_path / "a.json", 64), record(tmp_path / "b.json", 128)
    for way, teacher in itertools.product(WAYS, (None, two)):
        task = Task(one, teacher, way, seed=3, budget=20, starts=False)
        curve = play(task)
        assert len(curve) == 20
        assert min(curve) >= 1.0
        assert curve == sorted(curve, reverse=True)
        assert curve == play(task)


def test_every_way_is_compared_with_its_own_self_without_the_bandit(tmp_path: Path) -> None:
    paths = [record(tmp_path / "a.json", 64), record(tmp_path / "b.json", 128)]
    found = compared(paths, budgets=(10, 30), seeds=range(2), jobs=1)
    assert found["recordings"] == {
        name: {"genomes": 64, "failed": 0} for name in ("a.json", "b.json")
    }
    assert set(found["figures"]) == {"cold", "cold, begun by rule", "taught"}
    for budgets in found["figures"].values():
        for ways in budgets.values():
            assert set(ways) == set(WAYS)
            assert all(("pairs" in ways[way]) == way.endswith("bandit") for way in ways)
            assert all(ways[way]["over_best"] >= 1.0 for way in ways)
    # Tables without genomes to begin with are searched alike in both situations.
    assert found["figures"]["cold"] == found["figures"]["cold, begun by rule"]


def test_a_gain_is_told_from_chance() -> None:
    rng = np.random.default_rng(1)
    without = rng.normal(0.2, 0.05, size=(3, 20))
    gain = paired(without - 0.05 + rng.normal(0, 0.02, size=(3, 20)), without)
    assert gain["over_without"] < 0.97 and gain["interval"][1] < 1.0 and gain["p"] < 0.001
    chance = paired(without + rng.normal(0, 0.02, size=(3, 20)), without)
    assert chance["interval"][0] < 1.0 < chance["interval"][1] and chance["p"] > 0.05
    same = paired(without, without)
    assert (same["better"], same["worse"], same["p"]) == (0, 0, 1.0)
