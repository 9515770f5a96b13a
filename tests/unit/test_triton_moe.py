"""The experts' route: its space everywhere; its kernels, run by Triton's interpreter on the CPU.

What is run is an exported solution, in a process of its own: sources, table of launches, entry.
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

from kernelarc.genomes import Genome, Operator, packaged_problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._signature import matched
from kernelarc.genomes.routes._triton_moe import TritonMoe, triton_moe_route
from kernelarc.storage.exports._sol_triton import steps_of

HOPPER = DeviceLimits.of_arch("sm_90a")
SMALL: Mapping[str, Mapping[str, int]] = {
    "moe_swiglu_backward": {"tokens": 37, "hidden": 96, "intermediate": 40},
    "moe_layer_backward": {
        "tokens": 29,
        "hidden": 64,
        "intermediate": 48,
        "shared_intermediate": 80,
        "experts": 5,
        "top_k": 2,
    },
}
TILES: Mapping[str, Any] = {
    "hidden_m": 32, "hidden_n": 32, "hidden_k": 32, "hidden_warps": 4, "hidden_stages": 2,
    "hidden_group": 1, "token_m": 16, "token_n": 64, "token_k": 32, "token_warps": 4,
    "token_stages": 2, "token_group": 0, "weight_m": 64, "weight_n": 32, "weight_k": 16,
    "weight_warps": 4, "weight_stages": 2, "weight_group": 4, "token_paired": False,
    "weight_dual": True, "weight_columns": 1, "weight_stream": False,
}  # fmt: skip


def route_of(operator: Operator) -> TritonMoe:
    route = triton_moe_route(operator)
    assert isinstance(route, TritonMoe)
    return route


@pytest.mark.parametrize("name", list(SMALL))
def test_the_space_is_wide_and_what_is_drawn_fits(name: str) -> None:
    problem = packaged_problem(name)
    route = route_of(problem.operator)
    rng = np.random.default_rng(0)
    for workload in problem.workloads:
        space = route.space(workload, HOPPER)
        assert route.unsuited(workload) is None
        assert len(space.genes) >= 20 and space.size().legal > 10**6
        seeds = route.seeds(workload, HOPPER)
        assert len(seeds) >= 2 and all(space.contains(seed.genome) for seed in seeds)
        for _ in range(20):
            alleles: dict[str, Any] = dict(space.sample(rng).items())
            stage = 2 * alleles["hidden_m"] + 3 * alleles["hidden_n"]
            held = alleles["hidden_stages"] * alleles["hidden_k"] * stage * 2
            assert held <= HOPPER.shared_bytes


def test_operators_are_told_by_their_tensors_and_not_by_their_names() -> None:
    operator, _ = small_operator("moe_swiglu_backward", SMALL["moe_swiglu_backward"])
    renamed = replace(operator, name="x", inputs=tuple(
        replace(spec, name=f"t{i}") for i, spec in enumerate(operator.inputs)
    ))  # fmt: skip
    assert triton_moe_route(renamed) is not None
    other = replace(operator, outputs=operator.outputs[:3])
    assert triton_moe_route(other) is None
    wrong = replace(operator.inputs[4], shape=("intermediate", "hidden"))
    assert triton_moe_route(replace(operator, inputs=(*operator.inputs[:4], wrong))) is None
    for name in ("gemm_residual", "decoder_block", "gqa_paged_prefill", "swiglu"):
        assert triton_moe_route(packaged_problem(name).operator) is None


def test_letters_stand_for_one_axis_or_several() -> None:
    operator = packaged_problem("gemm_residual").operator
    patterns = ("float *T K", "float N K", "float *T N")
    found = matched(operator, patterns, ("float *T N",))
    assert found == {
        "float": ("bfloat16",),
        "T": ("batch", "seq"),
        "K": ("in_features",),
        "N": ("out_features",),
    }
    assert matched(operator, ("float T K", "float N K", "float T N"), ("float T N",)) is None
    assert matched(operator, patterns, ("float32 *T N",)) is None
    assert matched(operator, patterns[:2], ("float *T N",)) is None


CHECK = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import reference, solution
given = json.load(open(sys.argv[2]))
torch.manual_seed(5)
sizes = given["sizes"]
def drawn(shape, dtype):
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        return (torch.randn([sizes[a] for a in shape]) / (4 if len(shape) > 2 else 2)).to(kind)
    tokens, choices = (sizes[a] for a in shape)
    return torch.stack([torch.randperm(sizes["experts"] - 1)[:choices] for _ in range(tokens)])
inputs = [drawn(shape, dtype) for _, shape, dtype in given["inputs"]]
outputs = [torch.full([sizes[a] for a in s], float("nan"), dtype=getattr(torch, d))
           for _, s, d in given["outputs"]]
solution.run(*inputs, *outputs)
wide = [t.double() if t.dtype.is_floating_point else t for t in inputs]
for right, found in zip(reference.run(*wide), outputs, strict=True):
    error = (found.double() - right).abs().max() / right.abs().max().clamp(min=1e-9)
    assert torch.isfinite(found).all() and error < 4e-3, (list(found.shape), float(error))
print("right")
"""


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "triton")),
    reason="runs Triton's interpreter over torch tensors",
)
@pytest.mark.parametrize("name", list(SMALL))
@pytest.mark.parametrize("variant", range(3))
def test_an_exported_solution_computes_what_the_reference_does(
    name: str, variant: int, tmp_path: Path
) -> None:
    operator, workload = small_operator(name, SMALL[name])
    route = route_of(operator)
    changed: Mapping[str, Any] = [
        {},
        {
            "hidden_m": 16,
            "hidden_n": 64,
            "token_paired": True,
            "weight_dual": False,
            "weight_m": 32,
            "weight_columns": 2,
        },
        {
            "weight_columns": 4,
            "weight_stream": True,
            "hidden_k": 64,
            "hidden_group": 0,
            "token_m": 64,
            "token_n": 32,
            "weight_k": 32,
        },
    ][variant]
    alleles: dict[str, Any] = {**TILES, **changed}
    if route.routed:
        alleles |= {"scan": 256, "parts": "float32"}  # the interpreter has no bfloat16
    rows: dict[tuple[int, ...], str] = {
        (SMALL[name]["tokens"],): steps_of(route, workload, Genome("triton", alleles))
    }
    write_solution(tmp_path, route, operator, rows)
    assert_right(tmp_path, operator, SMALL[name], CHECK)


