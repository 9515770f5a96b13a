"""Attention over 4-bit floats by CUDA: which kernel where, what it needs, what it compiles to."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelarc.genomes import Genome, Workload, packaged_problem
from kernelarc.genomes.kernels import DeviceLimits, Launch
from kernelarc.genomes.routes._cuda_nvfp4_gqa import CudaNvfp4GqaRoute
from kernelarc.genomes.routes._cuda_nvfp4_space import TENSOR_COLUMNS, Nvfp4Sizes
from kernelarc.genomes.routes._cuda_route import whole_gene

HOPPER, BLACKWELL = (DeviceLimits.of_arch(arch) for arch in ("sm_90a", "sm_100a"))


def quantised(length: int) -> tuple[CudaNvfp4GqaRoute, Workload]:
    problem = packaged_problem("nvfp4_gqa", [{"batch_size": 2, "seq_len": length}])
    return CudaNvfp4GqaRoute(problem.operator), problem.workloads[0]


def launched(length: int, genome: Genome, arch: str) -> Launch:
    route, workload = quantised(length)
    (launch,) = route.prepared(workload, genome, arch).launches
    return launch


@pytest.mark.parametrize(
    ("capability", "native"),
    [((9, 0), False), ((10, 0), True), ((10, 3), True), ((11, 0), True), ((12, 0), False)],
)
@pytest.mark.parametrize("length", [128, 2048])
def test_codes_are_multiplied_where_a_chip_can(
    length: int, capability: tuple[int, int], native: bool
) -> None:
    route, workload = quantised(length)
    space = route.space(workload, replace(BLACKWELL, compute_capability=capability))
    first = {gene.name: gene.at(0) for gene in space.genes}
    why = space.violation({**first, "products": "fp4", "tile_kv": 64})
    assert why == (None if native else "gene 'products' has no allele 'fp4'")


@pytest.mark.parametrize("length", [257, 2048, 5000])
def test_more_keys_than_registers_hold_pass_by_in_tiles(length: int) -> None:
    route, workload = quantised(length)
    assert route.unsuited(workload) is None
    space = route.space(workload, HOPPER)
    rng = np.random.default_rng(2)
    genomes = [*(s.genome for s in route.seeds(workload, HOPPER)), space.sample(rng)]
    assert len(genomes) > 3 and len(space.genes) >= 8
    for genome in genomes:
        launch = launched(length, genome, "sm_90a")
        assert launch.symbol == "nvfp4_tiled"
        assert launch.shared_bytes <= HOPPER.shared_bytes


def test_few_keys_are_held_at_once() -> None:
    route, workload = quantised(256)
    space = route.space(workload, HOPPER)
    assert "tile_kv" not in space.names
    genome = space.sample(np.random.default_rng(0))
    assert launched(256, genome, "sm_90a").symbol == "nvfp4_gqa"


@pytest.mark.parametrize("length", [77, 128, 256, 2048])
def test_blocks_of_a_multiprocessor_share_its_tensor_memory(length: int) -> None:
    route, workload = quantised(length)
    space = route.space(workload, BLACKWELL).pin({"products": "fp4", "max_registers": 0})
    sizes = Nvfp4Sizes(batch=2, q_heads=40, kv_heads=8, length=length, head=128)
    rng = np.random.default_rng(length)
    for genome in (space.sample(rng) for _ in range(40)):
        columns = sizes.native_columns(whole_gene(genome, "tile_kv"))
        assert columns in {32, 64, 128, 256, 512}
        assert whole_gene(genome, "min_blocks") * columns <= TENSOR_COLUMNS
        launch = launched(length, genome, "sm_100a")
        assert (launch.symbol, launch.block) == ("nvfp4_native", (128, 1, 1))
        assert launch.shared_bytes <= BLACKWELL.shared_bytes


# Builds


def nvrtc_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


needs_nvrtc = pytest.mark.skipif(not nvrtc_there(), reason="NVRTC's binding is not installed")


def disassembler() -> str | None:
    """Where ``nvdisasm`` is: in the toolkit, or beside Triton."""
    triton = importlib.util.find_spec("triton")
    for place in triton.submodule_search_locations or () if triton else ():
        beside = Path(place) / "backends" / "nvidia" / "bin" / "nvdisasm"
        if beside.exists():
            return str(beside)
    return shutil.which("nvdisasm")


@needs_nvrtc
@pytest.mark.parametrize("length", [300, 2048])
def test_key_tiles_compile(length: int) -> None:
    route, workload = quantised(length)
    for seed in route.seeds(workload, HOPPER):
        build = route.build(workload, seed.genome, "sm_90a")
        assert route.fault(build, HOPPER) is None
        (report,) = build.kernels
        assert report.instructions["wgmma"] > 0 and not report.spill_bytes and not report.warnings


@needs_nvrtc
@pytest.mark.parametrize(("length", "tile"), [(128, 128), (2048, 64), (256, 256)])
def test_products_of_codes_compile_to_the_chips_own(tmp_path: Path, length: int, tile: int) -> None:
    route, workload = quantised(length)
    seeds = [seed.genome for seed in route.seeds(workload, BLACKWELL)]
    genome = next(g for g in seeds if g["products"] == "fp4" and g["tile_kv"] == tile)
    build = route.build(workload, genome, "sm_100a")
    assert route.fault(build, BLACKWELL) is None
    (report,) = build.kernels
    codes, elements = 128 // 64, tile // 16  # products of 64 codes and of 16 elements
    assert report.instructions["tcgen05"] == codes + elements
    assert report.instructions["mma"] == report.instructions["wgmma"] == report.spill_bytes == 0
    reader = disassembler()
    if reader is None:
        pytest.skip("nvdisasm is not installed")
    (binary,) = build.binaries.values()
    (tmp_path / "kernel.cubin").write_bytes(binary)
    asked = [reader, "-c", str(tmp_path / "kernel.cubin")]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"\bUTCOMMA\.4X\b", text)) == codes
    assert len(re.findall(r"\bUTCHMMA\b", text)) == elements
    copies = codes * (1 + -(-tile // 128))  # scales of 128 rows each
    assert len(re.findall(r"\bUTCCP\.\S*4x32dp128bit\b", text)) == copies
    assert re.search(r"\bLDTM\.x32\b", text) and re.search(r"\bUTCBAR\b", text)
