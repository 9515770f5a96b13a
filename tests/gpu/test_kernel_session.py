"""Compiled kernels on a GPU: honest ones pass, planted faults are caught, the campaign goes on."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.gpu.figures import context_s, record
from tests.gpu.planted_route import PlantedKernels

from kernelarc.bench.cuda._process import WorkerProcess
from kernelarc.bench.kernels import KernelDevice, KernelSession
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import (
    LT_ROUTE,
    Candidate,
    Evaluation,
    Genome,
    MatmulForm,
    Problem,
    Status,
    matmul_operator,
    matmul_problem,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def _problem(m: int = 512, n: int = 512, k: int = 512, *, residual: bool = False) -> Problem:
    operator = matmul_operator(MatmulForm(dtype="bfloat16", residual=residual))
    return matmul_problem(operator, [{"M": m, "N": n, "K": k}])


def _open(device: KernelDevice, problem: Problem, folder: Path) -> KernelSession:
    session = device.open(problem, seed=1, artefacts=folder)
    assert isinstance(session, KernelSession)
    return session


def _evaluated(
    session: KernelSession, genomes: Sequence[Genome], limit_us: float | None = None
) -> list[Evaluation]:
    (workload,) = session.problem.workloads
    key = workload.fingerprint
    candidates = [
        Candidate(number=i, round=0, workload=key, island="user", mutation="seed", genome=genome)
        for i, genome in enumerate(genomes)
    ]
    session.submit(candidates, limit={} if limit_us is None else {key: limit_us})
    found = {e.candidate.number: e for e in session.collect()}
    return [found[i] for i in range(len(genomes))]


def _genome(session: KernelSession, way: str, warps: int = 4, idle: bool = False) -> Genome:
    space = session.spaces(session.problem.workloads[0])["planted"]
    return space.genome({"way": way, "num_warps": warps, "idle": idle})


def _binary(evaluation: Evaluation) -> object:
    return evaluation.properties["binary"]


def test_planted_faults_are_caught_and_the_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _problem()
    device = KernelDevice(routes=[PlantedKernels(problem.operator)], processes=4)
    with _open(device, problem, tmp_path) as session:
        session._flow._pool._limit_s = 25.0  # type: ignore[union-attr]
        cases = [
            ("good", 4, None),
            ("wrong with 8 warps", 4, None),
            ("wrong with 8 warps", 8, "error above the cap"),
            ("input", 4, "input changed"),
            ("outside", 4, "written outside its buffers"),
            ("half", 4, "output not finite"),
            ("too much shared memory", 8, "out of shared memory"),
            ("compiler aborts", 4, "compiler crashed"),
            ("illegal", 4, "device fault"),
            ("good", 8, None),
            ("compiler hangs", 4, "compiler timed out"),
            ("hang", 4, "timeout"),
        ]
        line = session._moving()._line
        replaced: list[float] = []
        dying: list[float] = []  # until the driver has taken the old context apart
        replace, kill = line._replace, WorkerProcess.kill

        def timed() -> None:
            begun = time.perf_counter()
            replace()
            replaced.append(time.perf_counter() - begun)

        def timed_kill(worker: WorkerProcess) -> None:
            begun = time.perf_counter()
            kill(worker)
            dying.append(time.perf_counter() - begun)

        monkeypatch.setattr(line, "_replace", timed)
        monkeypatch.setattr(WorkerProcess, "kill", timed_kill)
        found = _evaluated(session, [_genome(session, way, warps) for way, warps, _ in cases], 20.0)
        assert len(replaced) == 2, "after the illegal address and after the hang"
        assert len(dying) == 2, "both who stood by took the problem at once"
        figures = {"replacing_s": replaced, "of_which_dying_s": dying, "context_s": context_s()}
        record("workers of kernels replaced", figures)
        assert [e.failure for e in found] == [failure for _, _, failure in cases]
        by_status = {cases[i][0]: e.status for i, e in enumerate(found)}
        assert by_status["hang"] is Status.TIMEOUT
        assert by_status["illegal"] is Status.LAUNCH_ERROR
        again = _evaluated(session, [_genome(session, "good", idle=True)])
        assert again[0].status is Status.OK
        # "wrong with 8 warps" is the same binary with 4: whichever was built first is measured.
        equal = [e for e in [*found, *again] if e.properties.get("binary") == _binary(found[0])]
        measured = [e for e in equal if "same_as" not in e.properties]
        assert [e.candidate.genome["way"] for e in equal] == ["good", "wrong with 8 warps", "good"]
        assert len(measured) == 1
        names = {e.properties["same_as"] for e in equal if e is not measured[0]}
        assert names == {measured[0].candidate.genome.fingerprint}


def test_genomes_of_both_routes_are_right_and_contested(tmp_path: Path) -> None:
    problem = _problem(1024, 768, 512, residual=True)
    with _open(KernelDevice(processes=8), problem, tmp_path) as session:
        (workload,) = problem.workloads
        spaces = session.spaces(workload)
        assert {LT_ROUTE, "triton"} <= set(spaces)
        rng = np.random.default_rng(7)
        drawn = [spaces["triton"].sample(rng) for _ in range(24)]
        lt = [p.genome for p in session.seeds(workload) if p.genome.route == LT_ROUTE][:2]
        assert session.check(workload, [*drawn, *lt]) == [None] * (len(drawn) + len(lt))
        found = _evaluated(session, [*drawn, *lt])
        good = [e for e in found if e.status is Status.OK]
        wrong = [e for e in found if e.status is Status.WRONG_RESULT]
        assert not wrong, [(e.failure, e.message, dict(e.candidate.genome.items())) for e in wrong]
        assert len(good) >= 20, [(e.failure, e.message) for e in found]
        assert any(e.properties.get("wgmma") for e in good)
        best = min(
            (e for e in good if e.candidate.genome.route == "triton"),
            key=lambda e: e.measurement.objective if e.measurement else 1e9,
        )
        contest = session.contest(
            workload, [best.candidate.genome, lt[0]], rounds=10, baseline=True
        )
        assert contest.names[-1] == "baseline:first heuristic"
        assert not contest.failures
        assert np.isfinite(np.array(contest.samples)).all()
        ours = np.median(contest.column(lt[0].fingerprint))
        base = np.median(contest.column("baseline:first heuristic"))
        assert 0.9 < ours / base < 1.1  # the first heuristic against itself


def test_a_campaign_over_both_routes_ends_with_an_audited_best(tmp_path: Path) -> None:
    settings = CampaignSettings(
        target="matmul",
        device="cuda:0",
        axes={"M": 1024, "N": 1024, "K": 1024},
        budget=60,
        store=str(tmp_path / "store.db"),
    )
    result = run(settings, device=KernelDevice(), problem=_problem(1024, 1024, 1024))
    assert result.status == "finished"
    assert result.best is not None
    assert result.best.audited
