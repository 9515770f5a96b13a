"""Every method plays a small space: real campaigns, real peers."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.unit.comparison.conftest import bowl, write_space

from kernelarc.engine import CampaignSettings, result_of, run
from kernelarc.engine.comparison import FAMILIES, METHODS, methods_named
from kernelarc.engine.comparison._kernel_tuner import _seeded, play_strategy
from kernelarc.engine.comparison._ours import play_campaign
from kernelarc.engine.comparison._table import load_table
from kernelarc.genomes import InputError
from kernelarc.storage import open_reader

BUDGET = 25


@pytest.mark.parametrize("name", [n for n in METHODS if n != "optuna_gp"])
def test_a_method_stays_within_the_budget_and_repeats_nothing(name: str, spaces: Path) -> None:
    table = load_table(spaces / "slope.json")  # every genome another time
    found = METHODS[name].play(table, BUDGET, 5)
    assert 0 < len(found) <= BUDGET
    assert len(set(found)) == len(found)
    assert set(found) <= set(table.objectives.tolist())


@pytest.mark.parametrize("name", ["kernelarc", "optuna_tpe", "genetic_algorithm", "random"])
def test_equal_seeds_give_equal_runs(name: str, spaces: Path) -> None:
    table = load_table(spaces / "bowl.json")
    first, again, other = (METHODS[name].play(table, BUDGET, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other, equal_nan=True)


def test_ours_is_what_run_does(spaces: Path, tmp_path: Path) -> None:
    table = load_table(spaces / "bowl.json")
    found = play_campaign(table, BUDGET, 4)
    store = str(tmp_path / "a.db")
    settings = CampaignSettings(
        target=str(spaces / "bowl.json"), budget=BUDGET, seed=4, store=store
    )
    result = run(settings)
    assert result.best is not None
    assert np.nanmin(found) == result.best.objective
    assert len(found) == result.evaluations.unique == BUDGET
    assert int(np.isnan(found).sum()) == result.evaluations.failed
    with open_reader(store) as reader:
        assert result_of(reader, 1, store=store).evaluations.audits > 0


def test_failures_are_no_measurements_for_the_repaired_bayes_opt(tmp_path: Path) -> None:
    """A strip of failures beside the optimum: as shipped the strategy fits 1.8e308 to it."""
    path = write_space(tmp_path / "bowl.json", bowl, sizes=(12, 6, 2))
    table = load_table(path)
    reached = [np.nanmin(play_strategy(table, 40, seed, "bayes_opt")) for seed in range(3)]
    assert min(reached) < 1.2


def test_names_and_families() -> None:
    names = [method.name for method in methods_named(("optuna", "random", "optuna_tpe"))]
    assert names == ["kernelarc", *FAMILIES["optuna"], "random"]
    with pytest.raises(InputError, match="did you mean 'random'"):
        methods_named(("randon",))


def test_a_campaign_that_is_told_to_stop_is_no_whole_run(spaces: Path) -> None:
    table = load_table(spaces / "bowl.json")
    table.device._delay_s = 0.05
    stopper = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    stopper.start()
    with pytest.raises(KeyboardInterrupt):
        play_campaign(table, 90, 1)
    stopper.join()


def test_peers_leave_the_global_streams_as_they_found_them() -> None:
    ours, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    with _seeded(5):
        first = random.random(), np.random.random()  # noqa: NPY002
    with _seeded(5):
        assert (random.random(), np.random.random()) == first  # noqa: NPY002
    assert random.getstate() == ours
    assert np.array_equal(np.random.get_state()[1], arrays[1])  # type: ignore[index]  # noqa: NPY002
