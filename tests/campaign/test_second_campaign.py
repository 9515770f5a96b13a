"""A second campaign in the same store: what is known is not measured again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.campaign.conftest import DOMAINS, RecordedSpace
from tests.campaign.killing import in_dying_child, run_here

from kernelarc.engine import CampaignSettings, resume, run, status
from kernelarc.engine._campaign import build_state, fold
from kernelarc.engine._earlier_credit import credits_of
from kernelarc.engine._run import make_ground
from kernelarc.genomes import Judged
from kernelarc.storage import open_reader, open_writer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def measured(store: Path, campaign: int) -> list[str]:
    """Return the genomes that a campaign spent its budget on."""
    with open_reader(store) as reader:
        return [
            entry.evaluation.candidate.genome.fingerprint
            for _, entry in reader.log(campaign)
            if isinstance(entry, Judged) and entry.evaluation.candidate.mutation != "known"
        ]


def test_known_genomes_are_the_bar_and_cost_nothing(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=60, seed=1, models=False)
    again = run(
        CampaignSettings(target=str(space), store=str(store), budget=40, seed=1, models=False)
    )
    assert again.evaluations.unique == 40
    assert not set(measured(store, 1)) & set(measured(store, 2))
    with open_reader(store) as reader:
        first, second = (reader.bests(c)[0].evaluation.measurement for c in (1, 2))
    assert first is not None
    assert second is not None
    assert second.objective <= first.objective


@pytest.mark.parametrize(
    ("point", "count"), [("campaign-begun", 1), ("before-commit", 1), ("after-commit", 1)]
)
def test_a_second_campaign_that_dies_at_birth_is_born_again(
    point: str, count: int, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, settings = recorded_space(), {"budget": 40, "seed": 2, "models": False}
    stores = [tmp_path / "whole.db", tmp_path / "torn.db"]
    for store in stores:
        run_here(space, store, **settings)
    run_here(space, stores[0], **settings)
    assert in_dying_child(lambda: run_here(space, stores[1], **settings), point, count)
    resume(str(stores[1]))
    assert measured(stores[0], 2) == measured(stores[1], 2)


def elsewhere(space: Path, name: str) -> Path:
    """Write the same space as another device recorded it: half as fast, and another optimum."""
    cache = json.loads(gzip.decompress(space.read_bytes()))
    cache["device_name"] = "Another device"
    unroll = list(DOMAINS).index("unroll")
    for key, row in cache["cache"].items():
        if isinstance(row["time"], float):
            row["time"] = 2.0 * row["time"] + 0.5 * int(key.split(",")[unroll])
            row["times"] = [row["time"]] * 3
    found = space.with_name(name)
    found.write_bytes(gzip.compress(json.dumps(cache).encode()))
    return found


def began_with(store: Path, campaign: int) -> dict[str, Any] | None:
    """Return the credit that a campaign's log says it began with."""
    with open_reader(store) as reader:
        (started,) = (e for e in reader.events(campaign) if e.kind == "started")
    return started.payload.get("credit")


def test_the_controller_begins_with_the_credit_of_earlier_campaigns(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=80, seed=1, models=False)
    assert began_with(store, 1) == {"campaigns": [], "credit": {}}
    run_here(elsewhere(space, "other.json.gz"), store, budget=30, seed=1, models=False)
    handed = began_with(store, 2)
    assert handed is not None
    assert handed["campaigns"] == [1]
    assert any(abs(credit["all"] - 1.0) > 0.01 for credit in handed["credit"].values())
    with open_reader(store) as reader:
        first, second = status(reader, store=str(store))["campaigns"]
    assert (first["controller"]["earlier_campaigns"], first["controller"]["learns"]) == ([], True)
    assert second["controller"]["earlier_campaigns"] == [1]
    awake = {name: part for name, part in second["islands"].items() if "next_share" in part}
    assert sum(part["next_share"] for part in awake.values()) == pytest.approx(1.0, abs=1e-3)
    for name, part in awake.items():
        assert part["earlier_credit"] == pytest.approx(handed["credit"][name]["all"], abs=1e-3)
        own = [o for m, o in part["operators"].items() if not m.startswith("attribute.")]
        assert sum(o["proposals"] for o in own) <= part["proposals"]


def test_the_state_s_credit_is_what_the_store_says(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=120, seed=4, models=False)
    settings = CampaignSettings(target=str(space), store=str(store), models=False)
    with make_ground(settings).open() as session, open_writer(str(store)) as writer:
        state = build_state(session, settings)
        fold(state, writer, 1)
        found = credits_of(writer, 1)
    assert found == state.credits
    assert found.arms()


def test_without_controller_every_island_has_the_same_share(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, store = recorded_space(), tmp_path / "s.db"
    run_here(space, store, budget=120, seed=1, models=False)
    other = elsewhere(space, "other.json.gz")
    run_here(other, store, budget=200, seed=1, models=False, controller=False)
    assert began_with(store, 2) is None
    with open_reader(store) as reader:
        campaign = status(reader, store=str(store))["campaigns"][1]
        proposed = Counter(
            judged.evaluation.candidate.island
            for judged in reader.evaluations(2)
            if not judged.evaluation.candidate.mutation.startswith("attribute.")
        )
    assert not campaign["controller"]["learns"]
    islands = [name for name, part in campaign["islands"].items() if "next_share" in part]
    wanted = [campaign["islands"][name]["next_share"] for name in islands]
    assert wanted == pytest.approx([1 / len(islands)] * len(islands), abs=1e-3)
    asked = [proposed[name] for name in islands]
    assert max(asked) - min(asked) <= 0.2 * max(asked)


@pytest.mark.parametrize("count", [2, 3])
def test_a_second_campaign_elsewhere_goes_on_as_if_it_had_not_died(
    count: int, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space = recorded_space()
    other = elsewhere(space, "other.json.gz")
    settings: dict[str, Any] = {"budget": 60, "seed": 2, "models": False}
    stores = [tmp_path / "whole.db", tmp_path / "torn.db"]
    for store in stores:
        run_here(space, store, **settings)
    run_here(other, stores[0], **settings)
    assert in_dying_child(lambda: run_here(other, stores[1], **settings), "after-commit", count)
    resume(str(stores[1]))
    assert measured(stores[0], 2) == measured(stores[1], 2)
    assert began_with(stores[0], 2) == began_with(stores[1], 2)
