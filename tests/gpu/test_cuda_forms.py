"""Types, layouts, batches, residuals, epilogues: the first heuristic of each is judged right."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from kernelarc.bench.cuda import CudaDevice
from kernelarc.genomes import (
    Candidate,
    InputError,
    MatmulForm,
    Status,
    matmul_operator,
    matmul_problem,
)

FORMS = [
    MatmulForm(dtype=dtype, layout=layout, residual=residual)
    for dtype, layout, residual in itertools.product(
        ("bfloat16", "float16", "float32"), ("TN", "NN", "NT"), (False, True)
    )
]
FORMS += [MatmulForm(dtype="float8_e4m3fn", residual=residual) for residual in (False, True)]
FORMS += [
    MatmulForm(bias=bias, activation=activation, residual=residual)
    for bias in (False, True)
    for activation in ("none", "relu", "gelu")
    for residual in (False, True)
    if bias or activation != "none"
]
FORMS += [MatmulForm(batched=True, layout=layout, residual=True) for layout in ("TN", "NN", "NT")]


def shapes(form: MatmulForm) -> list[dict[str, int]]:
    batch = {"B": 3} if form.batched else {}
    ragged = {"M": 77, "N": 176, "K": 560 if form.dtype.startswith("float8") else 522}
    return [{"M": 384, "N": 256, "K": 1024} | batch, ragged | batch]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_heuristics_are_right(form: MatmulForm, tmp_path: Path) -> None:
    problem = matmul_problem(matmul_operator(form), shapes(form), in_place=form.residual)
    with CudaDevice().open(problem, seed=5, artefacts=tmp_path) as session:
        number = 0
        for workload in problem.workloads:
            seeds = session.seeds(workload)
            assert seeds
            assert session.check(workload, [s.genome for s in seeds]) == [None] * len(seeds)
            candidates = []
            for seed in seeds[:6]:
                number += 1
                candidates.append(
                    Candidate(
                        number=number,
                        round=0,
                        workload=workload.fingerprint,
                        island="engine",
                        mutation=seed.mutation,
                        genome=seed.genome,
                    )
                )
            session.submit(candidates, limit={})
            outcomes = list(session.collect())
            wrong = [
                f"{e.failure}: {e.message[:60]} {e.candidate.genome.canonical}"
                for e in outcomes
                if e.status is not Status.OK
            ]
            assert not wrong, f"{len(wrong)} of {len(outcomes)}: {wrong[0]}"


def test_tf32_is_judged_as_tf32(tmp_path: Path) -> None:
    form = MatmulForm(dtype="float32")
    problem = matmul_problem(matmul_operator(form), shapes(form)[:1], tf32=True)
    with CudaDevice().open(problem, seed=5, artefacts=tmp_path) as session:
        workload = problem.workloads[0]
        contest = session.contest(
            workload, [session.seeds(workload)[0].genome], rounds=6, baseline=True
        )
        assert not contest.failures


def test_too_large_a_problem_says_need_and_have(tmp_path: Path) -> None:
    problem = matmul_problem(
        matmul_operator(MatmulForm()), [{"M": 1 << 18, "N": 1 << 17, "K": 4096}]
    )
    with pytest.raises(InputError, match=r"needs [\d.]+ GiB of device memory, [\d.]+ are free"):
        CudaDevice().open(problem, seed=5, artefacts=tmp_path)
