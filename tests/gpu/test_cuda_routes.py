"""Packaged CUDA kernels on a GPU: drawn genomes are right on ragged shapes, so the judge says."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench.kernels import KernelDevice
from kernelarc.bench.kernels._workbench import NO_SUCH_CHOICE
from kernelarc.genomes import (
    Candidate,
    Genome,
    MatmulForm,
    Operator,
    Problem,
    Status,
    Workload,
    builtin_problem,
    matmul_operator,
    matmul_problem,
    packaged_problem,
)
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute
from kernelarc.genomes.routes._cuda_add_rmsnorm import cuda_add_rmsnorm_route
from kernelarc.genomes.routes._cuda_block import cuda_block_route
from kernelarc.genomes.routes._cuda_gemm import cuda_gated_route, cuda_gemm_route
from kernelarc.genomes.routes._cuda_gqa_paged import cuda_gqa_paged_route
from kernelarc.genomes.routes._cuda_layer import cuda_layer_route
from kernelarc.genomes.routes._cuda_moe import cuda_expert_route
from kernelarc.genomes.routes._cuda_nvfp4_gqa import cuda_nvfp4_gqa_route
from kernelarc.genomes.routes._cuda_saved import cuda_saved_route
from kernelarc.genomes.routes._triton_paged import triton_paged_route

HOPPER = DeviceLimits.of_arch("sm_90a")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the reference is written for torch"
)


def judged(
    route: KernelRoute | None, problem: Problem, folder: Path, *, drawn: int, pin: dict[str, str]
) -> None:
    """Let the device judge a route's seeds and some drawn genomes on every workload.

    Of what is drawn the library may not have the choice that a genome asks for.
    """
    assert route is not None
    rng = np.random.default_rng(17)
    with KernelDevice(routes=[route], processes=8).open(
        problem, seed=1, artefacts=folder
    ) as session:
        for workload in problem.workloads:
            space = session.spaces(workload)[route.name]
            pins = {name: value for name, value in pin.items() if name in space.names}
            genomes = [seed.genome for seed in route.seeds(workload, HOPPER)]
            genomes += [space.pin(pins).sample(rng) for _ in range(drawn)]
            assert session.check(workload, genomes) == [None] * len(genomes)
            session.submit(candidates(workload, genomes), limit={})
            found = list(session.collect())
            bad = [(e.status, e.failure, e.message, e.candidate.genome.items()) for e in found
                   if e.status is not Status.OK and e.failure != NO_SUCH_CHOICE]  # fmt: skip
            assert not bad, bad
            assert len(found) == len(genomes)
            seeds = len(genomes) - drawn
            assert all(e.status is Status.OK for e in found if e.candidate.number < seeds)


def candidates(workload: Workload, genomes: list[Genome]) -> list[Candidate]:
    return [
        Candidate(
            number=number, round=0, workload=workload.fingerprint, island="user",
            mutation="seed", genome=genome,
        )
        for number, genome in enumerate(genomes)
    ]  # fmt: skip


def bound(operator: Operator, problem: Problem, *shapes: Mapping[str, int]) -> Problem:
    like = problem.workloads[0]
    workloads = (replace(like, operator=operator.fingerprint, axes=dict(axes)) for axes in shapes)
    return Problem(operator=operator, workloads=tuple(workloads))


def with_constants(operator: Operator, **values: int) -> Operator:
    axes = {
        name: replace(axis, value=values.get(name, axis.value))
        for name, axis in operator.axes.items()
    }
    return replace(operator, axes=axes)


@pytest.mark.parametrize("products", ["warpgroup", "warp"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_are_right(tmp_path: Path, dtype: str, products: str) -> None:
    operator = matmul_operator(MatmulForm(dtype=dtype, residual=True))
    shapes = [{"M": 333, "N": 517, "K": 264}, {"M": 1571, "N": 2560, "K": 512}]
    problem = matmul_problem(operator, shapes)
    judged(cuda_gemm_route(operator), problem, tmp_path, drawn=8, pin={"products": products})


@pytest.mark.parametrize("products", ["warpgroup", "warp"])
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_products_of_factors_that_lie_across_are_right(
    tmp_path: Path, layout: str, products: str
) -> None:
    operator = matmul_operator(MatmulForm(layout=layout, residual=True))
    shapes = [{"M": 328, "N": 520, "K": 264}, {"M": 1000, "N": 2560, "K": 72}]
    problem = matmul_problem(operator, shapes)
    judged(cuda_gemm_route(operator), problem, tmp_path, drawn=8, pin={"products": products})


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("residual", [True, False])
def test_biases_and_activations_are_right(tmp_path: Path, activation: str, residual: bool) -> None:
    operator = matmul_operator(MatmulForm(bias=True, activation=activation, residual=residual))
    problem = matmul_problem(operator, [{"M": 333, "N": 517, "K": 264}])
    judged(cuda_gemm_route(operator), problem, tmp_path, drawn=8, pin={})


def test_products_into_the_residual_are_right(tmp_path: Path) -> None:
    operator = matmul_operator(MatmulForm(residual=True))
    problem = matmul_problem(operator, [{"M": 700, "N": 640, "K": 320}], in_place=True)
    judged(cuda_gemm_route(operator), problem, tmp_path, drawn=10, pin={})


@needs_torch
@pytest.mark.parametrize("name", ["geglu", "swiglu"])
def test_gated_projections_are_right(tmp_path: Path, name: str) -> None:
    whole = packaged_problem(name)
    operator = with_constants(whole.operator, hidden=520, intermediate=1111)
    problem = bound(operator, whole, {"batch": 3, "seq": 77})
    judged(cuda_gated_route(operator), problem, tmp_path, drawn=8, pin={})


def test_add_rmsnorm_in_float32_with_its_sum_is_right(tmp_path: Path) -> None:
    whole = builtin_problem("add_rmsnorm")
    shapes = ({"rows": 131, "hidden": 1531}, {"rows": 16, "hidden": 8192})
    problem = bound(whole.operator, whole, *shapes)
    judged(cuda_add_rmsnorm_route(whole.operator), problem, tmp_path, drawn=12, pin={})


@needs_torch
def test_add_rmsnorm_in_bfloat16_is_right(tmp_path: Path) -> None:
    whole = packaged_problem("add_rmsnorm_bf16")
    shapes = (
        {"rows": 131, "hidden": 8192},
        {"rows": 999, "hidden": 7168},
        {"rows": 1, "hidden": 2048},
    )
    problem = bound(whole.operator, whole, *shapes)
    judged(cuda_add_rmsnorm_route(whole.operator), problem, tmp_path, drawn=12, pin={})


@needs_torch
@pytest.mark.parametrize("hidden", [128, 512, 1536, 2048, 4096, 7168])
def test_rmsnorm_without_a_residual_is_right(tmp_path: Path, hidden: int) -> None:
    whole = packaged_problem("rmsnorm")
    shapes = ({"rows": 1, "hidden": hidden}, {"rows": 4099, "hidden": hidden})
    problem = bound(whole.operator, whole, *shapes)
    judged(cuda_add_rmsnorm_route(whole.operator), problem, tmp_path, drawn=8, pin={})


@needs_torch
@pytest.mark.parametrize("page_size", [1, 16])
def test_paged_attention_is_right(tmp_path: Path, page_size: int) -> None:
    whole = packaged_problem("gqa_paged_prefill")
    operator = with_constants(whole.operator, page_size=page_size)
    shapes = (
        {"total_q": 130, "num_pages": 300, "len_indptr": 5, "num_kv_indices": 200},
        # More queries than keys: the first rows see nothing.
        {"total_q": 90 * page_size, "num_pages": 80, "len_indptr": 4, "num_kv_indices": 60},
    )
    problem = bound(operator, whole, *shapes)
    judged(cuda_gqa_paged_route(operator), problem, tmp_path, drawn=8, pin={})


WRAPPED = """

