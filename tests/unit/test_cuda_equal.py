"""Twenty campaigns in which every genome is as fast as every other end without a KEEP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit import lt_scripted
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice
from tests.unit.lt_twins import REACH, Lent, met, twins

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


# Two names of one algorithm, as tests/gpu has them

PAIR_PROBLEM = matmul_target([{"M": 128, "N": 64, "K": 512}], {})


def test_twins_are_one_algorithm_and_meet_nobody_else(tmp_path: Path) -> None:
    with ScriptedDevice().open(PAIR_PROBLEM, seed=0) as session:
        pair = twins(session, PAIR_PROBLEM.workloads[0])
        for seed in range(CAMPAIGNS):
            store = tmp_path / f"{seed}.db"
            found = met(pair, store, seed=seed, device=Lent(session), problem=PAIR_PROBLEM)
            assert (found.keeps, found.best) == (0, found.start)
            assert found.start == pair[0].fingerprint
            assert found.contests or found.apart > REACH
            kernels = {j.evaluation.properties["attributes"] for j in found.judged}
            assert len(kernels) == 1


def test_an_overrated_twin_is_tried_every_time(tmp_path: Path) -> None:
    with ScriptedDevice().open(PAIR_PROBLEM, seed=0) as session:
        pair = twins(session, PAIR_PROBLEM.workloads[0])
        device = Lent(session, overrated=pair[1])
        for seed in range(CAMPAIGNS):
            found = met(
                pair, tmp_path / f"{seed}.db", seed=seed, device=device, problem=PAIR_PROBLEM
            )
            assert (found.keeps, found.best) == (0, found.start)
            assert {"confirm", "heat"} <= {contest.purpose for contest in found.contests}


class BiasedWorker(ShakyWorker):
    """Its contests are unfair: who may use no scratch memory looks three per cent faster."""

    def contest(
        self, workload: int, rows: Sequence[LtRow], rounds: int, **_: object
    ) -> ContestReply:
        """Lie about some."""
        told = super().contest(workload, rows, rounds)
        unfair = [0.97 if row[9] == 0 else 1.0 for row in rows]
        samples = tuple(
            tuple(v * u for v, u in zip(line, unfair, strict=True)) for line in told.samples
        )
        return ContestReply(samples=samples, failures={}, launches=3)


def test_an_unfair_contest_would_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_session, "WorkerProcess", BiasedWorker)
    with ScriptedDevice().open(PAIR_PROBLEM, seed=0) as session:
        pair = twins(session, PAIR_PROBLEM.workloads[0])
        device = Lent(session, overrated=pair[1])
        found = met(pair, tmp_path / "unfair.db", seed=0, device=device, problem=PAIR_PROBLEM)
    assert found.keeps == 1
