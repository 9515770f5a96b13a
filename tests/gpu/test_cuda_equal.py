"""Twenty campaigns between two names of one algorithm end without a KEEP."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gpu.figures import record
from tests.unit.lt_twins import REACH, Lent, met, twins

from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.genomes import matmul_target

CAMPAIGNS = 20
AXES = {"M": 512, "N": 1024, "K": 1024}
PROBLEM = matmul_target([AXES], {})
(WORKLOAD,) = PROBLEM.workloads


def test_a_campaign_as_users_run_it_keeps_nothing(tmp_path: Path) -> None:
    """It opens the device by itself, and is audited in a worker of its own."""
    with CudaDevice().open(PROBLEM, seed=0, artefacts=tmp_path) as opened:
        pair = twins(opened, WORKLOAD)
    found = met(pair, tmp_path / "own.db", seed=0, axes=AXES)
    assert (found.keeps, found.best) == (0, found.start)
    assert found.contests or found.apart > REACH


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaSession]:
    """One worker for many campaigns: what counts is what contests say, not how sessions open."""
    folder = tmp_path_factory.mktemp("equal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELARC_LOCK_DIR", str(folder))
        with CudaDevice().open(PROBLEM, seed=0, artefacts=folder) as opened:
            yield opened


def test_twenty_campaigns_on_one_algorithm_keep_nothing(
    session: CudaSession, tmp_path: Path
) -> None:
    pair, purposes, timed = twins(session, WORKLOAD), Counter[str](), 0
    begun = time.monotonic()
    for seed in range(CAMPAIGNS):
        store = tmp_path / f"{seed}.db"
        found = met(pair, store, seed=seed, device=Lent(session), problem=PROBLEM)
        assert (found.keeps, found.best) == (0, found.start), f"seed {seed}: {found}"
        assert found.contests or found.apart > REACH, f"seed {seed}: they never met"
        purposes += Counter(contest.purpose for contest in found.contests)
        timed += bool(found.contests)
    seconds = time.monotonic() - begun
    record("campaigns on one algorithm", {**purposes, "met": timed, "seconds": seconds})
    assert timed >= CAMPAIGNS // 2, f"side by side in {timed} campaigns only"


def test_twenty_lucky_evaluations_keep_nothing(session: CudaSession, tmp_path: Path) -> None:
    """The second name looks a fifth faster alone: each campaign tries that claim, and refuses."""
    pair, purposes = twins(session, WORKLOAD), Counter[str]()
    device = Lent(session, overrated=pair[1])
    begun = time.monotonic()
    for seed in range(CAMPAIGNS):
        found = met(pair, tmp_path / f"{seed}.db", seed=seed, device=device, problem=PROBLEM)
        assert (found.keeps, found.best) == (0, found.start), f"seed {seed}: {found}"
        held = Counter(contest.purpose for contest in found.contests)
        assert held["confirm"], f"seed {seed}: its claim was not tried"
        purposes += held
    seconds = time.monotonic() - begun
    record("campaigns on an overrated equal", {**purposes, "seconds": seconds})
    assert purposes["heat"] >= CAMPAIGNS // 2, "it came near enough for a final, too"
