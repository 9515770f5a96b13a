"""``kernelarc bench ablate``: arms that are real, rows, resuming, and bad usage in one line."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.unit.comparison.conftest import write_space

from kernelarc.bench.experiments.held_out_spaces import ROUTE, MadeKernel
from kernelarc.bench.experiments.held_out_spaces import write_space as write_made
from kernelarc.cli import exit_code
from kernelarc.engine import CampaignSettings, plan
from kernelarc.engine._campaign import build_state
from kernelarc.engine.comparison import ARM_NAMES, Comparison, ablate
from kernelarc.engine.comparison._arms import arm_settings
from kernelarc.engine.comparison._ours import play_campaign
from kernelarc.engine.comparison._paired import sign_flip_p
from kernelarc.engine.comparison._table import Table, load_table
from kernelarc.genomes import Boolean, Space, Strategy
from kernelarc.islands import EvolvingIsland
from kernelarc.islands.operators import FAMILIES


@pytest.fixture
def made(tmp_path: Path) -> Table:
    """A space with genes of all eight strategies, on a device that Blackwell's island wakes on."""
    owners = [*Strategy, Strategy.MEMORY]
    genes = [Boolean(name=f"g{i}", strategy=owner) for i, owner in enumerate(owners)]
    kernel = MadeKernel("made", Space(ROUTE, genes, ()), {"one": ()})
    write_made(tmp_path / "made.json.gz", kernel, "one")
    return load_table(tmp_path / "made.json.gz")


