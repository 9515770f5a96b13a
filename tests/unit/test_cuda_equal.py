"""Twenty campaigns in which every genome is as fast as every other end without a KEEP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit import lt_scripted
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import LtRow, matmul_target
from kernelarc.storage import open_reader

CAMPAIGNS = 20


class ShakyWorker(FormulaWorker):
    """Equal things, unequally timed: each evaluation is off by a per cent, each contest drifts.

    So it is on a GPU: another moment, other buffers, another heat.
    """

    def __init__(self, ordinal: int, *_: object) -> None:
        super().__init__(ordinal)
        self._off = np.random.default_rng(ShakyWorker.seed)

    seed = 0

    def _noisy(self, place: int, row: LtRow, count: int) -> tuple[float, ...]:
        del row
        exact = lt_scripted.time_us(self._tasks[place].job, (700, 5, 1, 0, 0, 0, 9, 0, 7, 0, 1))
        off = exact * (1 + 0.01 * self._off.standard_normal())
        return tuple(float(v) for v in off * (1 + 0.004 * self._off.standard_normal(count)))

    def contest(
        self, workload: int, rows: Sequence[LtRow], rounds: int, **_: object
    ) -> ContestReply:
        """Time all in one drift."""
        exact = 5.0 * (1 + 0.03 * np.sin(np.arange(rounds) / 7 + self._off.random()))
        noise = 1 + 0.0044 * self._off.standard_normal((rounds, len(rows)))
        samples = exact[:, None] * noise
        return ContestReply(
            samples=tuple(tuple(float(v) for v in line) for line in samples),
            failures={},
            launches=3,
        )


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_session, "WorkerProcess", ShakyWorker)
    monkeypatch.chdir(tmp_path)


def test_twenty_campaigns_on_equals_keep_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = finals = 0
    for seed in range(CAMPAIGNS):
        monkeypatch.setattr(ShakyWorker, "seed", seed)
        problem = matmul_target([{"M": 128, "N": 64, "K": 512}], {"residual": True})
        settings = CampaignSettings(
            target="matmul",
            device="cuda:0",
            axes={"M": 128, "N": 64, "K": 512},
            options={"residual": True},
            store=str(tmp_path / f"{seed}.db"),
            budget=40,
            seed=seed,
            models=False,
        )
        result = run(settings, device=ScriptedDevice(), problem=problem)
        (best,) = result.bests
        assert best.is_start, f"seed {seed}: {best}"
        assert any("equals the starting genome" in remark for remark in result.remarks)
        with open_reader(settings.store) as reader:
            contests = reader.contests(1)
        tried += sum(record.purpose == "confirm" for record in contests)
        finals += sum(record.purpose == "final" for record in contests)
    assert tried, "claims were tried: what is tested here did happen"
    assert finals >= CAMPAIGNS
