"""The documents' tables of packaged routes: each route with as many genes as it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelarc.genomes import packaged_problem, packaged_problems
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes

ROOT = Path(__file__).resolve().parents[2]
HOPPER = DeviceLimits.of_arch("sm_90a")
ROW = re.compile(r"^\| (?P<job>[^|]+) \| `[^|]+\| (?P<genes>[\d, ]+) \|", re.MULTILINE)
WORDS = {
    "gemm_residual": "a product",
    "swiglu": "a gated projection",
    "geglu": "a gated projection",
    "moe_swiglu_backward": "one expert",
    "moe_swiglu_saved_backward": "from kept activations",
    "moe_layer_backward": "a routed layer",
    "moe_layer_backward_wide": "a routed layer",
    "decoder_block": "a decoder block",
    "add_rmsnorm_bf16": "a residual added",
    "rmsnorm": "without a residual",
    "gqa_paged_prefill": "causal attention",
    "gqa_paged_decode": "decoding over pages",
    "gqa_ragged_prefill": "over ragged keys",
    "nvfp4_gqa": "attention over 4-bit floats",
}


@pytest.mark.parametrize("name", packaged_problems())
def test_every_route_stands_in_its_document(name: str) -> None:
    problem = packaged_problem(name)
    for route in kernel_routes(problem.operator):
        text = (ROOT / "docs" / f"{route.name}.md").read_text()
        rows = [found for found in ROW.finditer(text) if WORDS[name] in found["job"]]
        space = route.space(problem.workloads[0], HOPPER)
        said = {int(count) for row in rows for count in row["genes"].split(",")}
        assert len(space.genes) in said, (route.name, len(space.genes), said)
