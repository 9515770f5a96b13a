"""The CUDA route of a routed layer: its space, its plan; its kernels, run on the CPU."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit import emulated
from tests.unit.emulated import COMPILER, bits, numbers, run_parts
from tests.unit.interpreted import small_operator

from kernelarc.genomes import Genome, Operator, Workload, packaged_problem
from kernelarc.genomes.kernels import (
    DeviceLimits,
    ScratchArgument,
    TensorArgument,
    TensorMap,
    kernel_routes,
)
from kernelarc.genomes.routes._cuda_grouped import FILE, KINDS, TOKEN, GroupedShape
from kernelarc.genomes.routes._cuda_layer import ROUTING, CudaLayer, LayerSizes, cuda_layer_route
from kernelarc.genomes.routes._cuda_layer_starts import Tile, common_rows
from kernelarc.genomes.routes._cuda_parts import part_genome

HOPPER = DeviceLimits.of_arch("sm_90a")
SMALL = {
    "tokens": 41, "hidden": 128, "intermediate": 64, "shared_intermediate": 192,
    "experts": 5, "top_k": 3,
}  # fmt: skip
TILE: dict[str, Any] = {
    "consumers": 1, "wg_rows": 64, "tile_n": 64, "tile_k": 64, "stages": 2, "blocks": 1, "group": 1,
    "producer_registers": 40, "keep": "none", "l2_promotion": 0, "epilogue": "direct", "share": 1,
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "products": "warp", "pad": 64, "chunk": 128, "pack_threads": 64, "gather_threads": 64,
    "pdl": False,
}  # fmt: skip


def route_of(operator: Operator) -> CudaLayer:
    route = cuda_layer_route(operator)
    assert isinstance(route, CudaLayer)
    return route


def tiles(**kinds: dict[str, Any]) -> dict[str, Any]:
    """Return genes: small tiles, and what some kinds have instead."""
    found = dict(WHOLE)
    for kind in KINDS:
        genes = {**TILE, **kinds.get(kind.name, {})}
        if kind.gated or genes["epilogue"] == "direct":
            genes.pop("buffers", None)
        if kind.gated:
            genes.pop("epilogue")
        if kind.by_weight:
            genes.setdefault("in_turn", False)
        found |= {f"{kind.name}_{name}": allele for name, allele in genes.items()}
    return found


def small(**sizes: int) -> tuple[CudaLayer, Workload]:
    operator, workload = small_operator("moe_layer_backward", {**SMALL, **sizes}, "bfloat16")
    return route_of(operator), workload


@pytest.mark.parametrize("name", ["moe_layer_backward", "moe_layer_backward_wide"])
def test_a_layer_has_two_routes_and_what_is_drawn_fits(name: str) -> None:
    problem = packaged_problem(name)
    assert sorted(r.name for r in kernel_routes(problem.operator)) == ["cuda", "triton"]
    route, rng = route_of(problem.operator), np.random.default_rng(2)
    workload = problem.workloads[0]
    space = route.space(workload, HOPPER)
    assert len(space.genes) >= 40 and len(route.seeds(workload, HOPPER)) >= 3
    for _ in range(60):
        genome = space.sample(rng)
        for kind in KINDS:
            shape = GroupedShape(part_genome(kind.name, genome), kind.gated)
            blocks = genome[f"{kind.name}_blocks"]
            assert isinstance(blocks, int)
            assert shape.shared_bytes <= HOPPER.shared_bytes
            held = blocks * (shape.shared_bytes + 1024)
            assert held <= HOPPER.shared_bytes_multiprocessor
            assert shape.tile_m <= 256 and shape.tile_n <= 256


def test_first_tiles_are_made_for_as_many_rows_as_an_expert_has() -> None:
    """Rows in one tile where that is enough, so that an expert's weights come once."""
    problem = packaged_problem("moe_layer_backward")
    route, highest = route_of(problem.operator), {}
    for workload in problem.workloads:
        seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
        assert len(seeds) >= 4 and {seed["token_share"] for seed in seeds} == {1, 2}
        assert all(seed["weight_epilogue"] == "engine" for seed in seeds)
        shape = GroupedShape(part_genome("token", seeds[0]), gated=False)
        highest[workload.axes["tokens"]] = shape.tile_m
        for seed in seeds:
            for kind in KINDS:
                held = GroupedShape(part_genome(kind.name, seed), kind.gated).shared_bytes
                assert held <= HOPPER.shared_bytes
                assert seed[f"{kind.name}_stages"] >= 3  # type: ignore[operator]
    assert [highest[tokens] for tokens in (192, 1024, 2048, 4096)] == [64, 128, 192, 256]


