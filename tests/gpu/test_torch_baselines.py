"""What torch has as baselines: captured, launched directly, or refused with a cause."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from tests.gpu.figures import record

from kernelarc.bench.kernels import KernelDevice
from kernelarc.bench.kernels._torch_calls import torch_names
from kernelarc.genomes import packaged_problem

# Axes, and what cannot be the fastest.
CASES: dict[str, tuple[dict[str, int], set[str]]] = {
    # Eager mode reads and writes the rows many times over: fused it is faster by far.
    "add_rmsnorm_bf16": ({"rows": 4096, "hidden": 8192}, {"torch eager"}),
    "rmsnorm": ({"rows": 16384, "hidden": 7168}, {"torch eager"}),
    "nvfp4_gqa": ({"batch_size": 2, "seq_len": 128}, set()),
    # What reads values on the host is no one graph, neither torch's nor CUDA's.
    "gqa_paged_prefill": (
        {"total_q": 16, "num_pages": 512, "len_indptr": 2, "num_kv_indices": 400},
        {"torch eager", "torch compile"},
    ),
    "gqa_paged_decode": ({}, {"torch eager"}),
    "gqa_ragged_prefill": ({}, {"torch eager"}),
    "decoder_block": ({"batch": 1, "seq": 512}, {"torch eager"}),
    "moe_swiglu_backward": ({"tokens": 128}, {"torch eager"}),
    "moe_swiglu_saved_backward": ({"tokens": 512}, set()),
    "moe_layer_backward": ({"tokens": 192}, {"torch eager", "torch compile"}),
}

# Rounding what is between products is no baseline where the tolerance has no room for it.
WRONG = {"moe_swiglu_saved_backward": ["torch products"]}


@pytest.mark.skipif(
    any(importlib.util.find_spec(part) is None for part in ("torch", "triton")),
    reason="baselines are torch's",
)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CASES)
def test_the_fastest_of_torch_is_timed_beside_ours(name: str, tmp_path: Path) -> None:
    axes, slow = CASES[name]
    problem = packaged_problem(name, [axes] if axes else [])
    workload = problem.workloads[0]
    with KernelDevice("cuda:0").open(problem, seed=3, artefacts=tmp_path) as session:
        names = torch_names(problem.operator, compiles=True)
        offered = session.baseline_name(workload)
        assert offered == f"the fastest of {', '.join(names)}"
        seeds = session.seeds(workload)
        contest = session.contest(workload, [seeds[0].genome], rounds=5, baseline=True)
        chosen, told = session.baseline_name(workload), session.baselines_tried(workload)
        record(f"torch baselines {name}", told)
        assert set(told) == set(names)
        failed = {each: one["failed"] for each, one in told.items() if "failed" in one}
        assert all(failed.values())
        # What torch.compile takes as one graph is its own affair; what runs at all must be right.
        wrong = [each for each in failed if not each.endswith(" compile")]
        assert wrong == WRONG.get(name, []), failed
        assert chosen not in slow, told
        assert contest.names[-1] == f"baseline:{chosen}"
        assert not contest.failures
        assert all(math.isfinite(us) and us > 0.5 for row in contest.samples for us in row)
