"""Builds that differ, and of which the device alone can tell that they launch the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.unit.choosing import ChoosingRoute
from tests.unit.test_kernel_session import PROBLEM, WORKLOAD

from kernelarc.bench import DeviceLock
from kernelarc.bench.kernels import KernelSession, _line
from kernelarc.genomes import Candidate, Evaluation, Status


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelSession]:
    monkeypatch.setenv("KERNELARC_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(_line, "_BENCH", "tests.unit.choosing:ChoosingBench")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    with KernelSession(
        "cuda:7",
        7,
        PROBLEM,
        [ChoosingRoute(PROBLEM.operator)],
        seed=1,
        lock=DeviceLock("cuda:7").acquire(),
        artefacts=tmp_path / "artefacts",
        processes=2,
        library=False,
    ) as opened:
        yield opened


def evaluated(
    session: KernelSession, ways: Sequence[str], first: int, *, bound: float | None = None
) -> list[Evaluation]:
    """Return evaluations in the order of the ways."""
    space = session.spaces(WORKLOAD)["planted"]
    candidates = [
        Candidate(number=first + i, round=0, workload=WORKLOAD.fingerprint, island="user",
                  mutation="seed", genome=space.genome({"way": way}))
        for i, way in enumerate(ways)
    ]  # fmt: skip
    session.submit(candidates, limit={} if bound is None else {WORKLOAD.fingerprint: bound})
    return sorted(session.collect(), key=lambda one: one.candidate.number)


def objective(one: Evaluation) -> float:
    assert one.status is Status.OK and one.measurement is not None
    return one.measurement.objective


def test_launches_that_come_to_the_same_are_measured_once(session: KernelSession) -> None:
    found = evaluated(session, ["slow", "slow 1", "slow 2", "slow 3"], 0)
    assert sorted({objective(one) for one in found}) == [31.0, 32.0]
    one, other, apart, third = found
    assert objective(one) == objective(other) == objective(third) != objective(apart)
    (source,) = (e for e in (one, other, third) if "same_as" not in e.properties)
    names = {e.properties["same_as"] for e in (one, other, third) if e is not source}
    assert names == {source.candidate.genome.fingerprint}
    assert "same_as" not in apart.properties
    assert len({e.properties["binary"] for e in (one, other, third)}) == 1, "of what was run"


def test_a_wrong_one_is_wrong_by_every_name(session: KernelSession) -> None:
    found = evaluated(session, ["wrong", "wrong 1"], 0)
    assert {(e.status, e.failure) for e in found} == {(Status.WRONG_RESULT, "error above the cap")}
    assert sum("same_as" in e.properties for e in found) == 1


def test_a_genome_that_is_asked_for_again_is_measured_again(session: KernelSession) -> None:
    assert [objective(evaluated(session, ["slow"], number)[0]) for number in (0, 1)] == [31.0, 32.0]


def test_a_bound_does_not_answer_for_one_that_may_take_longer(session: KernelSession) -> None:
    (stopped,) = evaluated(session, ["slow"], 0, bound=10.0)
    assert stopped.measurement is not None and stopped.measurement.censored
    (also,) = evaluated(session, ["slow 1"], 1, bound=10.0)
    assert also.properties["same_as"] == stopped.candidate.genome.fingerprint
    (whole,) = evaluated(session, ["slow 3"], 2)
    assert whole.measurement is not None and not whole.measurement.censored
    assert "same_as" not in whole.properties and objective(whole) == 32.0


def test_a_new_worker_knows_of_none(session: KernelSession) -> None:
    assert objective(evaluated(session, ["slow"], 0)[0]) == 31.0
    (died,) = evaluated(session, ["dies"], 1)
    assert died.failure == "worker died"
    (again,) = evaluated(session, ["slow 1"], 2)
    assert "same_as" not in again.properties and objective(again) == 31.0
