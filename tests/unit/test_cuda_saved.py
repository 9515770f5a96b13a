"""One expert from kept activations by CUDA C++: what is launched; its own text, run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.emulated import COMPILER, bits, numbers, run_parts
from tests.unit.interpreted import small_operator

from kernelarc.genomes import Allele, Genome, Operator, Workload, packaged_problem
from kernelarc.genomes.kernels import DeviceLimits, LibraryProduct, kernel_routes
from kernelarc.genomes.routes._cuda_gemm import FILE
from kernelarc.genomes.routes._cuda_saved import CudaSaved, cuda_saved_route
from kernelarc.genomes.routes._library_part import FIRST_CHOICE

NAME = "moe_swiglu_saved_backward"
HOPPER = DeviceLimits.of_arch("sm_90a")
KINDS = ("inner", "token", "weight", "down")


def route_of(operator: Operator) -> CudaSaved:
    route = cuda_saved_route(operator)
    assert isinstance(route, CudaSaved)
    return route


def made(route: CudaSaved, workload: Workload, **changed: Allele) -> Genome:
    """Return a genome of small tiles with some genes of all kinds, or of one, as they are given."""
    plain: dict[str, Allele] = {
        "products": "warp", "consumers": 1, "wg_rows": 64, "tile_n": 64, "tile_k": 64, "stages": 2,
        "schedule": "tiles", "cluster_m": 1, "cluster_n": 1, "split_k": 1, "epilogue": "direct",
        "pdl": False, "by": "kernel", "form": "pair", "buffers": 1, "group": 1,
    }  # fmt: skip
    wanted = {f"{kind}_{gene}": allele for kind in KINDS for gene, allele in plain.items()}
    wanted |= {f"{kind}_{g}": a for g, a in changed.items() if g in plain for kind in KINDS}
    wanted |= {g: a for g, a in changed.items() if g not in plain}
    space = route.space(workload, HOPPER)
    genome = space.repair(wanted, np.random.default_rng(0))
    assert genome is not None
    assert all(genome[n] == a for n, a in wanted.items() if n in genome)
    return genome


def test_operators_are_told_by_their_tensors_and_both_routes_serve_them() -> None:
    operator = packaged_problem(NAME).operator
    renamed = replace(operator, name="x", inputs=tuple(
        replace(spec, name=f"t{i}") for i, spec in enumerate(operator.inputs)
    ))  # fmt: skip
    assert sorted(route.name for route in kernel_routes(renamed)) == ["cuda", "triton"]
    assert cuda_saved_route(replace(operator, inputs=operator.inputs[:-1])) is None
    assert cuda_saved_route(packaged_problem("moe_swiglu_backward").operator) is None
    sizes = {"tokens": 5, "hidden": 132, "intermediate": 72}
    odd, workload = small_operator(NAME, sizes, "bfloat16")
    assert "multiples of 8" in str(route_of(odd).unsuited(workload))


@pytest.mark.parametrize("tokens", [1, 128, 8192])
def test_first_genomes_are_legal_and_lose_nothing(tokens: int) -> None:
    problem = packaged_problem(NAME, [{"tokens": tokens}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    assert route.unsuited(workload) is None
    space = route.space(workload, HOPPER)
    assert len(space.genes) == 79
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    assert len(seeds) >= 5
    assert all(map(space.contains, seeds))
    forms = [{genome["token_form"], genome["weight_form"]} for genome in seeds]
    assert forms == [{"pair"}] * len(seeds)
    assert seeds[-1]["weight_by"] == seeds[-1]["down_by"] == "library"


def test_both_roundings_are_multiplied_where_a_genome_says_so() -> None:
    problem = packaged_problem(NAME, [{"tokens": 37}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    seen = {}
    for token, weight in (("pair", "pair"), ("one", "pair"), ("one", "one")):
        genome = made(route, workload, token_form=token, weight_form=weight)
        parts = route.parts(workload, genome, "sm_90a")
        assert [launch.symbol for part in parts for launch in part.launches] == ["gemm"] * 5
        assert {each.nbytes for each in parts[0].scratch} == {2 * 37 * 768}
        wanted = [part.macros for part in parts]
        assert wanted[0]["KEPT"] == "1"
        seen[token, weight] = (
            len(parts[0].scratch),
            *(wanted[0]["RESTS"] + wanted[1]["RESTED"] + wanted[2]["PAIRED"]),
        )
    assert seen == {
        ("pair", "pair"): (4, "1", "1", "1"),
        ("one", "pair"): (4, "1", "0", "1"),
        ("one", "one"): (2, "0", "0", "0"),
    }


def test_the_library_makes_the_weights_gradients_and_nothing_else() -> None:
    problem = packaged_problem(NAME, [{"tokens": 37}])
    route, (workload,) = route_of(problem.operator), problem.workloads
    names = {gene.name for gene in route.space(workload, HOPPER).genes}
    assert {name for name in names if name.endswith("_by")} == {"weight_by", "down_by"}
    library = {f"{kind}_{g}": a for kind in ("weight", "down") for g, a in FIRST_CHOICE.items()
               if not g.startswith("gate")}  # fmt: skip
    genome = made(route, workload, **library)
    ready = route.prepared(workload, genome, "sm_90a")
    products = [step for step in ready.steps if isinstance(step, LibraryProduct)]
    assert [p.left.name for p in products] == [
        "gate rows", "gate rest", "up rows", "up rest", "grad_output",
    ]  # fmt: skip
    assert [p.added is not None for p in products] == [False, True, False, True, False]
    assert all(p.left_across and p.right_across for p in products)


def gradients(given: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return one expert's gradients in float64, of the inputs in the operator's order."""
    grad, x, gate_proj, up_proj, down_proj, gate, sigmoid, silu, up, inner = given
    back = grad @ down_proj
    by_gate, by_up = back * up * (sigmoid + gate * sigmoid - gate * sigmoid**2), back * silu
    return [by_gate @ gate_proj + by_up @ up_proj, by_gate.T @ x, by_up.T @ x, grad.T @ inner]


