"""A session on the device cpu: lock, cache, pauses, contests, and what is left when it ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kernelarc.bench import (
    LOCK_DIR_VARIABLE,
    CpuDevice,
    CpuLimits,
    Session,
    lock_path,
    naive_gemm_route,
)
from kernelarc.bench.cpu._baseline import baseline_forms, blas_text
from kernelarc.bench.cpu._contest import BaselineContender
from kernelarc.bench.cpu._stage import Slot
from kernelarc.genomes import (
    Axis,
    Candidate,
    Choice,
    Evaluation,
    Genome,
    InputError,
    MissingPartError,
    Operator,
    Problem,
    Space,
    Status,
    StoppedError,
    TensorSpec,
    Tolerance,
    Workload,
    builtin_problem,
)
from kernelarc.genomes.routes import Route

LOGGING_CC = """#!/bin/sh
case "$*" in *--version*) exec {cc} "$@" ;; esac
{cc} "$@"
code=$?
echo ended >> "{log}"
exit $code
"""


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path))


@pytest.fixture
def problem() -> Problem:
    return builtin_problem("gemm", {"M": 96, "N": 112, "K": 80})


@pytest.fixture
def compiled(tmp_path: Path) -> tuple[str, Path]:
    """A compiler that writes down that it ended, and where."""
    script, log = tmp_path / "logging-cc", tmp_path / "compiled.log"
    script.write_text(LOGGING_CC.format(cc=os.environ.get("CC") or "cc", log=log))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script), log


@pytest.fixture
def session(tmp_path: Path, problem: Problem, compiled: tuple[str, Path]) -> Iterator[Session]:
    device = CpuDevice(compiler=compiled[0], routes=[naive_gemm_route()])
    with device.open(problem, seed=3, artefacts=tmp_path / "artefacts") as opened:
        yield opened


def sampled(session: Session, n: int, seed: int = 4, route: str = "cpu") -> list[Candidate]:
    workload = session.problem.workloads[0]
    space, rng = session.spaces(workload)[route], np.random.default_rng(seed)
    return [
        Candidate(
            number=number,
            round=0,
            workload=workload.fingerprint,
            island="memory",
            mutation="sample",
            genome=space.sample(rng),
        )
        for number in range(n)
    ]


def test_random_genomes_are_measured_and_nothing_compiles_meanwhile(
    session: Session, compiled: tuple[str, Path]
) -> None:
    candidates = sampled(session, 4)
    session.submit(candidates, limit={})
    evaluations: list[Evaluation] = []
    for evaluation in session.collect():
        evaluations.append(evaluation)
        ended = compiled[1].read_text().split()
        assert len(ended) == 4, "the whole batch was compiled before the first was judged"
    assert sorted(e.candidate.number for e in evaluations) == [0, 1, 2, 3]
    for evaluation in evaluations:
        assert evaluation.status is Status.OK, evaluation
        assert evaluation.measurement is not None
        assert evaluation.measurement.unit == "us"
        assert evaluation.measurement.cache in {"cold", "warm"}
        assert evaluation.measurement.objective > 0
        assert "binary" in evaluation.properties
    assert list(session.collect()) == []


def test_what_is_clearly_slower_is_censored_and_a_bound(session: Session) -> None:
    workload = session.problem.workloads[0]
    (candidate,) = sampled(session, 1)
    session.submit([candidate], limit={workload.fingerprint: 1.0})
    (evaluation,) = session.collect()
    assert evaluation.measurement is not None and evaluation.measurement.censored
    assert len(evaluation.measurement.samples) < 5
    assert evaluation.measurement.objective == min(evaluation.measurement.samples)


def test_a_second_session_finds_the_binaries(tmp_path: Path, problem: Problem) -> None:
    binaries = []
    for _ in range(2):
        with CpuDevice().open(problem, seed=1, artefacts=tmp_path / "kept") as opened:
            opened.submit(sampled(opened, 1), limit={})
            (evaluation,) = opened.collect()
            binaries.append(evaluation.properties["binary"])
            libraries = {p: p.stat().st_mtime_ns for p in (tmp_path / "kept").rglob("*.so")}
    assert binaries[0] == binaries[1]
    assert len(libraries) == 1
    assert not list((tmp_path / "kept").rglob("build-*")), "scratch folders are removed"


def test_a_contest_has_a_column_for_everybody_and_the_baseline(session: Session) -> None:
    workload = session.problem.workloads[0]
    naive = Genome("naive", {"optimise": "O3"})
    genomes = [sampled(session, 1)[0].genome, naive]
    contest = session.contest(workload, genomes, rounds=3, baseline=True)
    name = session.baseline_name(workload)
    assert name is not None and name.startswith("numpy.") and "thread" in name
    assert contest.names == (*(g.fingerprint for g in genomes), f"baseline:{name}")
    assert contest.failures == {}
    assert len(contest.samples) == 3
    assert all(value > 0 for row in contest.samples for value in row)


def test_rmsnorm_and_residual_run_too(tmp_path: Path) -> None:
    problems = [
        builtin_problem("add_rmsnorm", {"rows": 70, "hidden": 130}),
        builtin_problem("gemm", {"M": 50, "N": 60, "K": 70}, {"residual": True}),
    ]
    for problem in problems:
        with CpuDevice().open(problem, seed=1, artefacts=tmp_path / "a") as opened:
            opened.submit(sampled(opened, 2), limit={})
            assert [e.status for e in opened.collect()] == [Status.OK, Status.OK]
            workload = problem.workloads[0]
            genome = sampled(opened, 1)[0].genome
            contest = opened.contest(workload, [genome], rounds=2, baseline=True)
            assert contest.failures == {}


def test_several_workloads_share_a_session(tmp_path: Path) -> None:
    first = builtin_problem("gemm", {"M": 40, "N": 50, "K": 60})
    second = builtin_problem("gemm", {"M": 64, "N": 32, "K": 16})
    both = Problem(operator=first.operator, workloads=(*first.workloads, *second.workloads))
    with CpuDevice().open(both, seed=1, artefacts=tmp_path / "a") as opened:
        (one,) = sampled(opened, 1)
        candidates = [
            Candidate(
                number=number,
                round=0,
                workload=workload.fingerprint,
                island="user",
                mutation="sample",
                genome=one.genome,
            )
            for number, workload in enumerate(both.workloads)
        ]
        opened.submit(candidates, limit={})
        seen = {e.candidate.workload: e for e in opened.collect()}
    assert set(seen) == {w.fingerprint for w in both.workloads}
    assert all(e.status is Status.OK for e in seen.values())


def test_check_says_why_in_words(session: Session) -> None:
    workload = session.problem.workloads[0]
    good = sampled(session, 1)[0].genome
    illegal = Genome("cpu", {**good, "mr": 5})
    elsewhere = Genome("cuda", {})
    extra = Genome("cpu", {**good, "unknown": 1})
    verdicts = session.check(workload, [good, illegal, elsewhere, extra])
    assert verdicts[0] is None
    assert verdicts[1] is not None and "mr" in verdicts[1]
    assert verdicts[2] is not None and "cuda" in verdicts[2]
    assert verdicts[3] is not None
    assert session.seeds(workload) == (), "the start is a random legal genome"


def test_a_second_session_is_refused_by_name(session: Session, tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=str(os.getpid())):
        CpuDevice().open(session.problem, seed=1, artefacts=tmp_path / "b")
    session.close()
    session.close()
    with CpuDevice().open(session.problem, seed=1, artefacts=tmp_path / "b"):
        pass


def children(pid: int) -> set[int]:
    return {
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    }


def test_no_child_holds_the_lock_and_none_outlives_the_session(
    tmp_path: Path, problem: Problem
) -> None:
    before = children(os.getpid())
    opened = CpuDevice().open(problem, seed=1, artefacts=tmp_path / "a")
    opened.submit(sampled(opened, 1), limit={})
    assert [e.status for e in opened.collect()] == [Status.OK]
    ours = children(os.getpid()) - before
    assert len(ours) >= 2, "a worker and its spare"
    lock = str(lock_path("cpu"))
    for child in ours:
        held = [str(fd.readlink()) for fd in Path(f"/proc/{child}/fd").iterdir()]
        assert lock not in held
    opened.close()
    assert children(os.getpid()) - before == set()


ORPHANS = """
import sys
from pathlib import Path
from kernelarc.bench import CpuDevice
from kernelarc.genomes import Candidate, Choice, Genome, Space, builtin_problem
from kernelarc.genomes.routes import Route

