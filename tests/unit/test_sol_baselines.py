"""Torch's variants of a problem say what its reference says."""

from __future__ import annotations

from typing import Any

import pytest

from kernelarc.bench.experiments.sol_baselines import variants
from kernelarc.genomes import packaged_problem

torch = pytest.importorskip("torch", reason="the variants are written with torch")
_SMALL = {
    "tokens": 21,
    "hidden": 32,
    "intermediate": 24,
    "shared_intermediate": 16,
    "experts": 9,  # one of them is chosen by nobody
    "top_k": 3,
}


def _space(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "made"}
    exec(source, space)
    return space


def test_grouped_products_do_what_a_routed_layer_refers_to() -> None:
    problem = packaged_problem("moe_layer_backward")
    made = variants(problem)
    assert {"grouped", "grouped_compile"} <= set(made)
    assert "compile" not in made  # the reference waits for the device
    (source,) = made["grouped"].sources.values()
    assert ".tolist()" not in source
    reference = _space(str(problem.operator.reference))
    torch.manual_seed(3)
    inputs = reference["make_inputs"](_SMALL, "cpu")
    inputs["selected_experts"][inputs["selected_experts"] == 4] = 8
    wanted = reference["run"](*inputs.values())
    assert not wanted[2][4].any() and wanted[2][8].any()
    for name, ours, own in zip(
        [spec.name for spec in problem.operator.outputs],
        _space(source)["run"](*inputs.values()),
        wanted,
        strict=True,
    ):
        assert ours.dtype == own.dtype, name
        torch.testing.assert_close(ours, own, atol=0.02, rtol=0.02, msg=name)
