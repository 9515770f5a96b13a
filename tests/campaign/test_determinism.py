"""Same seed on a deterministic device: the same campaign, whether interrupted or not."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.campaign.conftest import RecordedSpace
from tests.campaign.killing import comparable, history, run_here

from kernelarc.engine import (
    CampaignSettings,
    Counts,
    Observer,
    Progress,
    StopRequest,
    resume,
    run,
)
from kernelarc.engine._campaign import build_state, fold
from kernelarc.engine._run import make_ground
from kernelarc.genomes import Judged
from kernelarc.storage import open_writer


class StopAfter(Observer):
    """Asks for an orderly stop after so many verdicts."""

    def __init__(self, verdicts: int, stop: StopRequest) -> None:
        self.left = verdicts
        self.stop = stop

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.ask()


@pytest.mark.parametrize("seed", range(5))
def test_interrupted_and_resumed_equals_left_alone(
    seed: int, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, torn, whole = recorded_space(), tmp_path / "torn.db", tmp_path / "whole.db"
    settings: Mapping[str, Any] = {"budget": 80, "seed": seed}
    run_here(space, whole, **settings)
    stop = StopRequest()
    asked = CampaignSettings(target=str(space), store=str(torn), **settings)
    cut = run(asked, observer=StopAfter(11 + 7 * seed, stop), stop=stop)
    assert (cut.status, cut.exit_code) == ("interrupted", 3)
    stop = StopRequest()
    resume(str(torn), observer=StopAfter(17, stop), stop=stop)
    resume(str(torn))
    assert history(torn) == history(whole)
    assert comparable(torn) == comparable(whole)


def test_reading_a_log_keeps_no_more_waiting_than_writing_it(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=200, seed=1, models=False)
    settings = CampaignSettings(target=str(space), store=str(store), models=False)
    with make_ground(settings).open() as session, open_writer(str(store)) as writer:
        state = build_state(session, settings)
        fold(state, writer, 1)
        (arena,) = state.arenas.values()
        waiting = sum(len(told.judged) for told in arena._rounds.values())
        assert state.counts.unique == 200
        assert 0 < waiting <= (1 + session.lag) * session.window
        assert sum(n for n, _ in arena.islands["memory"].credit().values()) > 0


def test_a_running_campaign_counts_as_its_store_does(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    """Also where an earlier campaign's best are reused and the device refuses some late."""
    space, store = recorded_space(), tmp_path / "s.db"
    cache = json.loads(gzip.decompress(space.read_bytes()))
    for row in list(cache["cache"].values())[::3]:
        row["time"] = "InvalidConfig"
    space.write_bytes(gzip.compress(json.dumps(cache).encode()))
    last: dict[str, Counts] = {}

    class Watching(Observer):
        def on_progress(self, progress: Progress) -> None:
            last["counts"] = progress.counts

    for seed, wanted in ((1, 40), (2, 60)):
        settings = CampaignSettings(
            target=str(space), store=str(store), budget=wanted, seed=seed, models=False
        )
        done = run(settings, observer=Watching())
        assert last["counts"] == done.evaluations
        assert done.evaluations.measured > 0
        assert done.evaluations.failed > 0
        assert 0 < wanted - done.evaluations.unique <= done.evaluations.rejected


def test_global_random_state_neither_matters_nor_changes(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space = recorded_space()
    for name in ("a", "b"):
        random.seed(name)
        np.random.seed(len(name) + ord(name))  # noqa: NPY002 - the global state is what is tried
        before = (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
        run_here(space, tmp_path / f"{name}.db", budget=60, seed=5)
        assert (random.getstate(), str(np.random.get_state())) == before  # noqa: NPY002
    assert history(tmp_path / "a.db") == history(tmp_path / "b.db")


def test_another_seed_is_another_campaign(recorded_space: RecordedSpace, tmp_path: Path) -> None:
    space = recorded_space()
    for seed in (1, 2):
        run_here(space, tmp_path / f"{seed}.db", budget=40, seed=seed)
    assert history(tmp_path / "1.db") != history(tmp_path / "2.db")


def test_a_finished_campaign_gives_its_result_again_and_can_be_extended(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=30, seed=1)
    first = comparable(store)
    again = resume(str(store))
    assert again.exit_code == 0
    assert comparable(store) == first
    more = resume(str(store), budget=20)
    assert more.evaluations.unique == 50
    assert more.status == "finished"


def test_exhaustion_is_a_normal_end_and_finds_the_optimum(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space = recorded_space()
    settings = CampaignSettings(
        target=str(space), store=str(tmp_path / "s.db"), budget=5000, models=False
    )
    done = run(settings)
    assert (done.reason, done.exit_code) == ("exhausted", 0)
    assert done.evaluations.unique == 1200
    assert done.best is not None
    assert done.best.objective == pytest.approx(5.0)
