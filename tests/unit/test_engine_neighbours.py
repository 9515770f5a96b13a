"""What stands as best on one workload is tried early on its neighbours."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_replay_folder import gemm, write

from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import Judged
from kernelarc.storage import open_reader


def judged(store: str, campaign: int) -> list[Judged]:
    with open_reader(store) as reader:
        return list(reader.evaluations(campaign))


def test_a_second_campaign_begins_with_the_best_of_the_nearest_workload(tmp_path: Path) -> None:
    for m, best in ((8, (8, 2)), (512, (1, 8)), (16, (8, 2))):
        write(tmp_path / f"{m}.json", gemm(m), best)
    store = str(tmp_path / "s.db")
    for m in (8, 512, 16):
        run(CampaignSettings(target=str(tmp_path / f"{m}.json"), store=store, budget=16))
    first, second = judged(store, 3)[:2]
    assert first.evaluation.candidate.mutation == second.evaluation.candidate.mutation == "prior"
    found = first.evaluation.candidate.genome
    assert (found["block"], found["ahead"]) == (8, 2), "M = 8 is nearer to 16 than M = 512"


def test_within_a_campaign_a_new_best_goes_to_the_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    for m in (8, 16, 32):
        write(folder / f"{m}.json", gemm(m), (8, 4))
    settings = CampaignSettings(
        target=str(folder), store=str(tmp_path / "s.db"), budget=30, window=2, seed=1
    )
    run(settings)
    passed_on = [
        j for j in judged(settings.store, 1) if j.evaluation.candidate.mutation == "neighbour"
    ]
    assert passed_on
    assert {j.evaluation.candidate.island for j in passed_on} == {"prior"}


def test_without_conclusions_nothing_is_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    for m in (8, 16):
        write(folder / f"{m}.json", gemm(m), (8, 4))
    settings = CampaignSettings(
        target=str(folder), store=str(tmp_path / "s.db"), budget=24, window=2, conclusions=False
    )
    run(settings)
    assert "neighbour" not in {j.evaluation.candidate.mutation for j in judged(settings.store, 1)}
