"""Solutions of packaged Triton routes, run as a harness would: alone, on torch's tensors, twice."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.interpreted import write_solution

from kernelarc.genomes import axis_values, packaged_problem
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.triton._packaged import PackagedTritonRoute
from kernelarc.storage.exports._sol_triton import key_of, key_values, steps_of

HOPPER = DeviceLimits.of_arch("sm_90a")
CASES = {
    "gemm_residual": {"batch": 2, "seq": 293},
    "add_rmsnorm_bf16": {"rows": 131, "hidden": 8192},
    "rmsnorm": {"rows": 4099, "hidden": 128},
    "geglu": {"batch": 1, "seq": 130},
    "moe_swiglu_backward": {"tokens": 293},
    "moe_swiglu_saved_backward": {"tokens": 293},
    "moe_layer_backward": {"tokens": 192},
    "gqa_paged_prefill": {
        "total_q": 130, "num_pages": 300, "len_indptr": 5, "num_kv_indices": 200,
    },
    "gqa_paged_decode": {"batch_size": 5, "num_pages": 300, "num_kv_indices": 200},
    "gqa_ragged_prefill": {"total_q": 130, "total_kv": 400, "len_indptr": 5},
    "nvfp4_gqa": {"batch_size": 2, "seq_len": 128},
    "decoder_block": {"batch": 2, "seq": 77},
}  # fmt: skip
CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
given = json.load(open(sys.argv[1] + "/given.json"))
import reference, solution, torch

torch.manual_seed(7)
def tensor(shape, dtype):
    if shape is None:
        return 1e-5
    drawn = torch.randn(shape, device="cuda", dtype=torch.float32)
    return (drawn / shape[-1] ** 0.5 if len(shape) == 2 else drawn).to(getattr(torch, dtype))

if hasattr(reference, "make_inputs"):
    made = reference.make_inputs(given["axes"], "cuda")
    inputs = [made[name] for name, *_ in given["inputs"]]
else:
    inputs = [tensor(shape, dtype) for _, shape, dtype in given["inputs"]]
wanted = reference.run(*inputs)
wanted = wanted if isinstance(wanted, tuple) else (wanted,)
for turn in range(3):
    outputs = [torch.full_like(each, float("nan")) for each in wanted]
    solution.run(*inputs, *outputs)
    for place, (right, found) in enumerate(zip(wanted, outputs)):
        seen = torch.isfinite(right.float())
        assert torch.equal(seen, torch.isfinite(found.float())), (turn, place)
        gap = (found.float() - right.float())[seen].norm() / right.float()[seen].norm()
        assert gap < 2e-2, (turn, place, float(gap))
    # The first turn compiles; the others launch what it compiled.
    assert len(solution._compiled) == given["steps"], (turn, len(solution._compiled))
print("right")
"""


@pytest.mark.skipif(
    any(importlib.util.find_spec(part) is None for part in ("torch", "triton")),
    reason="solutions are torch's and Triton's",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_solution_computes_what_the_reference_does(name: str, tmp_path: Path) -> None:
    problem = packaged_problem(name, [CASES[name]])
    operator, (workload,) = problem.operator, problem.workloads
    (route,) = (r for r in kernel_routes(operator) if isinstance(r, PackagedTritonRoute))
    seeds = route.seeds(workload, HOPPER)
    space = route.space(workload, HOPPER)
    genome = seeds[0].genome if seeds else space.sample(np.random.default_rng(3))
    steps = steps_of(route, workload, genome)
    write_solution(
        tmp_path, route, operator, {key_values(operator, workload, key_of(operator)): steps}
    )
    axes = axis_values(operator, workload)

    def sizes(shape: tuple[str, ...] | None) -> list[int] | None:
        return None if shape is None else [int(a) if a.isdigit() else axes[a] for a in shape]

    given = {
        "axes": dict(axes),
        "inputs": [[spec.name, sizes(spec.shape), spec.dtype] for spec in operator.inputs],
        "steps": steps.count('"kernel":'),
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "check.py").write_text(CHECK)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "check.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("right\n")