route = Route(
    name="stuck", operator="gemm", space=Space("stuck", (Choice(name="n", options=(1,)),)),
    source="int stuck(float *c) { for (volatile int on = 1; on;) {} return c != 0; }",
    symbol="stuck", arguments=("c",),
)
problem = builtin_problem("gemm", {"M": 8, "N": 8, "K": 8})
with CpuDevice(routes=[route]).open(problem, seed=1, artefacts=Path(sys.argv[1])) as session:
    session.submit([Candidate(
        number=0, round=0, workload=problem.workloads[0].fingerprint, island="user",
        mutation="sample", genome=Genome("stuck", {"n": 1}),
    )], limit={})
    print(*session._bench.pids(), session._pool._started().pid, flush=True)
    list(session.collect())
"""


def test_workers_end_when_the_coordinator_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    coordinator = subprocess.Popen(
        [sys.executable, "-c", ORPHANS, str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert coordinator.stdout is not None
    pids = [int(word) for word in coordinator.stdout.readline().split()]
    assert len(pids) == 3
    time.sleep(2.0)
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait()
    coordinator.stdout.close()
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    with CpuDevice().open(
        builtin_problem("gemm", {"M": 8, "N": 8, "K": 8}), seed=1, artefacts=tmp_path / "a"
    ):
        pass


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_without_a_compiler_the_message_says_what_to_install(
    tmp_path: Path, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(MissingPartError, match="apt install gcc"):
        CpuDevice().environment()
    with pytest.raises(MissingPartError, match="no-such-cc"):
        CpuDevice().open(problem, seed=1, artefacts=tmp_path / "a")
    with pytest.raises(MissingPartError, match="version"):
        CpuDevice(compiler="false").environment()


def test_what_cannot_run_here_is_refused_before_the_lock_is_taken(tmp_path: Path) -> None:
    huge = builtin_problem("gemm", {"M": 2_000_000, "N": 2_000_000})
    with pytest.raises(InputError, match="GiB"):
        CpuDevice().open(huge, seed=1, artefacts=tmp_path / "a")
    gemm = builtin_problem("gemm").operator
    other = Operator(name="other", axes=gemm.axes, inputs=gemm.inputs, outputs=gemm.outputs)
    unknown = Problem(
        operator=other,
        workloads=(Workload(operator=other.fingerprint, axes={"M": 1, "N": 1, "K": 1}),),
    )
    with pytest.raises(InputError, match="no route for operator 'other'"):
        CpuDevice().open(unknown, seed=1, artefacts=tmp_path / "a")
    assert not lock_path("cpu").exists()


def test_the_environment_names_compiler_and_blas_and_ones_own_routes() -> None:
    plain, own = CpuDevice().environment(), CpuDevice(routes=[naive_gemm_route()]).environment()
    assert "openblas" in plain.identity["blas"].lower() or plain.identity["blas"]
    assert plain.identity["compiler"]
    assert plain.fingerprint == CpuDevice().environment().fingerprint
    assert plain.fingerprint != own.fingerprint


def test_time_limits_follow_the_incumbent(tmp_path: Path, problem: Problem) -> None:
    limits = CpuLimits(hang_s=20.0, least_hang_s=0.5)
    with CpuDevice(limits=limits).open(problem, seed=1, artefacts=tmp_path / "a") as opened:
        assert opened._hang_s(None) == 20.0
        assert opened._hang_s(10.0) == 0.5
        assert opened._hang_s(1e5) == pytest.approx(5.0)
        assert opened._hang_s(1e9) == 20.0


def test_a_light_kernel_has_time_for_what_happens_between_its_timings(tmp_path: Path) -> None:
    """Changing the values of large vectors takes many times as long as adding them."""
    operator = Operator(
        name="add",
        axes={"n": Axis(name="n", kind="var")},
        inputs=tuple(TensorSpec(name=name, shape=("n",), dtype="float32") for name in "xy"),
        outputs=(TensorSpec(name="z", shape=("n",), dtype="float32"),),
        reference="def run(x, y):\n    return x + y\n",
    )
    route = Route(
        name="plain",
        operator="add",
        source="int add(const float *x, const float *y, float *z, long n)\n"
        "{ for (long i = 0; i < n; i++) z[i] = x[i] + y[i]; return 0; }\n",
        symbol="add",
        arguments=("x", "y", "z", "n"),
        space=Space("plain", (Choice(name="level", options=("O3",)),)),
        flags={"level": {"O3": ("-O3",)}},
    )
    random: Mapping[str, Any] = {"type": "random"}
    workload = Workload(
        operator=operator.fingerprint,
        axes={"n": 2_000_000},
        inputs={"x": random, "y": random},
        tolerance=Tolerance(max_atol=1e-6, max_rtol=1e-6, required_matched_ratio=1.0),
    )
    device = CpuDevice(routes=[route], limits=CpuLimits(hang_s=10.0, least_hang_s=0.5))
    problem = Problem(operator=operator, workloads=(workload,))
    with device.open(problem, seed=3, artefacts=tmp_path / "a") as opened:
        (candidate,) = sampled(opened, 1, route="plain")
        opened.submit([candidate], limit={workload.fingerprint: 5000.0})
        (evaluation,) = opened.collect()
    assert evaluation.status is Status.OK, evaluation


def test_numpys_blas_is_tried_on_one_thread_too() -> None:
    before = blas_text()
    if before.endswith(", 1 threads") or not before.endswith(" threads"):
        pytest.skip("NumPy's BLAS uses one thread here")
    forms = baseline_forms(builtin_problem("gemm").operator)
    (alone,) = (form for name, form in forms.items() if name.endswith(", 1 thread)"))
    seen: list[str] = []

    def spying(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
        seen.append(blas_text())
        alone.form(given, out)

    a, b = (np.random.default_rng(1).random((40, 40), dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    slot = SimpleNamespace(buffers=SimpleNamespace(inputs={"a": a, "b": b}, outputs={"c": c}))
    contender = BaselineContender("alone", replace(alone, form=spying))
    assert contender.run([cast("Slot", slot)] * 2) > 0
    assert seen == [before.rpartition(",")[0] + ", 1 threads"] * 2
    assert blas_text() == before
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
