"""One expert's route from kept activations: its space; its kernels, run by Triton's interpreter.

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
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.routes._triton_saved import TritonSaved, triton_saved_route
from kernelarc.storage.exports._sol_triton import steps_of

NAME = "moe_swiglu_saved_backward"
HOPPER = DeviceLimits.of_arch("sm_90a")
SMALL = {"tokens": 37, "hidden": 96, "intermediate": 40}
TILES: Mapping[str, Any] = {
    "inner_m": 32, "inner_n": 32, "inner_k": 32, "inner_warps": 4, "inner_stages": 2,
    "inner_group": 1, "token_m": 16, "token_n": 64, "token_k": 32, "token_warps": 4,
    "token_stages": 2, "token_group": 0, "token_paired": False, "token_form": "pair",
    "weight_m": 64, "weight_n": 32, "weight_k": 16, "weight_warps": 4, "weight_stages": 2,
    "weight_group": 4, "weight_dual": True, "weight_columns": 1, "weight_stream": False,
    "weight_form": "pair", "down_m": 32, "down_n": 32, "down_k": 16, "down_warps": 4,
    "down_stages": 2, "down_group": 0, "down_columns": 2, "down_stream": False,
}  # fmt: skip
OTHERS: list[Mapping[str, Any]] = [
    {},
    {"token_form": "one", "weight_form": "one"},
    {"token_form": "tf32", "weight_form": "tf32", "token_paired": True, "weight_dual": False},
    {
        "token_paired": True,
        "token_k": 8,  # the interpreter's own: whole steps of 40 features
        "weight_form": "tf32",
        "weight_columns": 4,
        "weight_stream": True,
        "inner_k": 64,
        "down_columns": 1,
    },
    {"token_form": "one", "weight_columns": 2, "inner_group": 0, "inner_m": 16},
]


def route_of(operator: Operator) -> TritonSaved:
    route = triton_saved_route(operator)
    assert isinstance(route, TritonSaved)
    return route


def test_the_space_is_wide_and_what_is_drawn_fits() -> None:
    problem = packaged_problem(NAME)
    route = route_of(problem.operator)
    rng = np.random.default_rng(0)
    for workload in problem.workloads:
        space = route.space(workload, HOPPER)
        assert route.unsuited(workload) is None
        assert len(space.genes) == 32
        assert space.size().legal > 10**6
        seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
        assert len(seeds) >= 4 and all(map(space.contains, seeds))
        assert all(seeds[0][f"{name}_form"] == "pair" for name in ("token", "weight"))
        assert {genome["token_form"] for genome in seeds} == {"pair", "tf32"}
        assert sum(genome["token_form"] == "pair" for genome in seeds) >= 3
        for _ in range(20):
            held: dict[str, Any] = dict(space.sample(rng).items())
            wide = 2 if held["weight_form"] == "one" else 4
            left = held["weight_m"] * wide * (1 + held["weight_dual"])
            stage = held["weight_k"] * (left + 2 * held["weight_n"])
            assert held["weight_stages"] * stage <= HOPPER.shared_bytes


def test_operators_are_told_by_their_tensors_and_not_by_their_names() -> None:
    operator, _ = small_operator(NAME, SMALL)
    renamed = replace(operator, name="x", inputs=tuple(
        replace(spec, name=f"t{i}") for i, spec in enumerate(operator.inputs)
    ))  # fmt: skip
    assert {route.name for route in kernel_routes(renamed)} >= {"triton"}
    other = replace(operator, inputs=operator.inputs[:-1])
    assert triton_saved_route(other) is None
    wrong = replace(operator.inputs[5], shape=("tokens", "hidden"))
    inputs = (*operator.inputs[:5], wrong, *operator.inputs[6:])
    assert triton_saved_route(replace(operator, inputs=inputs)) is None
    for name in ("moe_swiglu_backward", "moe_layer_backward", "decoder_block"):
        assert triton_saved_route(packaged_problem(name).operator) is None


def test_a_gradient_is_kept_in_the_forms_that_are_multiplied() -> None:
    pytest.importorskip("triton", reason="launches hold Triton's kernels")
    problem = packaged_problem(NAME, [{"tokens": 37}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    kept = {}
    for token, weight in (("one", "one"), ("one", "pair"), ("tf32", "tf32"), ("tf32", "pair")):
        alleles = {**TILES, "token_form": token, "weight_form": weight}
        first, *_ = route.calls(workload, Genome("triton", alleles), "sm_90a")
        names = {s.name: s.nbytes for s in first.scratch if s.name.startswith("gate")}
        given = {n for n, a in first.arguments.items() if n.startswith("gate_") and a is not None}
        assert {name.replace(" ", "_") for name in names} == given
        kept[token, weight] = names
    short, wide = 37 * 768 * 2, 37 * 768 * 4
    assert kept["one", "one"] == {"gate rounded": short}
    assert kept["one", "pair"] == {"gate rounded": short, "gate rest": short}
    assert kept["tf32", "tf32"] == {"gate wide": wide}
    assert kept["tf32", "pair"] == {"gate rounded": short, "gate rest": short, "gate wide": wide}


CHECK = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import reference, solution
given = json.load(open(sys.argv[2]))
torch.manual_seed(5)
sizes = given["sizes"]
inputs = [(torch.randn([sizes[a] for a in shape]) / 2).half() for _, shape, _ in given["inputs"]]
outputs = [torch.full([sizes[a] for a in s], float("nan")).half() for _, s, _ in given["outputs"]]
solution.run(*inputs, *outputs)
for place, (right, found) in enumerate(zip(reference.run(*(t.double() for t in inputs)), outputs)):
    assert torch.isfinite(found).all()
    error, size = (found.double() - right).abs(), right.abs().max()
    assert error.max() < 4e-3 * size, (place, float(error.max() / size))
    # What rounding the result costs, and a float32 sum: is there more?
    more = bool((error > 2.0**-11 * right.abs() + 3e-6 * size).any())
    rounded = (sizes["token"] if place == 0 else sizes["weight"]) if place < 3 else 0
    assert more == bool(rounded), (place, more)
print("right")
"""


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "triton")),
    reason="runs Triton's interpreter over torch tensors",
)
@pytest.mark.parametrize("variant", range(len(OTHERS)))
def test_an_exported_solution_computes_what_the_reference_does(
    variant: int, tmp_path: Path
) -> None:
    """Only what is rounded once errs by more than the result's own rounding."""
    operator, workload = small_operator(NAME, SMALL)
    route = route_of(operator)
    alleles = {**TILES, **OTHERS[variant]}
    steps = steps_of(route, workload, Genome("triton", alleles))
    write_solution(tmp_path, route, operator, {(SMALL["tokens"],): steps})
    rounded = {name: int(alleles[f"{name}_form"] == "one") for name in ("token", "weight")}
    assert_right(tmp_path, operator, {**SMALL, **rounded}, CHECK)