CASES: dict[str, tuple[dict[str, Allele], int]] = {
    "small tiles, one warpgroup": ({}, 37),
    "rounded once": ({"form": "one"}, 37),
    "of the tokens alone": ({"token_form": "one", "products": "warpgroup"}, 70),
    "two warpgroups, many tiles, deep stages": (
        {"consumers": 2, "tile_n": 128, "tile_k": 128, "schedule": "persistent", "stages": 2},
        133,
    ),
    "by the copy engine and in turns": (
        {
            "products": "warpgroup",
            "consumers": 2,
            "schedule": "pingpong",
            **{f"{kind}_epilogue": "engine" for kind in KINDS[1:]},
        },
        70,
    ),
    "weights by the library": (
        {f"{kind}_{g}": a for kind in ("weight", "down") for g, a in FIRST_CHOICE.items()
         if not g.startswith("gate")},
        37,
    ),
}  # fmt: skip


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_right_on_the_cpu(case: str, tmp_path: Path) -> None:
    """Only what is rounded once errs by more than the result's own rounding."""
    changed, tokens = CASES[case]
    sizes = {"tokens": tokens, "hidden": 72, "intermediate": 72}
    operator, workload = small_operator(NAME, sizes, "bfloat16")
    route = route_of(operator)
    genome = made(route, workload, **changed)
    rng = np.random.default_rng(3)
    drawn = {
        spec.name: bits(rng.standard_normal([sizes[a] for a in spec.shape or ()]) / 4)
        for spec in operator.inputs
    }
    outputs = {
        spec.name: np.full([sizes[a] for a in spec.shape or ()], 0x7FFF, np.uint16)
        for spec in operator.outputs
    }
    parts = [(FILE, part) for part in route.parts(workload, genome, "sm_90a")]
    run_parts(parts, {**drawn, **outputs}, tmp_path)
    right = gradients([numbers(held) for held in drawn.values()])
    for name, kind, wanted in zip(
        outputs, ("token", "weight", "weight", "down"), right, strict=True
    ):
        error, size = np.abs(numbers(outputs[name]) - wanted), np.abs(wanted).max()
        assert np.isfinite(error).all()
        assert error.max() < 2.0**-7 * size, name
        roundings = 1 + (genome.get(f"{kind}_by") == "library")
        more = (error > roundings * 2.0**-8 * np.abs(wanted) + 4e-5 * size).any()
        assert more == (genome.get(f"{kind}_form") == "one"), (name, error.max() / size)
