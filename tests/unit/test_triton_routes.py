"""Triton routes of packaged problems: their spaces, and their kernels on the CPU.

Triton's interpreter runs them there: an exported solution in a process of its own, with its
sources, its table of launches and its entry. Shapes are small and ragged.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.interpreted import assert_right, small_operator, write_solution

from kernelarc.genomes import (
    Genome,
    Operator,
    axis_values,
    packaged_problem,
    packaged_problems,
    recognised,
)
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute, kernel_routes
from kernelarc.genomes.triton._packaged import PackagedTritonRoute
from kernelarc.storage.exports._sol_triton import key_of, key_values, steps_of

HOPPER = DeviceLimits.of_arch("sm_90a")
SMALL: Mapping[str, Mapping[str, int]] = {
    "rmsnorm": {"rows": 13, "hidden": 200},
    "add_rmsnorm_bf16": {"rows": 13, "hidden": 200},
    "swiglu": {"batch": 3, "seq": 23, "hidden": 48, "intermediate": 80},
    "geglu": {"batch": 1, "seq": 33, "hidden": 64, "intermediate": 64},
    "decoder_block": {
        "batch": 2,
        "seq": 19,
        "hidden": 48,
        "query_heads": 6,
        "kv_heads": 2,
        "head": 32,
        "intermediate": 80,
    },
    "nvfp4_gqa": {"batch_size": 2, "seq_len": 23, "query_heads": 6, "kv_heads": 2, "head_dim": 32},
    "gqa_paged_prefill": {
        "total_q": 31,
        "num_pages": 50,
        "len_indptr": 5,
        "num_kv_indices": 40,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "page_size": 3,
    },
    "gqa_paged_decode": {
        "batch_size": 5,
        "num_pages": 50,
        "num_kv_indices": 40,
        "num_qo_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 32,
        "page_size": 3,
    },
    "gqa_ragged_prefill": {
        "total_q": 31,
        "total_kv": 90,
        "len_indptr": 5,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
    },
}
NORM = {
    "held": True, "rows": 4, "num_warps": 2, "programs_per_sm": 0, "num_stages": 1,
    "evict": "evict_first", "store": "", "maxnreg": 0,
}  # fmt: skip
TWICE = {**NORM, "held": False, "block": 64, "rows": 2}
PAGED = {
    "block_m": 16, "block_n": 32, "num_warps": 4, "num_stages": 1, "evict": "", "splits": 1,
    "parted": False, "heads_first": False, "longest_first": False, "maxnreg": 0,
}  # fmt: skip
GATED = {
    "block_m": 32, "block_n": 32, "block_k": 32, "num_warps": 4, "num_stages": 2, "evict": "",
    "group": 2, "programs": 0, "maxnreg": 0,
}  # fmt: skip
QUANTISED = {
    "block_m": 32, "block_n": 32, "num_warps": 4, "num_stages": 1, "factor": "float16",
    "repeat": False, "heads_first": False, "maxnreg": 0,
}  # fmt: skip
BLOCK = {
    **{
        f"{part}_{gene}": allele
        for part in ("q", "kv", "o", "wide", "down")
        for gene, allele in (
            ("m", 32), ("n", 32), ("k", 32), ("warps", 4), ("stages", 2), ("group", 2),
        )
    },
    "attention_m": 16, "attention_n": 16, "attention_warps": 4, "attention_stages": 1,
    "norm_warps": 4, "turn_block": 8, "product_adds": True, "gate_fused": True,
}  # fmt: skip
CASES: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("rmsnorm", NORM, {}),
    ("rmsnorm", {**NORM, "rows": 1}, {"rows": 1, "hidden": 128}),
    ("rmsnorm", TWICE, {}),
    ("rmsnorm", {**TWICE, "programs_per_sm": 1, "rows": 1}, {"rows": 150}),
    ("add_rmsnorm_bf16", NORM, {}),
    ("add_rmsnorm_bf16", {**TWICE, "programs_per_sm": 1, "rows": 1}, {"rows": 150}),
    ("swiglu", GATED, {}),
    ("swiglu", {**GATED, "block_k": 16, "block_n": 16, "programs": 1}, {}),
    ("geglu", {**GATED, "block_m": 64}, {}),
    ("decoder_block", BLOCK, {}),
    ("decoder_block", {**BLOCK, "product_adds": False, "gate_fused": False}, {}),
    ("nvfp4_gqa", QUANTISED, {}),
    ("nvfp4_gqa", {**QUANTISED, "block_n": 16, "repeat": True, "heads_first": True}, {}),
    ("gqa_paged_prefill", PAGED, {}),
    ("gqa_paged_prefill", {**PAGED, "parted": True, "longest_first": True}, {}),
    ("gqa_paged_prefill", {**PAGED, "heads_first": True, "block_n": 16}, {"page_size": 1}),
    ("gqa_paged_prefill", PAGED, {"page_size": 1, "num_kv_indices": 9}),  # rows that see nothing
    ("gqa_paged_prefill", {**PAGED, "splits": 4, "parted": True, "block_n": 16}, {}),
    ("gqa_paged_decode", PAGED, {}),
    ("gqa_paged_decode", {**PAGED, "splits": 4, "parted": True, "block_n": 16}, {}),
    ("gqa_paged_decode", {**PAGED, "splits": 2, "heads_first": True}, {"num_qo_heads": 34}),
    ("gqa_ragged_prefill", {**PAGED, "parted": True, "longest_first": True}, {}),
    ("gqa_ragged_prefill", {**PAGED, "splits": 2, "block_m": 32}, {}),
]


def triton_route(operator: Operator) -> Any:
    (route,) = (r for r in kernel_routes(recognised(operator)) if r.name == "triton")
    assert isinstance(route, KernelRoute)
    return route


@pytest.mark.parametrize("name", list(SMALL))
def test_spaces_hold_eight_genes_and_their_seeds(name: str) -> None:
    problem = packaged_problem(name)
    route = triton_route(problem.operator)
    rng = np.random.default_rng(0)
    for workload in problem.workloads:
        space = route.space(workload, HOPPER)
        assert route.unsuited(workload) is None
        assert len(space.genes) >= 8 and space.size().legal > 500
        seeds = route.seeds(workload, HOPPER)
        assert seeds and all(space.contains(seed.genome) for seed in seeds)
        assert space.contains(space.sample(rng))


@pytest.mark.parametrize("name", packaged_problems())
def test_each_packaged_problem_has_two_routes(name: str) -> None:
    """The library's is none of the compiled ones."""
    problem = packaged_problem(name)
    routes = kernel_routes(recognised(problem.operator))
    served = [r.name for r in routes if all(r.unsuited(w) is None for w in problem.workloads)]
    assert sorted(served) == ["cuda", "triton"]


