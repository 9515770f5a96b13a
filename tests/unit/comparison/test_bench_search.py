"""``kernelarc bench search``: files, resuming, and bad usage in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.unit.comparison.conftest import write_space

from kernelarc.cli import exit_code
from kernelarc.engine.comparison import Comparison, compare
from kernelarc.engine.comparison._runs import RunLog
from kernelarc.genomes import InputError, MissingPartError


def comparison(spaces: Path, out: Path, **changes: object) -> Comparison:
    values: dict[str, object] = {
        "spaces": spaces,
        "out": out,
        "peers": ("genetic_algorithm", "random"),
        "budgets": (10, 30),
        "repeats": 3,
        "seed": 0,
        "jobs": 1,
    }
    return Comparison(**{**values, **changes})  # type: ignore[arg-type]


def test_files_and_figures(
    spaces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["bench", "search", "--spaces", str(spaces), "-o", str(out), "--repeats", "3"]
    words += ["--budgets", "10,30", "--peers", "genetic_algorithm,random", "--jobs", "1"]
    assert exit_code([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {**json.loads((out / "figures.json").read_text())}
    assert set(printed["methods"]) == {"kernelarc", "genetic_algorithm", "random"}
    assert printed["spaces"]["bowl"]["legal"] == 94
    ours = printed["methods"]["kernelarc"]
    assert ours["means"]["30"]["value"] >= 1.0
    assert ours["means"]["30"]["value"] <= ours["means"]["10"]["value"]
    with (out / "trajectories.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(r["space"], r["method"], r["seed"]) for r in rows} == {
        (space, method, str(seed))
        for space in ("bowl", "slope")
        for method in printed["methods"]
        for seed in range(3)
    }
    best: dict[tuple[str, ...], float] = {}
    for row in rows:
        run = (row["space"], row["method"], row["seed"])
        assert float(row["best"]) <= best.get(run, float("inf"))
        best[run] = float(row["best"])
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    table = (out / "table.txt").read_text()
    assert "genetic_algorithm" in table
    assert "random, exact" in table


def test_runs_that_were_made_are_not_made_again(spaces: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    tell = lambda done, wanted: told.append((done, wanted))  # noqa: E731
    out = tmp_path / "out"
    first = compare(comparison(spaces, out, repeats=1, peers=("random",)), telling=tell)
    assert told[0] == (0, 4)
    with (out / "runs.jsonl").open("a") as file:
        file.write('{"key": "cut in the midd')  # an interruption cuts the last line
    told.clear()
    more = compare(comparison(spaces, out, repeats=2, peers=("random",)), telling=tell)
    assert told[0] == (4, 8)
    assert told[-1] == (8, 8)
    again = compare(comparison(spaces, out, repeats=2, peers=("random",)), telling=tell)
    assert again.methods == more.methods
    assert first.methods.keys() == more.methods.keys()
    assert RunLog(out / "runs.jsonl")


def test_processes_give_what_one_process_gives(spaces: Path, tmp_path: Path) -> None:
    few = {"repeats": 1, "budgets": (10,), "peers": ("random",)}
    one = compare(comparison(spaces, tmp_path / "a", **few))
    two = compare(comparison(spaces, tmp_path / "b", **few, jobs=2))
    assert one.methods == two.methods


def test_on_times_that_were_exchanged_nobody_beats_chance(spaces: Path, tmp_path: Path) -> None:
    wanted = {"repeats": 6, "budgets": (10,), "permute_seed": 7, "peers": ("random",)}
    found = compare(comparison(spaces, tmp_path / "a", **wanted))
    ours = found.methods["kernelarc"].means[10]
    chance = found.methods["random"].means[10]
    assert ours.high >= chance.low
    assert json.loads((tmp_path / "a" / "figures.json").read_text())["permuted"] is True


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budgets": ()}, "--budgets"),
        ({"budgets": (50, 20)}, "must rise"),
        ({"budgets": (0, 20)}, "between 1 and"),
        ({"repeats": 0}, "--repeats"),
        ({"jobs": 0}, "--jobs"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_settings_that_make_no_sense(
    spaces: Path, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        comparison(spaces, tmp_path / "out", **changes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budgets", "50,x"), "--budgets must be whole numbers"),
        (("--peers", "hybrid"), "unknown peer 'hybrid'"),
        (("--spaces", "absent"), "no such folder"),
    ],
)
def test_bad_usage_is_one_line_and_writes_nothing(
    spaces: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    out = tmp_path / "out"
    assert exit_code(["bench", "search", "--spaces", str(spaces), "-o", str(out), *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not out.exists()


def test_one_bad_space_stops_the_comparison_before_it_begins(spaces: Path, tmp_path: Path) -> None:
    write_space(spaces / "dead.json", lambda a, b, c: "RuntimeFailedConfig")
    with pytest.raises(InputError, match=r"dead\.json"):
        compare(comparison(spaces, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_the_extra(
    spaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kernel_tuner", None)
    with pytest.raises(MissingPartError, match=r"kernelarc\[peers\]"):
        compare(comparison(spaces, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
