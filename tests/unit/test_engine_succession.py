"""A start that is fast only where it was found gives its place to what is surely faster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.bench.cuda._process import LT_BENCH
from kernelarc.bench.cuda._protocol import ContestReply, Request
from kernelarc.engine import CampaignResult, CampaignSettings, _targets, resume, run
from kernelarc.genomes import LtRow, Status
from kernelarc.storage import open_reader

CHEAT, SLOWER = 0.2, 1.6


class CheatingWorker(FormulaWorker):
    """The first algorithm ever timed takes a fifth of its time in the first process, no other."""

    made: ClassVar[int] = 0
    first: ClassVar[LtRow | None] = None

    def __init__(self, ordinal: int, bench: str = LT_BENCH) -> None:
        super().__init__(ordinal, bench)
        self._place = type(self).made
        type(self).made += 1

    def _noisy(self, place: int, row: LtRow, count: int) -> tuple[float, ...]:
        kind = type(self)
        kind.first = kind.first or row
        found = super()._noisy(place, row, count)
        lies = self._place == 0 and row == kind.first
        return tuple(CHEAT * value for value in found) if lies else found


class SlowerWorker(FormulaWorker):
    """All algorithms are alike, and every process after the first runs on a slower machine."""

    made: ClassVar[int] = 0
    contests: ClassVar[list[int]] = []

    def __init__(self, ordinal: int, bench: str = LT_BENCH) -> None:
        super().__init__(ordinal, bench)
        self._factor = SLOWER if type(self).made else 1.0
        type(self).made += 1

    def _noisy(self, place: int, row: LtRow, count: int) -> tuple[float, ...]:
        noise = 1 + 0.001 * self._rng.standard_normal(count)
        return tuple(float(value) for value in 5.0 * self._factor * noise)

    def contest(
        self, workload: int, rows: Sequence[LtRow], rounds: int, **more: object
    ) -> ContestReply:
        if self._factor > 1:
            self.contests.append(len(rows))
        return super().contest(workload, rows, rounds, **more)


def searched(
    worker: type[FormulaWorker], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[CampaignResult, str]:
    monkeypatch.setattr(_session, "WorkerProcess", worker)
    monkeypatch.setattr(_targets, "KernelDevice", ScriptedDevice)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(worker, "made", 0)
    settings = CampaignSettings(
        target="matmul",
        device="cuda:0",
        axes={"M": 512, "N": 64, "K": 512},
        options={"residual": True},
        store=str(folder / "s.db"),
        budget=60,
        seed=2,
        models=False,
    )
    return run(settings), settings.store


def test_a_start_that_cheats_on_time_is_replaced_by_what_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheatingWorker, "first", None)
    result, store = searched(CheatingWorker, tmp_path, monkeypatch)
    assert result.best is not None
    assert result.best.audited and not result.best.is_start
    with open_reader(store) as reader:
        measured = [j.evaluation for j in reader.evaluations(1) if j.evaluation.status is Status.OK]
        audits = [c for c in reader.contests(1) if c.purpose == "audit"]
    start, *others = measured
    assert start.measurement is not None
    assert [(a.subject, a.upheld) for a in audits] == [
        (start.candidate.genome.fingerprint, False),
        (result.best.fingerprint, True),
    ]
    # no other was ever measured faster: without the audit the lie would have stood
    assert (
        min(o.measurement.objective for o in others if o.measurement) > start.measurement.objective
    )

    # the log alone gives the same standing: what is found later must beat the successor
    more = resume(store, budget=60)
    assert more.best is not None and more.best.audited and not more.best.is_start
    assert more.best.objective <= result.best.objective * 1.01
    assert more.best.fingerprint != start.candidate.genome.fingerprint


def test_on_a_machine_that_is_slower_by_now_the_start_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowerWorker, "contests", [])
    result, store = searched(SlowerWorker, tmp_path, monkeypatch)
    assert result.best is not None
    assert result.best.is_start and result.best.audited
    with open_reader(store) as reader:
        assert all(c.upheld for c in reader.contests(1) if c.purpose == "audit")
    assert any(rows > 2 for rows in SlowerWorker.contests), "others were tried beside the start"


class DyingWorker(CheatingWorker):
    """The first process that an audit asks to evaluate the successor takes everything with it."""

    died: ClassVar[bool] = False

    def send(self, request: Request) -> None:
        if request.verb == "evaluate" and self._place > 0 and not type(self).died:
            type(self).died = True
            raise KeyboardInterrupt
        super().send(request)


def test_a_campaign_that_dies_while_a_start_gives_way_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DyingWorker, "first", None)
    monkeypatch.setattr(DyingWorker, "died", False)
    with pytest.raises(KeyboardInterrupt):
        searched(DyingWorker, tmp_path, monkeypatch)
    assert DyingWorker.died
    result = resume(str(tmp_path / "s.db"))
    assert (result.status, result.reason) == ("finished", "budget")
    assert result.best is not None
    assert result.best.audited and not result.best.is_start
