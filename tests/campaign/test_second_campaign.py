"""A second campaign in the same store: what is known is not measured again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaign.conftest import RecordedSpace
from tests.campaign.killing import in_dying_child, run_here

from kernelarc.engine import CampaignSettings, resume, run
from kernelarc.genomes import Judged
from kernelarc.storage import open_reader

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