def test_an_expert_without_rows_is_expected_to_cost_nothing() -> None:
    tile = Tile(consumers=2, wg_rows=64, tile_n=128, share=1)
    assert tile.cycles(TOKEN, 0, 4096, 2816) == 0.0
    one, two = (tile.cycles(TOKEN, rows, 4096, 2816) for rows in (128, 192))
    shared = replace(tile, share=2).cycles(TOKEN, 192, 4096, 2816)
    assert one < two < 2 * one and shared < two
    assert common_rows(128 * 128, 128, 64) == [128, 128, 192]
    assert common_rows(3, 128, 64) == [64, 64, 64]


def test_what_does_not_fit_boxes_or_the_plan_is_said() -> None:
    route, workload = small(intermediate=72)
    assert "multiples of 64" in str(route.unsuited(workload))
    route, workload = small(experts=1100)
    assert "1024 experts" in str(route.unsuited(workload))
    route, workload = small()
    assert route.unsuited(workload) is None
    other = packaged_problem("moe_swiglu_backward").operator
    assert cuda_layer_route(other) is None


def test_stages_never_reach_into_the_next_expert() -> None:
    route, workload = small()
    space, rng = route.space(workload, HOPPER), np.random.default_rng(4)
    for _ in range(60):
        alleles: dict[str, Any] = dict(space.sample(rng).items())
        assert alleles["token_tile_k"] == 64, "an expert has 64 features inside"
        assert alleles["weight_tile_k"] <= alleles["pad"]