@pytest.mark.parametrize(
    ("tokens", "rows", "programs"), [(1, 16, 24), (512, 64, 96), (8192, 128, 768)]
)
def test_the_first_genome_is_made_for_as_many_rows_as_there_are(
    tokens: int, rows: int, programs: int
) -> None:
    """Few rows: the weights are all that is read, so many programs draw from memory."""
    problem = packaged_problem("moe_swiglu_backward", [{"tokens": tokens}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    assert len(seeds) >= 3
    assert seeds[0]["hidden_m"] == rows
    inner = next(
        axis.value for name, axis in problem.operator.axes.items() if name == "intermediate"
    )
    assert inner is not None
    columns = inner // int(seeds[0]["hidden_n"])  # type: ignore[arg-type]
    assert -(-tokens // rows) * columns == programs


def test_many_experts_of_few_rows_have_wide_rows_and_walk_columns() -> None:
    problem = packaged_problem("moe_layer_backward", [{"tokens": 192}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    assert len(seeds) >= 5
    for seed in seeds[:5]:
        assert seed["hidden_n"] >= 64 and seed["token_n"] >= 64  # type: ignore[operator]
    assert {seed["weight_columns"] for seed in seeds} >= {1, 2, 4}
    assert all(seed["weight_stream"] == (seed["weight_columns"] != 1) for seed in seeds)
    gradients = route.calls(workload, seeds[0], "sm_90a")[-4:]
    assert [call.constants["COLUMNS"] for call in gradients] == [4] * 4
    # 1408 rows by 4096 columns in tiles of 128 by 64, four side by side; 4096 by 1408: 22 tiles.
    assert [call.grid[0] for call in gradients[:2]] == [11 * 16, 32 * 6]
