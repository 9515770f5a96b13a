"""Torch's variants as solutions are what campaigns time, and say what the reference says."""

from __future__ import annotations

from typing import Any

import pytest

from kernelarc.bench.experiments.sol_baselines import variants
from kernelarc.bench.experiments.sol_race import entry_of
from kernelarc.bench.kernels._torch_calls import torch_names
from kernelarc.genomes import packaged_problem, packaged_problems

_SMALL = {
    "tokens": 21,
    "hidden": 32,
    "intermediate": 24,
    "shared_intermediate": 16,
    "experts": 9,  # one of them is chosen by nobody
    "top_k": 3,
}


@pytest.mark.parametrize("name", packaged_problems())
def test_a_race_has_what_a_campaign_has(name: str) -> None:
    problem = packaged_problem(name)
    offered = {name.removeprefix("torch ").replace(" ", "_") for name in torch_names(
        problem.operator, compiles=True
    )}  # fmt: skip
    made = set(variants(problem))
    waits = "tolist" in str(problem.operator.reference)
    assert made == offered - {"eager"} - ({"compile"} if waits else set())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("kind", ["grouped", "grouped_compile"])
def test_a_solution_does_what_the_reference_says(kind: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="the variants are written with torch")
    problem = packaged_problem("moe_layer_backward")
    reference: dict[str, Any] = {}
    exec(str(problem.operator.reference), reference)
    torch.manual_seed(3)
    inputs = reference["make_inputs"](_SMALL, "cpu")
    inputs["selected_experts"][inputs["selected_experts"] == 4] = 8
    wanted = reference["run"](*inputs.values())
    assert not wanted[2][4].any() and wanted[2][8].any()
    if kind.endswith("compile"):  # code for this CPU is not what is asked for
        torch.compiler.set_stance("force_eager")
    try:
        found = entry_of(variants(problem)[kind])(*inputs.values())
    finally:
        torch.compiler.set_stance("default")
    outputs = problem.operator.outputs
    for spec, ours, own in zip(outputs, found, wanted, strict=True):
        assert ours.dtype == own.dtype, spec.name
        torch.testing.assert_close(ours, own, atol=0.06, rtol=0.05, msg=spec.name)
