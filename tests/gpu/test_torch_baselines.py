"""Torch's variants of a reference as baselines: captured, launched directly, or refused."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from kernelarc.bench.kernels import KernelDevice
from kernelarc.genomes import packaged_problem

CASES = {
    # Eager mode reads and writes the rows many times over: compiled it is faster by far.
    "add_rmsnorm_bf16": ({"rows": 4096, "hidden": 8192}, {"torch compile"}),
    "nvfp4_gqa": ({"batch_size": 2, "seq_len": 128}, {"torch eager", "torch compile"}),
    # What reads values on the host is no one graph, neither torch's nor CUDA's.
    "gqa_paged_prefill": (
        {"total_q": 16, "num_pages": 512, "len_indptr": 2, "num_kv_indices": 400},
        {"torch eager"},
    ),
}


@pytest.mark.skipif(
    any(importlib.util.find_spec(part) is None for part in ("torch", "triton")),
    reason="baselines are torch's",
)
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", CASES)
def test_the_fastest_of_torch_is_timed_beside_ours(name: str, tmp_path: Path) -> None:
    axes, known = CASES[name]
    problem = packaged_problem(name, [axes])
    (workload,) = problem.workloads
    with KernelDevice("cuda:0").open(problem, seed=3, artefacts=tmp_path) as session:
        offered = session.baseline_name(workload)
        assert offered == "the fastest of torch eager, torch compile"
        seeds = session.seeds(workload)
        contest = session.contest(workload, [seeds[0].genome], rounds=5, baseline=True)
        chosen = session.baseline_name(workload)
        assert chosen in known
        assert contest.names[-1] == f"baseline:{chosen}"
        assert not contest.failures
        assert all(math.isfinite(us) and us > 0.5 for row in contest.samples for us in row)
