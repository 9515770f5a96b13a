"""Gains too small to be seen in one evaluation are found side by side, and survive a resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit import lt_scripted
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.engine import CampaignResult, CampaignSettings, _targets, resume, run
from kernelarc.genomes import LtRow, MatmulJob, Verdict
from kernelarc.storage import open_reader


def nearly_equal(job: MatmulJob, row: LtRow) -> float:
    """Return a latency in which only one option matters, by 0.7 %."""
    del job
    return 5.0 * (1.0 + 0.007 * (row[5] != 0) + 0.2 * (row[1] != 5) + 0.2 * (row[6] != 9))


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_session, "WorkerProcess", FormulaWorker)
    monkeypatch.setattr(_targets, "KernelDevice", ScriptedDevice)
    monkeypatch.setattr(lt_scripted, "time_us", nearly_equal)
    monkeypatch.chdir(tmp_path)


def search(budget: int) -> CampaignResult:
    return run(
        CampaignSettings(
            target="matmul",
            device="cuda:0",
            axes={"M": 128, "N": 64, "K": 512},
            options={"residual": True},
            budget=budget,
            seed=5,
            models=False,
        )
    )


def test_a_gain_below_one_per_cent_is_kept_after_a_final() -> None:
    result = search(120)
    (best,) = result.bests
    assert best.genome["custom"] == 0 and not best.is_start and best.audited
    assert best.speedup is not None and 1.004 < best.speedup.low <= best.speedup.value < 1.01
    with open_reader("kernelarc.db") as reader:
        kept = [j for j in reader.evaluations(1) if j.verdict is Verdict.KEEP]
        purposes = [record.purpose for record in reader.contests(1)]
        counts = reader.counts(1)
    assert [j.evaluation.candidate.mutation for j in kept] == ["final.rematch"]
    assert kept[0].evaluation.candidate.island != "engine", "who had found it has the credit"
    assert purposes.index("heat") < purposes.index("final") < purposes.index("confirm")
    assert counts.unique == result.evaluations.unique == 120, "evaluated twice, counted once"


def test_a_campaign_with_finals_goes_on_from_its_log() -> None:
    search(80)
    result = resume("kernelarc.db", budget=60)
    assert result.evaluations.unique == 140
    (best,) = result.bests
    assert best.genome["custom"] == 0 and best.audited