CHECK = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import reference, solution
given = json.load(open(sys.argv[2]))
torch.manual_seed(5)
sizes = given["sizes"]
def fitted(value, dtype):
    kind = getattr(torch, dtype)
    same = not isinstance(value, torch.Tensor) or value.dtype == kind
    return value if same else value.to(kind)
if hasattr(reference, "make_inputs"):
    made = reference.make_inputs(sizes, "cpu")
    inputs = [fitted(made[name], dtype) for name, _, dtype in given["inputs"]]
else:
    inputs = [1e-5 if s is None else (torch.randn([sizes[a] for a in s]) / 3).to(getattr(torch, d))
              for _, s, d in given["inputs"]]
outputs = [torch.full([sizes[a] for a in s], float("nan"), dtype=getattr(torch, d))
           for _, s, d in given["outputs"]]
solution.run(*inputs, *outputs)
def wide(t):
    if not isinstance(t, torch.Tensor) or not t.dtype.is_floating_point or "float4" in str(t.dtype):
        return t
    return t.double()
expected = reference.run(*(wide(t) for t in inputs))
expected = expected if isinstance(expected, tuple) else (expected,)
for right, found in zip(expected, outputs, strict=True):
    seen = torch.isfinite(right)
    assert torch.equal(torch.isfinite(found), seen), "finite elsewhere"
    assert torch.equal(torch.isneginf(found), torch.isneginf(right))
    error = (found.double() - right)[seen].abs().max() / right[seen].abs().max().clamp(min=1e-9)
    assert error < 4e-3, (list(found.shape), float(error))
print("right")
"""


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "triton")),
    reason="runs Triton's interpreter over torch tensors",
)
@pytest.mark.parametrize(("name", "alleles", "changed"), CASES)
def test_an_exported_solution_computes_what_the_reference_does(
    name: str, alleles: dict[str, Any], changed: dict[str, int], tmp_path: Path
) -> None:
    sizes = {**SMALL[name], **changed}
    operator, workload = small_operator(name, sizes)
    sizes = axis_values(operator, workload)
    # 16-bit floats of the kernel that the interpreter lacks stand for those that it has.
    route = triton_route(replace(operator, outputs=packaged_problem(name).operator.outputs)
                         if name == "nvfp4_gqa" else operator)  # fmt: skip
    route.operator = operator
    key = key_of(operator)
    rows = {
        key_values(operator, workload, key): steps_of(route, workload, Genome("triton", alleles))
    }
    write_solution(tmp_path, route, operator, rows)
    assert_right(tmp_path, operator, sizes, CHECK)


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")
@pytest.mark.parametrize("name", packaged_problems())
def test_every_triton_route_describes_its_launches_for_a_solution(name: str) -> None:
    problem = packaged_problem(name, [])
    routes = [r for r in kernel_routes(problem.operator) if isinstance(r, PackagedTritonRoute)]
    rng = np.random.default_rng(5)
    for route in routes:
        workload = problem.workloads[0]
        genome = route.space(workload, HOPPER).sample(rng)
        assert steps_of(route, workload, genome).count('"kernel":') >= 1