@pytest.mark.parametrize("pad", [64, 128])
def test_there_is_room_for_rows_however_they_are_spread(pad: int) -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        experts, tokens = int(rng.integers(1, 40)), int(rng.integers(1, 300))
        top_k = int(rng.integers(1, experts + 1))
        size = LayerSizes(
            tokens=tokens, hidden=64, inner=64, shared=64, experts=experts, top_k=top_k
        )
        favourites = rng.random(experts) ** 8
        counts = np.zeros(experts, int)
        for _ in range(tokens):
            counts[np.argsort(-favourites * rng.random(experts))[:top_k]] += 1
        assert (-(-counts // pad) * pad).sum() <= size.rows(pad)


def test_a_plan_reads_only_what_was_written_before() -> None:
    route, workload = small()
    parts = route.parts(workload, route.seeds(workload, HOPPER)[0].genome, "sm_90a")
    launches = [launch for part in parts for launch in part.launches]
    assert [launch.symbol for launch in launches[:4]] == ["tally", "plan", "place", "pack"]
    assert [launch.symbol for launch in launches[4:]].count("grouped") == 12
    held = {one.name for part in parts for one in part.scratch}
    named = set()
    for launch in launches:
        for each in launch.arguments:
            place = each.source if isinstance(each, TensorMap) else each
            if isinstance(place, ScratchArgument):
                assert place.name in held
                named.add(place.name)
            elif isinstance(place, TensorArgument):
                named.add(place.name)
    own = {spec.name for spec in (*route.operator.inputs, *route.operator.outputs)}
    assert named == held | own
    assert len({part.text for part in parts}) == 5, "both sets of experts share four kernels"


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None,
    reason="NVRTC's binding is not installed",
)
def test_a_layer_compiles_part_by_part_and_as_one() -> None:
    from kernelarc.genomes.routes._nvrtc import compile_cuda

    problem = packaged_problem("moe_layer_backward")
    route, workload = route_of(problem.operator), problem.workloads[0]
    genome = route.seeds(workload, HOPPER)[0].genome
    build = route.build(workload, genome, "sm_90a")
    assert len(build.binaries) == 5 and route.fault(build, HOPPER) is None
    ready = route.prepared(workload, genome, "sm_90a")
    code = compile_cuda(ready.text, "sm_90a")
    for launch, alone in zip(ready.launches, build.kernels, strict=True):
        report = code.report(launch.symbol, threads=alone.threads, shared_bytes=0)
        assert report.registers == alone.registers and report.spill_bytes == 0


# On the CPU


def right_gradients(given: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return a layer's gradients in float64."""
    grad, x, weights, chosen = (given[n] for n in list(given)[:4])
    gates, ups, downs, *shared = list(given.values())[4:]
    grads = [np.zeros_like(each) for each in (gates, ups, downs)]
    by_weight = np.zeros_like(weights)

    def expert(rows: NDArray[Any], scale: NDArray[Any], *three: NDArray[Any]) -> list[NDArray[Any]]:
        gate, up, down = three
        g, u, d = x[rows] @ gate.T, x[rows] @ up.T, grad[rows] @ down
        sigmoid = 1 / (1 + np.exp(-g))
        hidden = g * sigmoid * u
        by_hidden = d * scale[:, None]
        by_up = by_hidden * g * sigmoid
        by_gate = by_hidden * u * sigmoid * (1 + g * (1 - sigmoid))
        down_grad = grad[rows].T @ (hidden * scale[:, None])
        token = by_gate @ gate + by_up @ up
        return [token, (d * hidden).sum(1), by_gate.T @ x[rows], by_up.T @ x[rows], down_grad]

    everyone = np.arange(len(x))
    by_x, _, *by_shared = expert(everyone, np.ones(len(x)), *shared)
    for e in range(len(gates)):
        rows, slots = np.nonzero(chosen == e)
        if len(rows):
            token, part, *three = expert(rows, weights[rows, slots], gates[e], ups[e], downs[e])
            by_weight[rows, slots] = part
            np.add.at(by_x, rows, token)
            for whole, one in zip(grads, three, strict=True):
                whole[e] = one
    return [by_x, by_weight, *grads, *by_shared]


def drawn_inputs(route: CudaLayer, workload: Workload, rng: np.random.Generator) -> dict[str, Any]:
    """Return inputs by name as numbers that bfloat16 holds; the last expert is never chosen."""
    size = route.sizes(workload)
    given: dict[str, Any] = {}
    axes = {**{n: a.value for n, a in route.operator.axes.items() if a.value}, **workload.axes}
    for spec in route.operator.inputs:
        shape = [axes[name] for name in spec.shape or ()]
        if spec.dtype == "int64":
            rest = [rng.permutation(size.experts - 1)[: size.top_k] for _ in range(size.tokens)]
            given[spec.name] = np.stack(rest).astype(np.int64)
        elif spec.dtype == "float32":
            given[spec.name] = rng.random(shape).astype(np.float32).astype(np.float64)
        else:
            values = rng.standard_normal(shape) / (4 if len(shape) > 2 else 2)
            given[spec.name] = numbers(bits(values))
    return given


def emulated_layer(
    route: CudaLayer, workload: Workload, genome: Genome, given: dict[str, Any], folder: Path,
    seed: int = 0,
) -> list[NDArray[Any]]:  # fmt: skip
    """Run a genome on the CPU; return the outputs as numbers."""
    axes = {**{n: a.value for n, a in route.operator.axes.items() if a.value}, **workload.axes}
    small_route = route.on(replace(HOPPER, multiprocessors=3))
    parts = small_route.parts(workload, genome, "sm_90a")
    kinds = {"int64": np.int64, "float32": np.float32}
    tensors = {
        spec.name: np.ascontiguousarray(given[spec.name].astype(kinds[spec.dtype]))
        if spec.dtype in kinds
        else bits(given[spec.name])
        for spec in route.operator.inputs
    }
    for spec in route.operator.outputs:
        shape = [axes[name] for name in spec.shape or ()]
        kind = np.float32 if spec.dtype == "float32" else np.uint16
        tensors[spec.name] = np.full(shape, np.nan if kind is np.float32 else 0x7FFF, kind)
    files = [(ROUTING if part.launches[0].symbol != "grouped" else FILE, part) for part in parts]
    run_parts(files, tensors, folder, seed)
    found = [tensors[spec.name] for spec in route.operator.outputs]
    return [numbers(each) if each.dtype == np.uint16 else each.astype(np.float64) for each in found]


CASES: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "smallest tiles": (tiles(), {}),
    "two warpgroups, several tiles of rows": (
        {
            **tiles(
                inner={"consumers": 2, "group": 2, "tile_k": 128},
                hidden={"tile_n": 96, "consumers": 2, "stages": 3},
                token={"tile_n": 128, "epilogue": "engine", "buffers": 1, "consumers": 2},
                weight={"tile_k": 128, "epilogue": "engine", "buffers": 2, "stages": 3},
            ),
            "pad": 128,
        },
        {"tokens": 130},
    ),
    "by warpgroups": (
        {
            **tiles(
                inner={"epilogue": "engine", "buffers": 2, "wg_rows": 128},
                hidden={"tile_n": 128, "group": 4},
                token={"group": 2, "tile_n": 128},
                weight={"wg_rows": 128, "group": 2},
            ),
            "products": "warpgroup",
            "chunk": 256,
            "pack_threads": 128,
        },
        {"tokens": 70},  # a tile of 128 rows reaches into the next expert's
    ),
    "rows shared by two blocks, some warpgroups without any": (
        tiles(
            inner={"consumers": 3, "share": 2},
            hidden={"consumers": 2, "tile_n": 128, "share": 2, "group": 2},
            token={"consumers": 3, "share": 2, "stages": 3, "epilogue": "engine", "buffers": 2},
            weight={"consumers": 2, "share": 2, "epilogue": "engine", "buffers": 2},
        ),
        {"tokens": 130},  # 64, 128 or 192 rows to an expert; an odd number of columns of tiles, too
    ),
    "three warpgroups in turn, more steps than stages": (
        tiles(weight={"consumers": 3, "in_turn": True}),
        {"tokens": 330},  # 192 rows and more to most experts, none to one
    ),
    "rows shared by warpgroups of two blocks": (
        {
            **tiles(
                inner={"wg_rows": 128, "share": 2, "tile_k": 128},
                hidden={"wg_rows": 128, "share": 2, "stages": 3},
                token={"tile_n": 128, "consumers": 2, "share": 2},
                weight={
                    "consumers": 2,
                    "in_turn": True,
                    "share": 2,
                    "epilogue": "engine",
                    "buffers": 1,
                },
            ),
            "pad": 128,
            "products": "warpgroup",
        },
        {"tokens": 90},
    ),
}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_right_on_the_cpu(case: str, tmp_path: Path) -> None:
    alleles, sizes = CASES[case]
    route, workload = small(**sizes)
    genome = route.space(workload, HOPPER).genome(alleles)
    given = drawn_inputs(route, workload, np.random.default_rng(9))
    found = emulated_layer(route, workload, genome, given, tmp_path)
    hold_right(route, given, found)
    assert not np.any(found[2][-1]), "what no token chose has no gradient"


def hold_right(route: CudaLayer, given: dict[str, Any], found: list[NDArray[Any]]) -> None:
    """Hold a layer's gradients to those in float64."""
    for spec, one, other in zip(route.operator.outputs, found, right_gradients(given), strict=True):
        assert np.isfinite(one).all(), spec.name
        gap = np.abs(one - other).max() / np.abs(other).max()
        assert gap < 1.5e-2, (spec.name, gap)


UNEVEN = (0, 1, 63, 64, 65, 12, 200, 0)
SHARING = {
    **tiles(
        inner={"consumers": 3, "share": 2, "stages": 3},
        hidden={"wg_rows": 128, "share": 2, "tile_n": 96},
        token={"consumers": 2, "share": 2, "epilogue": "engine", "buffers": 1, "tile_n": 192},
        weight={"consumers": 3, "in_turn": True, "share": 2, "epilogue": "engine", "buffers": 2},
    ),
    "products": "warpgroup",
}


def uneven(rng: np.random.Generator, counts: tuple[int, ...] = UNEVEN) -> tuple[Any, ...]:
    """Return route, workload and inputs of a layer in which so many tokens chose each expert."""
    route, workload = small(tokens=sum(counts), experts=len(counts), top_k=1)
    given = drawn_inputs(route, workload, rng)
    chosen = np.repeat(np.arange(len(counts)), counts)
    given["selected_experts"] = rng.permutation(chosen)[:, None].astype(np.int64)
    return route, workload, given


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_uneven_experts_are_right_on_the_cpu(tmp_path: Path) -> None:
    """Experts of no row, one, a block and one more or less: clusters end together, none waits."""
    route, workload, given = uneven(np.random.default_rng(5))
    genome = route.space(workload, HOPPER).genome(SHARING)
    found = emulated_layer(route, workload, genome, given, tmp_path, seed=3)
    hold_right(route, given, found)
    for expert in (0, 7):
        assert not any(np.any(gradient[expert]) for gradient in found[2:5])


# Of the kernel's text: what is said instead, and what comes of it.
MISTAKES = {
    "bytes of rows that are not loaded": (
        "BOXES * (blocks * ROWS_BYTES + RIGHT_BOX)",
        "BOXES * (TILE_M / 64 * ROWS_BYTES + RIGHT_BOX)",
        "every thread waits",
    ),
    "a block that leaves before its neighbour": (
        "cluster_sync();              // no block leaves",
        "//",
        "a block is reached into after it has left",
    ),
    "a neighbour that hears nothing of rows that are not there": (
        "for (u32 block = 0; block < SHARE; ++block) {\n            barrier_arrive_cluster",
        "for (u32 block = 0; block < 1; ++block) {\n            barrier_arrive_cluster",
        "every thread waits",
    ),
    "stages given back while they are read": (
        "products_wait<1>();\n                if (step > 0) release(before);",
        "products_wait<1>();\n                release(ring.stage);",
        "a barrier's phase was never completed|more arrivals than a barrier has",
    ),
    "no fence before the engine": (
        "shared_visible_to_engines();",
        ";",
        "the engine reads what no fence has shown it",
    ),
    "a block that leaves what the engine reads": (
        "if (thread == 0) stores_have_read<0>();",
        ";",
        "a block leaves while the engine reads its memory",
    ),
}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_waiting_are_seen_on_the_cpu(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs or fails now and then on a GPU; in a process of its own, which it ends."""
    right, wrong, said = MISTAKES[mistake]
    told = tmp_path / "told"
    text = emulated._text

    def spoilt(file: str, part: Any) -> str:
        whole = text(file, part)
        return whole.replace(right, wrong) if file == FILE else whole

    route, workload, given = uneven(np.random.default_rng(5), (65, 0, 1))
    genome = route.space(workload, HOPPER).genome(SHARING)
    (grouped,) = {
        text(FILE, part).count(right)
        for part in route.parts(workload, genome, "sm_90a")
        if part.launches and part.launches[0].symbol == "grouped"
    }
    assert grouped == 1, "the mistake has its place in the text"

    def run() -> None:
        with told.open("w") as file:
            os.dup2(file.fileno(), 2)
            sys.stderr = file
            for seed in range(4):
                found = emulated_layer(route, workload, genome, given, tmp_path, seed)
                hold_right(route, given, found)

    monkeypatch.setattr(emulated, "_text", spoilt)
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(200)
    assert process.exitcode not in (0, None), "nobody has seen it"
    assert re.search(said, told.read_text())


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("pad", [64, 128])
def test_choices_are_sorted_in_their_order_on_the_cpu(pad: int, tmp_path: Path) -> None:
    """Many chunks, an expert that most chose, some that nobody chose, choices of no expert."""
    route, workload = small(tokens=1601, experts=40)
    alleles = {**tiles(hidden={"consumers": 3}, token={"wg_rows": 128}), "pad": pad}
    genome = route.space(workload, HOPPER).genome(alleles)
    first = route.parts(workload, genome, "sm_90a")[0]
    rng, size = np.random.default_rng(11), route.sizes(workload)
    chosen = np.minimum(rng.geometric(0.2, (size.tokens, size.top_k)) - 1, size.experts + 1) - 1
    x = bits(rng.standard_normal((size.tokens, size.hidden)))
    grad = bits(rng.standard_normal((size.tokens, size.hidden)))
    weights = rng.random((size.tokens, size.top_k)).astype(np.float32)
    names = [spec.name for spec in route.operator.inputs]
    drawn: list[NDArray[Any]] = [grad, x, weights, chosen.astype(np.int64)]
    given = dict(zip(names, drawn, strict=False))
    held = run_parts([(ROUTING, first)], given, tmp_path)

    def ints(name: str) -> NDArray[np.int32]:
        return held[name].view(np.int32)

    counts = np.array([(chosen == e).sum() for e in range(size.experts)])
    ends = np.cumsum(-(-counts // pad) * pad)
    starts = np.concatenate([[0], ends[:-1]])
    assert (counts == 0).any() and counts.max() > 500 and not np.isin(chosen, range(40)).all()
    np.testing.assert_array_equal(ints("spans").reshape(-1, 2), np.stack([starts, ends], 1))
    sources, places = np.full(ends[-1], -1), np.full(chosen.size, -1)
    for e in range(size.experts):
        mine = np.flatnonzero(chosen.ravel() == e)
        places[mine] = starts[e] + np.arange(len(mine))
        sources[places[mine]] = mine
    np.testing.assert_array_equal(ints("places"), places)
    np.testing.assert_array_equal(ints("sources")[: ends[-1]], sources)
    for at, (name, tile) in enumerate((("inner", 64), ("hidden", 192), ("token", 128))):
        wanted = [
            (e, row, ends[e])
            for e in range(size.experts)
            for row in range(starts[e], ends[e], tile)
        ]
        assert ints("counted")[at] == len(wanted)
        found = ints(f"{name} tiles").reshape(-1, 4)[: len(wanted), :3]
        np.testing.assert_array_equal(found, wanted)
    assert ints("counted")[3] == ends[-1]
    real = sources >= 0
    for name, whole in (("packed x", x), ("packed grad", grad)):
        rows = held[name].view(np.uint16).reshape(-1, size.hidden)[: ends[-1]]
        np.testing.assert_array_equal(rows[real], whole[sources[real] // size.top_k])
        assert not rows[~real].any()
    scales = held["scales"].view(np.float32)[: ends[-1]]
    np.testing.assert_array_equal(scales, np.where(real, weights.ravel()[sources], 0))
