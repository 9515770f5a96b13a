"""The experiment that compares warm with cold campaigns: which pairs it plays, what it says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench.experiments import warm_start
from kernelarc.bench.experiments.warm_start import COLD, WARM, Pair, Task, figures, pairs_in, play
from kernelarc.genomes import InputError

GENES = {"tile": [8, 16, 32, 64], "stages": [1, 2, 3, 4], "vector": [1, 2, 4]}


def record(
    path: Path,
    device: str,
    *,
    kernel: str = "planted",
    genes: Mapping[str, Sequence[int]] = GENES,
    best: int = 32,
) -> Path:
    """Write a recorded space whose best tile is ``best``."""
    rows = {
        ",".join(map(str, values)): {
            "time": 1.0 + abs(values[0] - best) / 8 + values[1] / 10 + values[2] / 100
        }
        for values in itertools.product(*genes.values())
    }
    cache = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [64],
        "tune_params_keys": list(genes),
        "tune_params": {name: list(values) for name, values in genes.items()},
        "objective": "time",
        "cache": rows,
    }
    path.write_text(json.dumps(cache))
    return path


def test_pairs_are_one_operator_with_the_same_genes_on_two_devices(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a.json", "A"), record(tmp_path / "b.json", "B", best=64)
    record(tmp_path / "c.json", "A", kernel="another")
    record(tmp_path / "d.json", "D", genes={"tiles": [8, 16, 32, 64], "n": [1, 2], "m": [1, 2]})
    assert pairs_in(tmp_path) == [Pair(a, b), Pair(b, a)]
    assert pairs_in(tmp_path)[0].name == "a -> b"


def test_a_folder_without_a_pair_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        pairs_in(tmp_path / "none")
    record(tmp_path / "a.json", "A")
    with pytest.raises(InputError, match="on two devices"):
        pairs_in(tmp_path)


def test_a_campaign_that_is_warm_begins_with_what_did_well_elsewhere(tmp_path: Path) -> None:
    record(tmp_path / "a.json", "A")
    record(tmp_path / "b.json", "B")
    played = play(Task(tuple(pairs_in(tmp_path)), 3, 20, (COLD, WARM)))
    for curves in played.values():
        assert [len(curve) for curve in curves.values()] == [20, 20]
        assert min(curves[COLD]) >= 1.0
        # Both devices' bests are equal, and the earlier campaign had found it, or nearly.
        assert curves[WARM][0] == pytest.approx(1.0, abs=0.1)
        assert curves[COLD] == sorted(curves[COLD], reverse=True)
    # Either direction begins cold from the same seed.
    assert played["a -> b"][COLD] == played["b -> a"][COLD]


def test_figures_tell_a_gain_from_chance() -> None:
    pair, rng = Pair(Path("a.json"), Path("b.json")), np.random.default_rng(0)
    curves = {}
    for seed in range(20):
        noise = float(rng.normal(scale=0.01))
        curves[pair.name, seed] = {COLD: [1.5], WARM: [1.2 + noise], "same": [1.5 + noise]}
    found = figures([pair], range(20), curves, [1], [COLD, WARM, "same"])["1"]
    assert found[WARM]["over_cold"] == pytest.approx(0.8, abs=0.01)
    assert (found[WARM]["better"], found[WARM]["worse"]) == (20, 0)
    assert found[WARM]["p"] < 0.001 < 0.05 < found["same"]["p"]
    assert found[COLD]["over_cold"] == 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no such folder"),
        (["--budgets", "10,many"], "--budgets: must be a whole number from 1 on, not 'many'"),
        (["--seeds", "0"], "--seeds: must be a whole number from 1 on, not '0'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["warm_start", "--spaces", str(tmp_path / "none"), *words])
    with pytest.raises(SystemExit) as ended:
        warm_start.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