def make_inputs(axes, device):
    made = prefill_inputs(axes, device)
    made.pop("qo_indptr" if "{kind}" == "decoding" else "kv_indices")
    if "{kind}" == "ragged":
        for name in ("k_cache", "v_cache"):
            made[name] = made[name][: axes["num_kv_indices"], 0].contiguous()
    return made


@torch.no_grad()
def run({parameters}):
    places = torch.arange(q.shape[0] + k_cache.shape[0] + 1, dtype=torch.int32, device=q.device)
    {rest}
"""
DECODING = (
    "return prefill(q, k_cache, v_cache, places[: len(kv_indptr)], kv_indptr, kv_indices, sm_scale)"
)
RAGGED = (
    "return prefill(q, k_cache[:, None], v_cache[:, None], qo_indptr, kv_indptr, places, sm_scale)"
)


def rewritten(kind: str) -> Problem:
    """Return the packaged prefill as decoding (one query a sequence) or over ragged keys."""
    whole = packaged_problem("gqa_paged_prefill")
    operator, gone = whole.operator, "qo_indptr" if kind == "decoding" else "kv_indices"
    inputs = [tensor for tensor in operator.inputs if tensor.name != gone]
    if kind == "ragged":
        keys = ("num_kv_indices", "num_kv_heads", "head_dim")
        caches = {"k_cache", "v_cache"}
        inputs = [replace(t, shape=keys) if t.name in caches else t for t in inputs]
    text = str(operator.reference).replace("def run(", "def prefill(")
    text = text.replace("def make_inputs(", "def prefill_inputs(") + WRAPPED.format(
        kind=kind,
        parameters=", ".join(tensor.name for tensor in inputs),
        rest=DECODING if kind == "decoding" else RAGGED,
    )
    words = "decodes one query a sequence" if kind == "decoding" else "causal, ragged keys"
    made = replace(
        operator, name=f"gqa_{kind}", description=words, inputs=tuple(inputs), reference=text
    )
    shape = {"total_q": 4 if kind == "decoding" else 130, "num_pages": 300, "len_indptr": 5}
    like = replace(whole.workloads[0], inputs={t.name: {"type": "custom"} for t in inputs})
    whole = replace(whole, workloads=(like,))
    return bound(made, whole, {**shape, "num_kv_indices": 200})


@needs_torch
@pytest.mark.parametrize("kind", ["decoding", "ragged"])
def test_decoding_and_ragged_keys_are_right(tmp_path: Path, kind: str) -> None:
    problem = rewritten(kind)
    judged(cuda_gqa_paged_route(problem.operator), problem, tmp_path, drawn=8, pin={})


@needs_torch
def test_attention_over_4_bit_floats_is_right(tmp_path: Path) -> None:
    whole = packaged_problem("nvfp4_gqa")
    shapes = tuple({"batch_size": b, "seq_len": n} for b, n in ((2, 128), (1, 256), (3, 77)))
    problem = bound(whole.operator, whole, *shapes)
    judged(cuda_nvfp4_gqa_route(whole.operator), problem, tmp_path, drawn=8, pin={})


@needs_torch
@pytest.mark.parametrize("products", ["warpgroup", "warp"])
@pytest.mark.parametrize("head", [128, 64])
def test_keys_that_pass_by_in_tiles_are_right(tmp_path: Path, head: int, products: str) -> None:
    whole = packaged_problem("nvfp4_gqa")
    operator = with_constants(whole.operator, query_heads=10, kv_heads=2, head_dim=head)
    shapes = (
        {"batch_size": b, "seq_len": n} for b, n in ((1, 2048), (2, 301), (1, 1000), (1, 200))
    )
    problem = bound(operator, whole, *shapes)
    judged(cuda_nvfp4_gqa_route(operator), problem, tmp_path, drawn=5, pin={"products": products})


@needs_torch
@pytest.mark.parametrize("heads", [128, 64])
def test_decoder_blocks_are_right(tmp_path: Path, heads: int) -> None:
    whole = packaged_problem("decoder_block")
    operator = with_constants(
        whole.operator, hidden=520, query_heads=6, kv_heads=2, head=heads, intermediate=1112
    )
    problem = bound(operator, whole, {"batch": 2, "seq": 77}, {"batch": 3, "seq": 200})
    judged(cuda_block_route(operator), problem, tmp_path, drawn=6, pin={})


@needs_torch
def test_gradients_of_an_expert_are_right(tmp_path: Path) -> None:
    whole = packaged_problem("moe_swiglu_backward")
    operator = with_constants(whole.operator, hidden=520, intermediate=264)
    problem = bound(operator, whole, {"tokens": 37}, {"tokens": 300})
    judged(cuda_expert_route(operator), problem, tmp_path, drawn=8, pin={})


@needs_torch
@pytest.mark.parametrize("made_by", ["kernel", "library"])
def test_gradients_of_an_expert_from_kept_activations_are_right(
    tmp_path: Path, made_by: str
) -> None:
    whole = packaged_problem("moe_swiglu_saved_backward")
    operator = with_constants(whole.operator, hidden=520, intermediate=264)
    problem = bound(operator, whole, {"tokens": 37}, {"tokens": 300})
    pin = {"token_form": "pair", "weight_form": "pair", "weight_by": made_by, "down_by": made_by}
    judged(cuda_saved_route(operator), problem, tmp_path, drawn=8, pin=pin)


@needs_torch
def test_products_of_the_library_in_a_block_are_right(tmp_path: Path) -> None:
    whole = packaged_problem("decoder_block")
    operator = with_constants(
        whole.operator, hidden=520, query_heads=6, kv_heads=2, head=128, intermediate=1112
    )
    problem = bound(operator, whole, {"batch": 2, "seq": 77}, {"batch": 3, "seq": 200})
    pin = {f"{name}_by": "library" for name in ("q", "kv", "o", "wide", "down")}
    judged(cuda_block_route(operator), problem, tmp_path, drawn=12, pin=pin)


@needs_torch
@pytest.mark.parametrize("kinds", [("inner", "hidden", "token", "weight"), ("hidden",)])
def test_products_of_the_library_in_an_expert_are_right(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    whole = packaged_problem("moe_swiglu_backward")
    operator = with_constants(whole.operator, hidden=520, intermediate=264)
    problem = bound(operator, whole, {"tokens": 37}, {"tokens": 1000})
    pin = {f"{name}_by": "library" for name in kinds}
    judged(cuda_expert_route(operator), problem, tmp_path, drawn=12, pin=pin)


@needs_torch
@pytest.mark.parametrize("products", ["warpgroup", "warp"])
def test_gradients_of_a_layer_are_right(tmp_path: Path, products: str) -> None:
    whole = packaged_problem("moe_layer_backward")
    operator = with_constants(
        whole.operator, hidden=320, intermediate=192, shared_intermediate=128, experts=9, top_k=3
    )
    problem = bound(operator, whole, {"tokens": 37}, {"tokens": 700})
    judged(cuda_layer_route(operator), problem, tmp_path, drawn=8, pin={"products": products})


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gqa_paged_decode", {"batch_size": 5, "num_pages": 300, "num_kv_indices": 200}),
        ("gqa_ragged_prefill", {"total_q": 130, "total_kv": 400, "len_indptr": 5}),
        (
            "gqa_paged_prefill",
            {"total_q": 130, "num_pages": 300, "len_indptr": 5, "num_kv_indices": 200},
        ),
    ],
)
def test_attention_by_triton_is_right(tmp_path: Path, name: str, shape: Mapping[str, int]) -> None:
    problem = packaged_problem(name, [shape])
    judged(triton_paged_route(problem.operator), problem, tmp_path, drawn=6, pin={})
