"""What costs an evaluation, and random search against what it must be."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from tests.unit.comparison.conftest import write_space

from kernelarc.engine.comparison._play import Play, SpentError, Trajectory
from kernelarc.engine.comparison._random import (
    chance_of_optimum,
    expected_best,
    median_best,
    play_random,
)
from kernelarc.engine.comparison._table import Table, load_table, space_files
from kernelarc.genomes import InputError

LEGAL = 8 * 6 * 2 - 2  # without a = 7, b = 5


def test_a_table_lists_every_legal_genome_once(spaces: Path) -> None:
    table = load_table(spaces / "bowl.json")
    assert len(table.objectives) == LEGAL
    assert len({row.tobytes() for row in table.rows}) == LEGAL
    assert int(np.isnan(table.objectives).sum()) == 7 * 2
    assert table.optimum == 1.0
    best = table.rows[int(np.nanargmin(table.objectives))]
    assert best.tolist() == [5, 2, 1]


def test_only_a_new_legal_genome_costs_anything(spaces: Path) -> None:
    play = Play(load_table(spaces / "bowl.json"), 2)
    assert play.find([7, 5, 0]) is None
    row, failing, other = play.find([5, 2, 1]), play.find([0, 5, 0]), play.find([0, 0, 0])
    assert row is not None
    assert failing is not None
    assert other is not None
    assert [play.evaluate(row), play.evaluate(row)] == [1.0, 1.0]
    assert not play.spent
    assert math.isnan(play.evaluate(failing))
    assert play.spent
    with pytest.raises(SpentError):
        play.evaluate(other)
    assert play.evaluate(row) == 1.0
    assert play.objectives[0] == 1.0
    assert math.isnan(play.objectives[1])


def test_a_budget_larger_than_the_space_ends_with_the_space(spaces: Path) -> None:
    table = load_table(spaces / "bowl.json")
    found = play_random(table, 10 * LEGAL, 3)
    assert len(found) == LEGAL
    assert np.nanmin(found) == table.optimum


def test_a_trajectory_holds_the_best_so_far() -> None:
    found = Trajectory.of([math.nan, 4.0, 5.0, 2.0, 2.0])
    assert found == Trajectory(5, 1, ((2, 4.0), (4, 2.0)))
    assert found.curve(7, before=9.0).tolist() == [9.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0]


def small(tmp_path: Path) -> Table:
    values: dict[tuple[int, int], float | str] = {
        (0, 0): 3.0,
        (0, 1): 1.0,
        (1, 0): "RuntimeFailedConfig",
        (1, 1): 2.0,
    }
    path = write_space(tmp_path / "s.json", lambda a, b, c: values[a, b], sizes=(2, 2, 1))
    return load_table(path)


def test_the_expectation_of_random_search_is_that_of_all_orders(tmp_path: Path) -> None:
    table = small(tmp_path)
    objectives = table.objectives.tolist()
    for n in (1, 2, 3, 4, 6):
        best = [
            min((o for o in drawn if not math.isnan(o)), default=table.worst)
            for drawn in combinations(objectives, min(n, 4))
        ]
        assert expected_best(table, 6)[n - 1] == pytest.approx(np.mean(best))
        met = np.mean([one == table.optimum for one in best])
        assert chance_of_optimum(table, n) == pytest.approx(met)
        ranked = sorted(best)
        low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
        assert low <= median_best(table, 6)[n - 1] <= high


def test_runs_of_random_search_follow_the_exact_curve(spaces: Path) -> None:
    table = load_table(spaces / "slope.json")
    curves = [
        Trajectory.of(play_random(table, 30, seed)).curve(30, table.worst) for seed in range(400)
    ]
    exact = expected_best(table, 30)
    error = np.std(curves, axis=0) / 20
    assert np.all(np.abs(np.mean(curves, axis=0) - exact) < 4.5 * error + 1e-9)


def test_a_folder_without_spaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        space_files(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="holds no recorded space"):
        space_files(tmp_path)


def test_a_space_where_nothing_works_cannot_be_compared_on(tmp_path: Path) -> None:
    path = write_space(tmp_path / "s.json", lambda a, b, c: "CompilationFailedConfig")
    with pytest.raises(InputError, match="no genome of it works") as caught:
        load_table(path)
    assert str(path) in str(caught.value)


def test_permuted_times_are_the_same_times_elsewhere(spaces: Path) -> None:
    plain = load_table(spaces / "bowl.json")
    mixed = load_table(spaces / "bowl.json", permute_seed=1)
    assert sorted(plain.objectives.tolist()[:40]) != sorted(mixed.objectives.tolist()[:40])
    np.testing.assert_array_equal(np.sort(plain.objectives), np.sort(mixed.objectives))
    np.testing.assert_array_equal(np.isnan(plain.objectives), np.isnan(mixed.objectives))
    assert plain.digest != mixed.digest
