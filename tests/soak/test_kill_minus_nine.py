"""``kill -9`` at random moments: of the coordinator, of a worker, of everything at once.

``make soak`` fires 200 times; ``make test`` fires a few times through the same code.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.campaign.conftest import RecordedSpace, recorded_space
from tests.campaign.killing import comparable, history
from tests.soak.firing import Victim, complete, fire

__all__ = ["recorded_space"]

KILLS = int(os.environ.get("KERNELARC_SOAK_KILLS", "200"))
SEEDS = 5


def replay_under_fire(space: Path, folder: Path, seed: int, *, kills: int, budget: int) -> int:
    """Fire at a campaign over a recorded space; it must equal one that was left alone."""
    (folder / "whole").mkdir(parents=True)
    (folder / "torn").mkdir()
    whole = Victim(target=str(space), folder=folder / "whole", seed=seed, budget=budget)
    complete(whole)
    torn = Victim(target=str(space), folder=folder / "torn", seed=seed, budget=budget, delay_s=0.03)
    shots = fire(torn, kills, np.random.default_rng(seed), longest_s=2.5)
    assert history(torn.store) == history(whole.store)
    assert comparable(torn.store) == comparable(whole.store)
    return sum(shots.values())


def cpu_under_fire(folder: Path, seed: int, *, kills: int, budget: int) -> int:
    """Fire at a campaign on the CPU: nothing acknowledged is lost or repeated."""
    folder.mkdir(parents=True)
    victim = Victim(target="gemm", folder=folder, seed=seed, budget=budget)
    shots = fire(victim, kills, np.random.default_rng(seed), longest_s=6.0)
    assert comparable(victim.store)["evaluations"]["unique"] == budget
    return sum(shots.values())


def test_a_few_kills_on_replay(recorded_space: RecordedSpace, tmp_path: Path) -> None:
    replay_under_fire(recorded_space(), tmp_path / "replay", seed=0, kills=3, budget=60)


@pytest.mark.timeout(300)
def test_a_few_kills_on_the_cpu(tmp_path: Path) -> None:
    cpu_under_fire(tmp_path / "cpu", seed=0, kills=2, budget=12)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_soak_on_replay(seed: int, recorded_space: RecordedSpace, tmp_path: Path) -> None:
    kills = KILLS // 2 // SEEDS
    space = recorded_space()
    assert replay_under_fire(space, tmp_path / "r", seed, kills=kills, budget=600) == kills


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_soak_on_the_cpu(seed: int, tmp_path: Path) -> None:
    kills = KILLS // 2 // SEEDS
    # A fast machine judges about ten candidates between two shots: enough for all of them.
    assert cpu_under_fire(tmp_path / "cpu", seed, kills=kills, budget=20 * kills) == kills
