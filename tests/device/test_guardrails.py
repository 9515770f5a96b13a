"""Faults that need cunning, planted in real C kernels, each beside its honest twin.

test_cpu_faults.py plants the plain ones; docs/guardrails.md says which row each stands for. One
session judges them all in one batch: that the others come out right is part of the test.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernelarc.bench import (
    LOCK_DIR_VARIABLE,
    CpuDevice,
    CpuLimits,
    DeviceLock,
    Session,
    last_level_cache_bytes,
)
from kernelarc.bench.cpu._stage import MOST_SLOTS
from kernelarc.genomes import (
    Candidate,
    Choice,
    Evaluation,
    Genome,
    Measurement,
    Problem,
    Space,
    Status,
    StoppedError,
    builtin_problem,
)
from kernelarc.genomes.routes import Route

pytestmark = pytest.mark.timed  # one batch for all tests, on a machine left alone

ROUTE = "planted"
HONEST = ("honest", "slow", "slow_first", "expects_rotation")
WRONG = ("unwritten", "friendly_only", "positive_only", "square_only", "idle_later")
DEADLY = {
    "deep": Status.LAUNCH_ERROR,
    "out_of_memory": Status.LAUNCH_ERROR,
    "stops": Status.TIMEOUT,
}
CHEATS = ("idle_unless_poisoned", "cached_by_value")
ALL = (*HONEST, *WRONG, *DEADLY, *CHEATS, "on_a_thread", "fast_on_zeros", "leaves_a_child")
LIMITS = CpuLimits(hang_s=3.0, least_hang_s=1.0, censor=False)


def planted_route() -> Route:
    return Route(
        name=ROUTE,
        operator="gemm",
        space=Space(ROUTE, (Choice(name="fault", options=(*ALL, "hangs")),)),
        source=(Path(__file__).parent / "planted_gemm.c").read_text(),
        symbol="gemm",
        arguments=("a", "b", "c", "M", "N", "K"),
        base_flags=("-std=gnu11", "-O3", "-march=native"),
    )


def problem(extent: int = 256) -> Problem:
    return builtin_problem("gemm", {"M": extent, "N": extent, "K": extent})


def genome(fault: str) -> Genome:
    return Genome(ROUTE, {"fault": fault})


def candidate(number: int, fault: str, extent: int = 256) -> Candidate:
    return Candidate(
        number=number,
        round=0,
        workload=problem(extent).workloads[0].fingerprint,
        island="user",
        mutation="sample",
        genome=genome(fault),
    )


def fault_of(evaluation: Evaluation) -> str:
    return str(evaluation.candidate.genome["fault"])


def timed(evaluation: Evaluation) -> Measurement:
    assert evaluation.measurement is not None, evaluation
    return evaluation.measurement


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for artefacts; locks lie where every test's own do."""
    locks = tmp_path_factory.getbasetemp() / "locks"
    locks.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_DIR_VARIABLE, str(locks))
        yield tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    device = CpuDevice(routes=(planted_route(),), limits=LIMITS)
    with device.open(problem(), seed=7, artefacts=folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def judged(session: Session) -> Mapping[str, Evaluation]:
    """Every fault, judged in one batch by one session."""
    session.submit([candidate(i, fault) for i, fault in enumerate(ALL)], limit={})
    return {fault_of(evaluation): evaluation for evaluation in session.collect()}


@pytest.mark.parametrize("fault", HONEST)
def test_an_honest_kernel_passes(judged: Mapping[str, Evaluation], fault: str) -> None:
    assert set(judged) == set(ALL)
    assert judged[fault].status is Status.OK, judged[fault].message


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_fails(judged: Mapping[str, Evaluation], fault: str) -> None:
    evaluation = judged[fault]
    assert evaluation.status is Status.WRONG_RESULT, evaluation
    assert evaluation.message
    assert "\n" not in evaluation.message


@pytest.mark.parametrize("fault", DEADLY)
def test_a_deadly_kernel_is_an_outcome_like_any_other(
    judged: Mapping[str, Evaluation], fault: str
) -> None:
    evaluation = judged[fault]
    assert evaluation.status is DEADLY[fault], evaluation
    assert evaluation.failure


def test_work_on_another_thread_does_not_escape_the_clock(
    judged: Mapping[str, Evaluation],
) -> None:
    assert judged["on_a_thread"].status in {Status.REJECTED, Status.WRONG_RESULT}


@pytest.mark.parametrize("fault", CHEATS)
def test_skipping_work_gains_nothing(judged: Mapping[str, Evaluation], fault: str) -> None:
    """Timed calls find outputs poisoned and inputs new: the work is done, or the answer wrong."""
    evaluation = judged[fault]
    if evaluation.status is Status.OK:
        assert min(timed(evaluation).samples) > 0.3 * min(timed(judged["honest"]).samples)
    else:
        assert evaluation.status is Status.WRONG_RESULT


def test_the_time_is_the_median_of_samples_that_are_kept(
    judged: Mapping[str, Evaluation],
) -> None:
    measurement = timed(judged["honest"])
    ordered = sorted(measurement.samples)
    assert len(ordered) >= 5
    middle = len(ordered) // 2
    assert ordered[(len(ordered) - 1) // 2] <= measurement.objective <= ordered[middle]


def test_the_inputs_are_cold_or_the_measurement_says_that_they_are_not(
    judged: Mapping[str, Evaluation],
) -> None:
    rotating = MOST_SLOTS * 3 * 4 * 256**2
    expected = "cold" if rotating > 2 * last_level_cache_bytes() else "warm"
    assert timed(judged["expects_rotation"]).cache == expected


def test_a_slow_first_call_is_not_in_the_time(judged: Mapping[str, Evaluation]) -> None:
    assert max(timed(judged["slow_first"]).samples) < 200_000


def test_zeros_gain_nothing_because_values_are_random(judged: Mapping[str, Evaluation]) -> None:
    assert min(timed(judged["fast_on_zeros"]).samples) >= 4000


def test_a_contest_is_interleaved_keeps_every_sample_and_times_the_baseline_beside(
    session: Session,
) -> None:
    workload = problem().workloads[0]
    contest = session.contest(workload, [genome("honest"), genome("slow")], rounds=6, baseline=True)
    honest, slow = (genome(fault).fingerprint for fault in ("honest", "slow"))
    assert len(contest.samples) == 6
    assert not contest.failures
    assert all(math.isfinite(x) for row in contest.samples for x in row)
    assert min(contest.column(slow)) >= 4000 > min(contest.column(honest))
    assert contest.names[-1] == f"baseline:{session.baseline_name(workload)}"


def test_faster_than_physics_is_an_instrument_fault(session: Session, folder: Path) -> None:
    """An operator that claims a million times its work makes an honest kernel impossible."""
    session.close()
    honest, device = problem(), CpuDevice(routes=(planted_route(),), limits=LIMITS)
    inflated = replace(honest.operator, flops="2000000 * M * N * K")
    with device.open(replace(honest, operator=inflated), seed=1, artefacts=folder) as opened:
        opened.submit([candidate(0, "honest")], limit={})
        (evaluation,) = opened.collect()
        contest = opened.contest(honest.workloads[0], [genome("honest")], rounds=2)
    assert evaluation.failure == "faster than physics"
    assert "instrument fault" in evaluation.message
    assert list(contest.failures.values()) == ["faster than physics"]


def test_even_a_tiny_kernel_never_meets_its_own_output(folder: Path) -> None:
    """So short that many calls make a span: none of them on the slot of another."""
    device = CpuDevice(routes=(planted_route(),), limits=LIMITS)
    with device.open(problem(16), seed=1, artefacts=folder) as opened:
        opened.submit([candidate(0, "expects_rotation", 16)], limit={})
        (evaluation,) = opened.collect()
    assert evaluation.status is Status.OK, evaluation
    assert timed(evaluation).launches > 1


def test_a_second_session_is_refused_until_the_first_is_closed(folder: Path) -> None:
    device = CpuDevice(routes=(planted_route(),))
    refused = pytest.raises(StoppedError, match=f"in use by process {os.getpid()}")
    with device.open(problem(), seed=1, artefacts=folder), refused:
        device.open(problem(), seed=1, artefacts=folder)
    device.open(problem(), seed=1, artefacts=folder).close()


def test_nothing_that_a_candidate_started_is_left_behind(
    session: Session, folder: Path, judged: Mapping[str, Evaluation]
) -> None:
    assert "leaves_a_child" in judged
    session.close()
    deadline = time.monotonic() + 10.0
    while (left := users_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


HANGING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_guardrails import CpuDevice, CpuLimits, candidate, planted_route, problem
device = CpuDevice(routes=(planted_route(),), limits=CpuLimits(hang_s=100.0))
session = device.open(problem(), seed=1, artefacts=Path(sys.argv[2]))
session.submit([candidate(0, "hangs")], limit={})
list(session.collect())
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """A candidate hangs, the coordinator is killed: worker, compilers and lock go with it."""
    folder = tmp_path / "hanging"
    source = Path(__file__).parents[2] / "src"
    parent = subprocess.Popen(
        [sys.executable, "-c", HANGING, str(Path(__file__).parent), str(folder)],
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    deadline = time.monotonic() + 60.0
    while not users_of(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert users_of(folder), "the hanging kernel never ran"
    with pytest.raises(StoppedError, match=f"process {parent.pid}"):
        DeviceLock("cpu").acquire()
    parent.kill()
    parent.wait()
    DeviceLock("cpu").acquire(wait_s=5.0).release()
    deadline = time.monotonic() + 5.0
    while (left := users_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def users_of(folder: Path) -> list[str]:
    """Return processes that have something from a folder loaded."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:
            continue
        if str(folder) in text:
            found.append(maps.parent.name)
    return found