def test_rows_table_and_figures_of_two_small_spaces(
    spaces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["bench", "ablate", "--spaces", str(spaces), "-o", str(out), "--repeats", "3"]
    words += ["--budgets", "8,20", "--arms", "isolated,one_island,without_library", "--jobs", "1"]
    assert exit_code([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "ablations.json").read_text())
    assert list(printed["arms"]) == ["full", "isolated", "one_island", "without_library"]
    with (out / "ablations.csv").open() as file:
        rows = list(csv.DictReader(file))
    value = {
        (r["arm"], r["space"], int(r["seed"]), int(r["budget"])): float(r["value"]) for r in rows
    }
    assert len(value) == len(rows) == 4 * 2 * 3 * 2
    table = load_table(spaces / "slope.json")
    for seed in range(3):
        played = play_campaign(table, 20, seed)
        for budget in (8, 20):
            best = float(np.nanmin(played[:budget])) / table.optimum
            assert value["full", "slope", seed, budget] == pytest.approx(best, rel=1e-8)
            for space in ("bowl", "slope"):  # no gene of them is the library's
                same = value["without_library", space, seed, budget]
                assert same == value["full", space, seed, budget]
    arm = printed["arms"]["isolated"]
    logs = np.array(
        [
            [
                math.log(value["isolated", space, seed, 20] / value["full", space, seed, 20])
                for seed in range(3)
            ]
            for space in ("bowl", "slope")
        ]
    )
    assert arm["ratios"]["20"]["value"] == pytest.approx(math.exp(logs.mean()))
    assert arm["chances"]["20"] == pytest.approx(sign_flip_p(logs))
    assert printed["arms"]["without_library"]["spaces"] == 0
    assert printed["arms"]["without_library"]["chances"]["20"] == 1.0
    text = (out / "table.txt").read_text()
    assert all(name in text for name in printed["arms"])


def test_an_interrupted_ablation_goes_on_and_ends_the_same(spaces: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def asked(out: Path, repeats: int, jobs: int) -> Comparison:
        return Comparison(
            spaces=spaces,
            peers=("isolated",),
            budgets=(10,),
            repeats=repeats,
            seed=0,
            out=out,
            jobs=jobs,
        )

    ablate(asked(tmp_path / "a", 1, 1))
    with (tmp_path / "a" / "runs.jsonl").open("a") as file:
        file.write('{"key": "cut in the midd')
    more = ablate(asked(tmp_path / "a", 2, 1), telling=lambda d, w: told.append((d, w)))
    assert told[0] == (4, 8)
    whole = ablate(asked(tmp_path / "b", 2, 2))
    assert more.arms == whole.arms
    rows = [(tmp_path / name / "ablations.csv").read_text() for name in "ab"]
    assert rows[0] == rows[1]


def test_a_run_that_is_cut_off_at_the_optimum_is_the_start_of_the_whole_run(spaces: Path) -> None:
    table = load_table(spaces / "bowl.json")
    whole = play_campaign(table, 90, 3)
    cut = play_campaign(table, 90, 3, until=table.optimum)
    assert len(cut) < len(whole)
    assert np.nanmin(cut) == cut[-1] == table.optimum
    np.testing.assert_array_equal(cut, whole[: len(cut)])


def test_every_arm_changes_what_it_says(made: Table) -> None:
    found = {arm: arm_settings(made, arm) for arm in ARM_NAMES}
    assert None not in found.values()
    assert len({json.dumps(dict(s or {}), sort_keys=True) for s in found.values()}) == len(found)
    owners = {gene.name: gene.strategy for gene in made.genes}
    assert set(owners.values()) == set(Strategy)
    for arm, count in (("one_island", 1), ("two_islands", 2), ("four_islands", 4)):
        settings = found[arm]
        assert settings is not None
        assert len(settings["islands"]) == count
        assert set(settings["strategy"]) == set(owners)
        assert set(settings["strategy"].values()) == set(settings["islands"])
        kept = [n for n, owner in owners.items() if owner in settings["islands"]]
        assert all(settings["strategy"][name] == owners[name] for name in kept) or count == 1


def test_all_eight_islands_wake_on_a_recorded_blackwell_device(made: Table, tmp_path: Path) -> None:
    settings = {"target": str(made.device.recording.path), "store": str(tmp_path / "a.db")}
    for arm in ("full", "eight_islands", "one_island", "without_blackwell"):
        changed = {} if arm == "full" else arm_settings(made, arm)
        awake = plan(CampaignSettings.from_values({**settings, **(changed or {})})).awake
        wanted = {"full": 8, "eight_islands": 8, "one_island": 1, "without_blackwell": 7}[arm]
        assert len(awake) == wanted
        assert ("blackwell" in awake) == (wanted == 8)


def test_one_island_alone_has_everything(made: Table, tmp_path: Path) -> None:
    settings = {"target": str(made.device.recording.path), "store": str(tmp_path / "a.db")}
    changed = CampaignSettings.from_values({**settings, **(arm_settings(made, "one_island") or {})})
    with made.device.open(made.device.problem, seed=0, artefacts=tmp_path) as session:
        (arena,) = build_state(session, changed).arenas.values()
    (island,) = arena.islands.values()
    assert isinstance(island, EvolvingIsland)
    operators = set(island._prior_weights())
    assert operators >= {name for family in FAMILIES.values() for name in family}
    assert operators >= {"model.surrogate", "tensor_core.study", "tensor_core.whole_study"}
    (space,) = arena.spaces.values()
    assert set(space.owned(Strategy.TENSOR_CORE)) == set(space.names)


def test_an_arm_that_changes_nothing_plays_as_the_full_program(spaces: Path) -> None:
    """The rows of such an arm are the full program's; here it is played all the same."""
    table = load_table(spaces / "bowl.json")
    assert arm_settings(table, "without_library") is None
    assert arm_settings(table, "eight_islands") is None
    full = play_campaign(table, 40, 6)
    np.testing.assert_array_equal(play_campaign(table, 40, 6, {"without": ["library"]}), full)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--arms", "isolatd"), "unknown arm 'isolatd' (did you mean 'isolated'?)"),
        (("--budgets", "50,x"), "--budgets must be whole numbers"),
        (("--repeats", "0"), "--repeats"),
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
    assert exit_code(["bench", "ablate", "--spaces", str(spaces), "-o", str(out), *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not out.exists()


def test_a_dead_space_is_refused_before_anything_is_written(spaces: Path, tmp_path: Path) -> None:
    write_space(spaces / "dead.json", lambda a, b, c: "RuntimeFailedConfig")
    out = tmp_path / "out"
    assert exit_code(["bench", "ablate", "--spaces", str(spaces), "-o", str(out)]) == 2
    assert not out.exists()
