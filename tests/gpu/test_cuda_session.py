"""The session: replacement of workers, blame, the coordinator's cleanliness, A/A."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.gpu.figures import context_s, record

from kernelarc.bench import paired_speedup
from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.bench.cuda._session import _time_limit_s
from kernelarc.genomes import (
    Candidate,
    Genome,
    MatmulForm,
    Status,
    StoppedError,
    matmul_operator,
    matmul_problem,
)

PROBLEM = matmul_problem(
    matmul_operator(MatmulForm(residual=True)),
    [{"M": 256, "N": 1024, "K": 1024}, {"M": 96, "N": 512, "K": 640}],
    in_place=True,
)
LIMIT_US = 5.0
LIBRARIES = ("libcuda.", "libcudart", "libcublas", "libnvidia-ml", "libnvrtc")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[CudaSession]:
    with CudaDevice().open(PROBLEM, seed=3, artefacts=tmp_path) as opened:
        yield opened


def candidates(session: CudaSession, count: int, first: int = 1) -> list[Candidate]:
    """Return legal candidates: the heuristics, then samples that the library takes."""
    workload = PROBLEM.workloads[0]
    found: list[Genome] = [seed.genome for seed in session.seeds(workload)]
    rng = np.random.default_rng(0)
    space = session.spaces(workload)["cublaslt"]
    while len(found) < count:
        drawn = [space.sample(rng) for _ in range(200)]
        answers = session.check(workload, drawn)
        found += [g for g, a in zip(drawn, answers, strict=True) if a is None]
    return [
        Candidate(
            number=first + i,
            round=0,
            workload=workload.fingerprint,
            island="engine",
            mutation="sample",
            genome=genome,
        )
        for i, genome in enumerate(dict.fromkeys(found[:count]))
    ]


_COORDINATOR = """
import sys, tempfile
from pathlib import Path
from kernelarc.bench.cuda import CudaDevice
from kernelarc.genomes import MatmulForm, matmul_operator, matmul_problem
problem = matmul_problem(matmul_operator(MatmulForm()), [{"M": 96, "N": 512, "K": 640}])
with CudaDevice().open(problem, seed=3, artefacts=Path(tempfile.gettempdir())) as session:
    workload = problem.workloads[0]
    genome = session.seeds(workload)[0].genome
    assert not session.contest(workload, [genome], rounds=6, baseline=True).failures
    print(Path("/proc/self/maps").read_text())
"""


def test_coordinator_maps_no_cuda_library() -> None:
    root = str(Path(sys.modules["kernelarc"].__path__[0]).parent)
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", _COORDINATOR],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert "/libc" in run.stdout
    assert not [line for line in run.stdout.splitlines() if any(n in line for n in LIBRARIES)]


def test_evaluations_come_in_order_and_checks_go_between(session: CudaSession) -> None:
    asked = candidates(session, 60)
    session.submit(asked, limit={})
    workload = PROBLEM.workloads[0]
    begun = time.perf_counter()
    assert session.check(workload, [c.genome for c in asked]) == [None] * len(asked)
    assert time.perf_counter() - begun < 0.2  # not after sixty evaluations
    numbers = [e.candidate.number for e in session.collect()]
    assert numbers == [c.number for c in asked]


def test_two_workloads_share_a_session(session: CudaSession) -> None:
    for workload in PROBLEM.workloads:
        assert session.baseline_name(workload) == "first heuristic"
        contest = session.contest(
            workload, [session.seeds(workload)[0].genome], rounds=6, baseline=True
        )
        assert not contest.failures
        assert contest.names[-1] == "baseline:first heuristic"


def kill_later(session: CudaSession, number: int, delay_s: float) -> threading.Timer:
    timer = threading.Timer(delay_s, os.kill, (session._worker.pid, number))
    timer.start()
    return timer


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["crash", "hang"])
def test_only_the_culprit_fails_and_the_worker_is_replaced(
    session: CudaSession, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 27 and 28: within two seconds and what a context takes, beyond the candidate's limit."""
    asked = candidates(session, 80)
    session.submit(asked[:20], limit={})
    list(session.collect())
    time.sleep(3.0)  # the worker that stands by has loaded its libraries
    replaced: list[float] = []
    replace = session._replace

    def timed() -> None:
        begun = time.perf_counter()
        replace()
        replaced.append(time.perf_counter() - begun)

    monkeypatch.setattr(session, "_replace", timed)
    session.submit(asked[20:], limit={asked[0].workload: LIMIT_US})
    timer = kill_later(session, number, 0.05)
    seen, gaps, last = [], [], time.perf_counter()
    for evaluation in session.collect():
        seen.append(evaluation)
        gaps.append(time.perf_counter() - last)
        last = time.perf_counter()
    timer.join()
    failed = [e for e in seen if e.failure in {"timeout", "worker died"}]
    assert [e.candidate.number for e in seen] == [c.number for c in asked[20:]]
    assert len(failed) == 1
    assert failed[0].status is (Status.TIMEOUT if number == signal.SIGSTOP else Status.LAUNCH_ERROR)
    assert len(replaced) == 1
    waited_s = _time_limit_s(LIMIT_US) if number == signal.SIGSTOP else 0.0
    alone_s = context_s()
    figures = {
        "device": session.environment.identity["device"],
        "driver": session.environment.identity["driver"],
        "longest_gap_s": max(gaps),
        "of_which_time_limit_s": waited_s,
        "replacing_s": replaced[0],
        "context_alone_s": alone_s,
    }
    record(f"worker replaced after a {'hang' if waited_s else 'crash'}", figures)
    assert max(gaps) - waited_s < 2.0 + alone_s, figures


def test_second_session_on_the_device_is_refused(session: CudaSession, tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match="in use by"):
        CudaDevice().open(PROBLEM, seed=3, artefacts=tmp_path)


def test_equal_things_look_equal(session: CudaSession) -> None:
    """Row 34: twenty contests of one algorithm against itself confirm nothing."""
    workload = PROBLEM.workloads[0]
    genome = session.seeds(workload)[0].genome
    kept = 0
    for _ in range(20):
        contest = session.contest(workload, [genome], rounds=30, baseline=True)
        assert not contest.failures
        first, second = (contest.column(name) for name in contest.names)
        kept += paired_speedup(first, second, claims=20).low > 1.002
    assert kept == 0


def test_environment_names_library_and_path(session: CudaSession) -> None:
    environment = session.environment
    assert environment.identity["cublaslt"].isdigit()
    assert environment.identity["device"]
    assert "libcublasLt" in environment.observations["cublaslt_path"]
    assert CudaDevice().environment().identity == environment.identity
    seen = session.observe()
    assert int(seen["clock_mhz"]) > 0
    assert int(seen["temperature_c"]) > 0


def test_roofline_is_measured_below_the_peaks(session: CudaSession) -> None:
    measured = session.roofline()
    assert measured["copy_bytes_per_s"] > 1e11
    assert measured["matrix_flops_per_s"] > 1e12
