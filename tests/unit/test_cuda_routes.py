"""Routes of packaged CUDA sources: recognition, spaces, plans; builds where NVRTC is installed."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from kernelarc.genomes import (
    Genome,
    InputError,
    Operator,
    Problem,
    TensorSpec,
    Workload,
    builtin_problem,
    matmul_operator,
    matmul_problem,
    packaged_problem,
)
from kernelarc.genomes.kernels import (
    BuildError,
    DeviceLimits,
    KernelRoute,
    ScratchArgument,
    TensorArgument,
    TensorMap,
)
from kernelarc.genomes.routes._cuda_add_rmsnorm import (
    CudaAddRmsnormRoute,
    cuda_add_rmsnorm_route,
    norm_roles,
)
from kernelarc.genomes.routes._cuda_block import CudaBlock, cuda_block_route
from kernelarc.genomes.routes._cuda_gemm import (
    CudaGemmRoute,
    cuda_gated_route,
    cuda_gemm_route,
    gated_tensors,
)
from kernelarc.genomes.routes._cuda_gemm_space import TileShape
from kernelarc.genomes.routes._cuda_gqa_paged import cuda_gqa_paged_route, paged_roles
from kernelarc.genomes.routes._cuda_layer import cuda_layer_route
from kernelarc.genomes.routes._cuda_moe import CudaExpert, cuda_expert_route
from kernelarc.genomes.routes._cuda_nvfp4_gqa import cuda_nvfp4_gqa_route, nvfp4_roles
from kernelarc.genomes.routes._cuda_route import resident_clusters
from kernelarc.genomes.routes._cuda_saved import cuda_saved_route
from kernelarc.genomes.routes._cuda_source import cuda_source
from kernelarc.genomes.routes._matmul import MatmulForm
from kernelarc.genomes.routes._products import products_source

HOPPER, BLACKWELL = (DeviceLimits.of_arch(arch) for arch in ("sm_90a", "sm_100a"))
MAKERS = {
    "gemm_residual": cuda_gemm_route,
    "geglu": cuda_gated_route,
    "swiglu": cuda_gated_route,
    "add_rmsnorm_bf16": cuda_add_rmsnorm_route,
    "rmsnorm": cuda_add_rmsnorm_route,
    "gqa_paged_prefill": cuda_gqa_paged_route,
    "nvfp4_gqa": cuda_nvfp4_gqa_route,
    "decoder_block": cuda_block_route,
    "moe_swiglu_backward": cuda_expert_route,
    "moe_swiglu_saved_backward": cuda_saved_route,
    "moe_layer_backward": cuda_layer_route,
}


def nvrtc_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


needs_nvrtc = pytest.mark.skipif(not nvrtc_there(), reason="NVRTC's binding is not installed")


def route_of(name: str) -> tuple[KernelRoute, Problem]:
    problem = packaged_problem(name)
    route = MAKERS[name](problem.operator)
    assert route is not None
    return route, problem


@pytest.mark.parametrize("device", [HOPPER, BLACKWELL], ids=["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", MAKERS)
def test_every_workload_has_a_space_with_seeds(name: str, device: DeviceLimits) -> None:
    route, problem = route_of(name)
    for workload in problem.workloads:
        space = route.space(workload, device)
        assert route.unsuited(workload) is None
        assert len(space.genes) >= 8
        assert all(gene.strategy is not None and gene.description for gene in space.genes)
        seeds = route.seeds(workload, device)
        assert seeds and all(space.contains(seed.genome) for seed in seeds)


@pytest.mark.parametrize("name", MAKERS)
def test_a_route_is_made_for_its_own_operator_alone(name: str) -> None:
    operator = packaged_problem(name).operator
    made = [maker for maker in set(MAKERS.values()) if maker(operator) is not None]
    assert made == [MAKERS[name]]


def test_no_drawn_product_needs_more_shared_memory_than_there_is() -> None:
    route, problem = route_of("gemm_residual")
    space = route.space(problem.workloads[-1], HOPPER)
    rng = np.random.default_rng(3)
    for _ in range(300):
        genome = space.sample(rng)
        shape = TileShape.of(genome, gated=False)
        assert shape.shared_bytes <= HOPPER.shared_bytes
        assert shape.threads <= HOPPER.threads_block
        assert shape.tile_m // shape.cluster_n <= 256  # rows of a box
        assert shape.tile_n % (8 * shape.cluster_m) == 0


def test_blocks_cover_ragged_products_once() -> None:
    shape = TileShape(
        consumers=2, tile_m=128, tile_n=256, out_n=256, tile_k=64, stages=4, buffers=2,
        cluster_m=2, cluster_n=1, split_k=1, stays=False,
    )  # fmt: skip
    assert shape.blocks(257, 257, 132) == 2 * 2 * 2
    staying = replace(shape, stays=True)
    assert staying.blocks(257, 257, 132) == 8
    assert staying.blocks(8192, 8192, 132) == 132


@pytest.mark.parametrize(
    ("form", "axes", "words"),
    [
        (MatmulForm(layout="NN"), (64, 65, 64), "N=65 is no multiple of 8"),
        (MatmulForm(layout="NT"), (65, 64, 63), "M=65 is no multiple of 8"),
        (MatmulForm(), (64, 64, 65), "no multiple of 8"),
    ],
)
def test_products_that_the_kernel_does_not_serve(
    form: MatmulForm, axes: tuple[int, int, int], words: str
) -> None:
    operator = matmul_operator(form)
    (workload,) = matmul_problem(operator, [dict(zip("MNK", axes, strict=True))]).workloads
    route = cuda_gemm_route(operator)
    assert route is not None
    assert words in str(route.unsuited(workload))
    with pytest.raises(InputError, match=words):
        route.space(workload, HOPPER)


def test_a_batch_of_products_is_not_served() -> None:
    operator = matmul_operator(MatmulForm(batched=True))
    shape = {"B": 2, "M": 64, "N": 64, "K": 64}
    (workload,) = matmul_problem(operator, [shape]).workloads
    assert "batch" in str(CudaGemmRoute(operator).unsuited(workload))


def test_tiles_that_come_out_even_are_tried_first() -> None:
    route, problem = route_of("gemm_residual")
    one_wave = {256: (64, 80), 1024: (128, 160), 2048: (256, 160)}  # 128 tiles for 132 blocks
    for workload in problem.workloads:
        rows = workload.axes["batch"] * workload.axes["seq"]
        seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
        shapes = [TileShape.of(genome, gated=False) for genome in seeds]
        if rows in one_wave:
            assert one_wave[rows] in {(shape.tile_m, shape.tile_n) for shape in shapes}
            assert min(shape.blocks(rows, 2560, 132) for shape in shapes) <= 132


def test_other_dtypes_have_no_product() -> None:
    assert cuda_gemm_route(matmul_operator(MatmulForm(dtype="float32"))) is None


def test_ragged_columns_leave_by_registers() -> None:
    operator = matmul_operator(MatmulForm(residual=True))
    (workload,) = matmul_problem(operator, [{"M": 100, "N": 101, "K": 64}]).workloads
    space = CudaGemmRoute(operator).space(workload, HOPPER)
    assert space.gene("epilogue").values() == ("direct",)
    assert space.gene("residual").values() == ("last",)


def test_the_residual_is_written_over_only_where_the_workload_allows_it() -> None:
    operator = matmul_operator(MatmulForm(residual=True))
    shape = {"M": 64, "N": 64, "K": 64}
    for allowed in (True, False):
        (workload,) = matmul_problem(operator, [shape], in_place=allowed).workloads
        assert ("aliased" in CudaGemmRoute(operator).space(workload, HOPPER).names) is allowed


def changed(operator: Operator, **shapes: tuple[str, ...]) -> Operator:
    def with_shape(tensor: TensorSpec) -> TensorSpec:
        return replace(tensor, shape=shapes.get(tensor.name, tensor.shape))

    return replace(
        operator,
        inputs=tuple(with_shape(t) for t in operator.inputs),
        outputs=tuple(with_shape(t) for t in operator.outputs),
    )


def test_roles_are_read_from_structure() -> None:
    norm = packaged_problem("add_rmsnorm_bf16").operator
    roles = norm_roles(norm)
    assert roles is not None
    assert (roles.x, roles.residual, roles.weight) == ("hidden_states", "residual", "weight")
    assert roles.epsilon == "eps"
    assert norm_roles(changed(norm, weight=("rows",))) is None
    gated = packaged_problem("geglu").operator
    assert gated_tensors(gated) == ("x", "gate_proj", "up_proj", "gelu")
    assert gated_tensors(changed(gated, up_proj=("hidden", "intermediate"))) is None
    paged = packaged_problem("gqa_paged_prefill").operator
    assert paged_roles(replace(paged, name="other", op_type="", description="")) is None
    assert paged_roles(changed(paged, v_cache=("num_pages",))) is None
    quantised = packaged_problem("nvfp4_gqa").operator
    assert nvfp4_roles(changed(quantised, k_scale=("batch_size",))) is None


def decoding() -> Operator:
    """The packaged prefill with one query a sequence."""
    whole = packaged_problem("gqa_paged_prefill").operator
    inputs = tuple(t for t in whole.inputs if t.name != "qo_indptr")
    words = "Decodes one query a sequence over pages."
    return replace(whole, name="gqa_paged_decode", description=words, inputs=inputs)


def ragged() -> Operator:
    """The packaged prefill over keys that lie one after another."""
    whole = packaged_problem("gqa_paged_prefill").operator
    keys = ("num_kv_indices", "num_kv_heads", "head_dim")
    inputs = tuple(t for t in whole.inputs if t.name != "kv_indices")
    words = "Causal attention over ragged keys."
    other = replace(whole, name="gqa_ragged_prefill", description=words, inputs=inputs)
    return changed(other, k_cache=keys, v_cache=keys)


def test_decoding_and_ragged_keys_are_served_by_the_same_kernel() -> None:
    one, other = paged_roles(decoding()), paged_roles(ragged())
    assert one is not None and other is not None
    assert (one.q_starts, one.kv_pages) == (None, "kv_indices")
    assert (other.q_starts, other.kv_pages) == ("qo_indptr", None)
    unsaid = replace(decoding(), name="gqa", op_type="attention", description="")
    assert paged_roles(unsaid) is None


@pytest.mark.parametrize(("cluster", "resident"), [(1, 132), (2, 66), (4, 32), (8, 16), (16, 8)])
def test_clusters_stay_within_groups_of_multiprocessors(cluster: int, resident: int) -> None:
    assert resident_clusters(132, cluster) == resident


@pytest.mark.parametrize("width", [16, 64 * 32 * 32 * 8 + 1])
def test_rows_that_no_threads_can_hold_are_said(width: int) -> None:
    problem = packaged_problem("rmsnorm", [{"rows": 3, "hidden": width}])
    route, (workload,) = cuda_add_rmsnorm_route(problem.operator), problem.workloads
    assert route is not None
    said = f"route cuda takes rows of 17 to 524288 features, not {width}"
    assert route.unsuited(workload) == said
    with pytest.raises(InputError, match=said):
        route.space(workload, HOPPER)


@pytest.mark.parametrize("width", [17, 64 * 32 * 32 * 8])
def test_the_shortest_and_the_longest_rows_have_a_first_genome(width: int) -> None:
    problem = packaged_problem("rmsnorm", [{"rows": 3, "hidden": width}])
    route, (workload,) = cuda_add_rmsnorm_route(problem.operator), problem.workloads
    assert route is not None and route.unsuited(workload) is None
    assert route.space(workload, HOPPER).size().legal > 0
    assert route.seeds(workload, HOPPER)


def test_a_norm_without_a_residual_reads_half_and_rounds_no_sum() -> None:
    shapes = [{"rows": 999, "hidden": 4096}]
    for name, rows in (("rmsnorm", 1), ("add_rmsnorm_bf16", 2)):
        problem = packaged_problem(name, shapes)
        route, (workload,) = cuda_add_rmsnorm_route(problem.operator), problem.workloads
        assert isinstance(route, CudaAddRmsnormRoute)
        space = route.space(workload, HOPPER)
        assert ("rounded" in space.names) is (rows == 2)
        engine = next(
            seed.genome
            for seed in route.seeds(workload, HOPPER)
            if seed.genome["path"] == "engine" and seed.genome["cluster"] == 1
        )
        ready = route.prepared(workload, engine, "sm_90a")
        assert ready.macros["ADD_RESIDUAL"] == str(rows - 1)
        stages = engine["stages"]
        assert isinstance(stages, int)
        assert ready.launches[0].shared_bytes == rows * stages * 2 * 4096


def test_epsilon_may_stand_in_the_reference() -> None:
    roles = norm_roles(builtin_problem("add_rmsnorm").operator)
    assert roles is not None
    assert (roles.epsilon, roles.summed, roles.dtype) == (1e-6, "summed", "float32")


@pytest.mark.parametrize("width", [0, 12, 264])
def test_products_of_odd_widths_are_refused(width: int) -> None:
    with pytest.raises(InputError, match="8 to 256"):
        products_source(width, dtype="bfloat16")


def test_products_name_every_register_once() -> None:
    text = products_source(16, dtype="float16")
    assert text.count("m64n16k16.f32.f16.f16") == 3
    assert '"+f"(d[7])' in text and "d[8]" not in text


def test_sources_stand_alone() -> None:
    files = (
        "gemm_hopper.cu", "add_rmsnorm.cu", "gqa_paged.cu", "nvfp4_gqa.cu", "nvfp4_tiled.cu",
        "nvfp4_native.cu", "block_parts.cu",
        "grouped.cu", "routing.cu", "gating.cu",
    )  # fmt: skip
    for file in files:
        assert "#include" not in cuda_source(file, {"products.cuh": ""})


def block() -> tuple[CudaBlock, Problem]:
    problem = packaged_problem("decoder_block", [{"batch": 2, "seq": 77}])
    route = cuda_block_route(problem.operator)
    assert isinstance(route, CudaBlock)
    return route, problem


def by_kernels(route: CudaBlock, workload: Workload) -> list[Genome]:
    """Return the first genomes that leave nothing to the library."""
    found = [seed.genome for seed in route.seeds(workload, HOPPER)]
    return [g for g in found if not any(g[n] == "library" for n in g if n.endswith("_by"))]


def test_a_block_is_a_graph_whose_buffers_are_written_before_they_are_read() -> None:
    route, problem = block()
    (workload,) = problem.workloads
    space = route.space(workload, HOPPER)
    start = by_kernels(route, workload)[0]
    inputs = {spec.name for spec in problem.operator.inputs}
    for adds in (True, False):
        wanted = {**start.alleles(), "product_adds": adds}
        genome = space.repair(wanted, np.random.default_rng(0))
        assert genome is not None
        parts = route.parts(workload, genome, "sm_90a")
        known = {each.name for part in parts for each in part.scratch}
        named = {
            place.name
            for part in parts
            for launch in part.launches
            for each in launch.arguments
            if isinstance(place := each.source if isinstance(each, TensorMap) else each,
                          TensorArgument | ScratchArgument)
        }  # fmt: skip
        assert named - known <= inputs | {problem.operator.outputs[0].name}
        assert ("projected" in known) is not adds
        assert {"middle", "normed_2", "gated", "log_sums"} <= known
        symbols = [launch.symbol for part in parts for launch in part.launches]
        assert symbols.count("gemm") == 6 and ("norm_rows_sum" in symbols) is not adds


def test_a_part_that_stays_is_the_same_source_in_another_genome() -> None:
    route, problem = block()
    (workload,) = problem.workloads
    first, second = by_kernels(route, workload)[:2]
    changed = route.space(workload, HOPPER).genome(
        {**first.alleles(), **{n: a for n, a in second.items() if n.startswith("down_")}}
    )
    before = {part.text for part in route.parts(workload, first, "sm_90a")}
    after = {part.text for part in route.parts(workload, changed, "sm_90a")}
    assert len(after - before) == 1


def test_a_block_with_odd_rows_has_no_cuda_route() -> None:
    _, problem = block()
    axes = {
        name: replace(axis, value=5124) if name == "hidden" else axis
        for name, axis in problem.operator.axes.items()
    }
    odd = cuda_block_route(replace(problem.operator, axes=axes))
    assert odd is not None
    assert "multiples of 8" in str(odd.unsuited(problem.workloads[0]))


def test_an_expert_is_six_products_of_four_kinds() -> None:
    problem = packaged_problem("moe_swiglu_backward", [{"tokens": 37}])
    route, (workload,) = cuda_expert_route(problem.operator), problem.workloads
    assert isinstance(route, CudaExpert)
    axes = problem.operator.axes
    hidden, inner = int(axes["hidden"].value or 0), int(axes["intermediate"].value or 0)
    jobs = route.jobs(workload)
    wide, deep = (37, inner, hidden), (37, hidden, inner)
    weights = [(inner, hidden, 37), (inner, hidden, 37), (hidden, inner, 37)]
    assert [(job.m, job.n, job.k) for _, job in jobs] == [wide, wide, deep, *weights]
    parts = route.parts(workload, route.seeds(workload, HOPPER)[0].genome, "sm_90a")
    assert len({part.text for part in parts}) == 4
    assert {each.nbytes for part in parts for each in part.scratch} == {2 * 37 * inner}
    assert all(job.left_across and job.right_across for name, job in jobs if name == "weight")


@pytest.mark.parametrize("layout", ["TN", "NN", "NT"])
def test_a_factor_that_lies_across_is_described_as_it_lies(layout: str) -> None:
    operator = matmul_operator(MatmulForm(layout=layout))
    (workload,) = matmul_problem(operator, [{"M": 72, "N": 128, "K": 200}]).workloads
    route = CudaGemmRoute(operator)
    genome = route.seeds(workload, HOPPER)[0].genome
    left, right, *_ = route.prepared(workload, genome, "sm_90a").launches[0].arguments
    assert isinstance(left, TensorMap) and isinstance(right, TensorMap)
    assert left.extents == ((72, 200) if layout[1] == "T" else (200, 72))
    assert right.extents == ((200, 128) if layout[0] == "T" else (128, 200))
    shape = TileShape.of(genome, gated=False)
    if layout[0] == "N":
        assert shape.tile_n % 64 == 0 and right.box == (64, shape.tile_k // shape.cluster_m)


# Builds


def drawn(name: str, device: DeviceLimits) -> list[Genome]:
    route, problem = route_of(name)
    workload = problem.workloads[0]
    space = route.space(workload, device)
    return [route.seeds(workload, device)[0].genome, space.sample(np.random.default_rng(5))]


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", MAKERS)
def test_samples_compile(name: str, arch: str) -> None:
    device = DeviceLimits.of_arch(arch)
    route, problem = route_of(name)
    for genome in drawn(name, device):
        build = route.build(problem.workloads[0], genome, arch)
        assert route.fault(build, device) is None
        assert build.arch == arch
        assert all(report.registers > 0 for report in build.kernels)
        multiply = ("grouped",) if name == "moe_layer_backward" else (build.kernels[0].symbol,)
        for seen in (r.instructions for r in build.kernels if r.symbol in multiply):
            if genome.get("products") == "warpgroup":
                assert seen["wgmma"] > 0
            if genome.get("products") == "warp":
                assert seen["mma"] > 0 and seen["wgmma"] == 0


@needs_nvrtc
@pytest.mark.parametrize("operator", [decoding(), ragged()], ids=lambda o: o.name)
def test_decoding_and_ragged_keys_compile(operator: Operator) -> None:
    route = cuda_gqa_paged_route(operator)
    like = packaged_problem("gqa_paged_prefill").workloads[2]
    axes = {**like.axes, "total_q": like.axes["len_indptr"] - 1}
    workload = replace(like, operator=operator.fingerprint, axes=axes, inputs={})
    assert route is not None
    for seed in route.seeds(workload, HOPPER)[:3]:
        build = route.build(workload, seed.genome, "sm_90a")
        assert route.fault(build, HOPPER) is None


@needs_nvrtc
def test_a_block_compiles_part_by_part_and_as_one() -> None:
    from kernelarc.genomes.routes._nvrtc import compile_cuda

    route, problem = block()
    (workload,) = problem.workloads
    genome = by_kernels(route, workload)[0]
    build = route.build(workload, genome, "sm_90a")
    assert len({launch.binary for launch in build.plan.launches}) == len(build.binaries) >= 4
    ready = route.prepared(workload, genome, "sm_90a")
    code = compile_cuda(ready.text, "sm_90a")
    for launch, alone in zip(ready.launches, build.kernels, strict=True):
        report = code.report(launch.symbol, threads=alone.threads, shared_bytes=0)
        assert report.registers == alone.registers


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("form", [
    MatmulForm(layout="NN"),
    MatmulForm(layout="NT", bias=True),
    MatmulForm(bias=True, activation="gelu", residual=True),
    MatmulForm(activation="relu"),
], ids=lambda form: form.name)  # fmt: skip
def test_other_forms_of_products_compile(form: MatmulForm, arch: str) -> None:
    device = DeviceLimits.of_arch(arch)
    operator = matmul_operator(form)
    (workload,) = matmul_problem(operator, [{"M": 512, "N": 512, "K": 200}]).workloads
    route = CudaGemmRoute(operator)
    space = route.space(workload, device)
    for genome in (route.seeds(workload, device)[0].genome, space.sample(np.random.default_rng(3))):
        build = route.build(workload, genome, arch)
        assert route.fault(build, device) is None and build.kernels[0].warnings == ()


@needs_nvrtc
def test_wide_products_wait_for_nothing_and_spill_nothing() -> None:
    route, problem = route_of("gemm_residual")
    workload = problem.workloads[-1]
    build = route.build(workload, route.seeds(workload, HOPPER)[0].genome, "sm_90a")
    (report,) = build.kernels
    assert report.warnings == ()
    assert report.spill_bytes == 0
    assert report.instructions["tma"] > 0
    assert sum(isinstance(a, TensorMap) for a in build.plan.launches[0].arguments) == 4


@needs_nvrtc
def test_identity_names_compiler_and_sources() -> None:
    route, _ = route_of("gemm_residual")
    identity = route.identity()
    assert set(identity) == {"nvrtc", "sources"}
    assert len(identity["sources"]) == 16


@needs_nvrtc
def test_what_does_not_compile_says_why() -> None:
    from kernelarc.genomes.routes._nvrtc import compile_cuda

    with pytest.raises(BuildError, match="nothing_known"):
        compile_cuda('extern "C" __global__ void k() { nothing_known(); }', "sm_90a")


def test_blocks_that_stay_are_as_many_as_the_device_holds() -> None:
    problem = packaged_problem("gemm_residual", [{"batch": 8, "seq": 1024}])
    (workload,) = problem.workloads
    route = CudaGemmRoute(problem.operator)
    genome = next(
        seed.genome
        for seed in route.seeds(workload, HOPPER)
        if seed.genome["schedule"] == "persistent"
        and (seed.genome["cluster_m"], seed.genome["cluster_n"]) == (2, 1)
    )
    small = route.on(replace(HOPPER, multiprocessors=78))
    grids = [
        each.prepared(workload, genome, arch).launches[0].grid[0]
        for each, arch in ((route, "sm_90a"), (small, "sm_90a"), (small, "sm_100a"))
    ]
    assert grids == [132, 78, 148]
    assert route.limits("sm_90a") == HOPPER, "a bound copy leaves the route as it was"
