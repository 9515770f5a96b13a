"""Solutions of packaged CUDA routes, run as a harness would: alone, on torch's tensors."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelarc.genomes import Genome, Workload, axis_values, packaged_problem
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.routes._cuda_route import CudaRoute
from kernelarc.storage.exports._sol_cuda import cuda_sources

HOPPER = DeviceLimits.of_arch("sm_90a")
CASES = {
    "gemm_residual": {"batch": 2, "seq": 293},
    "add_rmsnorm_bf16": {"rows": 131, "hidden": 8192},
    "rmsnorm": {"rows": 4099, "hidden": 128},
    "gqa_paged_prefill": {
        "total_q": 130,
        "num_pages": 300,
        "len_indptr": 5,
        "num_kv_indices": 200,
    },
    "gqa_paged_decode": {"batch_size": 5, "num_pages": 300, "num_kv_indices": 200},
    "gqa_ragged_prefill": {"total_q": 130, "total_kv": 400, "len_indptr": 5},
    "nvfp4_gqa": {"batch_size": 2, "seq_len": 128},
    "decoder_block": {"batch": 2, "seq": 77},
    "moe_swiglu_backward": {"tokens": 293},
    "moe_swiglu_saved_backward": {"tokens": 293},
    "moe_layer_backward": {"tokens": 192},
}
GAPS = {"decoder_block": 2e-2}  # many roundings one after another  # fmt: skip
BY_LIBRARY = {
    "decoder_block": ("q", "kv", "o", "wide", "down"),
    "moe_swiglu_backward": ("inner", "hidden", "token", "weight"),
    "moe_swiglu_saved_backward": ("weight", "down"),
}
CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
given = json.load(open(sys.argv[1] + "/given.json"))
import reference, solution, torch

torch.manual_seed(7)
def tensor(shape, dtype):
    kind = getattr(torch, dtype)
    if shape is None:
        return 1e-5
    drawn = torch.randn(shape, device="cuda", dtype=torch.float32)
    return (drawn / shape[-1] ** 0.5 if len(shape) == 2 else drawn).to(kind)

if hasattr(reference, "make_inputs"):
    made = reference.make_inputs(given["axes"], "cuda")
    inputs = [made[name] for name, *_ in given["inputs"]]
else:
    inputs = [tensor(shape, dtype) for _, shape, dtype in given["inputs"]]
wanted = reference.run(*inputs)
wanted = wanted if isinstance(wanted, tuple) else (wanted,)
for _ in range(2):
    outputs = [torch.full_like(each, float("nan")) for each in wanted]
    solution.run(*inputs, *outputs)
    for right, found in zip(wanted, outputs):
        seen = torch.isfinite(right.float())
        assert torch.equal(seen, torch.isfinite(found.float()))
        gap = (found.float() - right.float())[seen].norm() / right.float()[seen].norm()
        assert gap < given["gap"], float(gap)
assert solution._functions.cache_info().currsize == 1, "the reference ran instead"
print("right")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="solutions are torch's")
@pytest.mark.parametrize("name", CASES)
def test_a_solution_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    problem = packaged_problem(name, [CASES[name]])
    operator, (workload,) = problem.operator, problem.workloads
    (route,) = (r for r in kernel_routes(operator) if isinstance(r, CudaRoute))
    assert_right(route, workload, route.seeds(workload, HOPPER)[0].genome, tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="solutions are torch's")
@pytest.mark.parametrize("choice", [None, 0, 7])
@pytest.mark.parametrize("name", BY_LIBRARY)
def test_a_solution_with_the_library_s_products_does_too_and_without(
    name: str, choice: int | None, tmp_path: Path
) -> None:
    """A choice that torch's library does not have gives way to the last one; None: no library."""
    problem = packaged_problem(name, [CASES[name]])
    (workload,) = problem.workloads
    (route,) = (r for r in kernel_routes(problem.operator) if isinstance(r, CudaRoute))
    kinds = BY_LIBRARY[name]
    by = "kernel" if choice is None else "library"
    start = next(
        seed.genome
        for seed in route.seeds(workload, HOPPER)
        if all(seed.genome[f"{kind}_by"] == by for kind in kinds)
    )
    chosen = {} if choice is None else {f"{kind}_heuristic": choice for kind in kinds}
    genome = route.space(workload, HOPPER).genome({**start.alleles(), **chosen})
    assert_right(route, workload, genome, tmp_path)


def assert_right(route: CudaRoute, workload: Workload, genome: Genome, tmp_path: Path) -> None:
    """Run a genome's solution in a process of its own, beside the reference."""
    operator, name = route.operator, route.operator.name
    for file, text in cuda_sources(route, [(workload, genome)]).items():
        (tmp_path / file).write_text(text)
    axes = axis_values(operator, workload)

    def sizes(shape: tuple[str, ...] | None) -> list[int] | None:
        return None if shape is None else [int(a) if a.isdigit() else axes[a] for a in shape]

    given = {
        "axes": dict(axes),
        "gap": GAPS.get(name, 1e-2),
        "inputs": [[spec.name, sizes(spec.shape), spec.dtype] for spec in operator.inputs],
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "check.py").write_text(CHECK)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "check.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("right\n")
