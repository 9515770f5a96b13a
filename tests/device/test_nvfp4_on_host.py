"""Attention over 4-bit floats: the CUDA texts on this machine's processor, against float64.

Three kernels: all scores of a row at once, key tiles that pass by twice, and products of the codes
themselves. For the last one it is the only place where it runs: descriptions, layouts of codes and
of scales, columns of tensor memory and who waits for whom are the kernel's own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.device import cuda_host

from kernelarc.genomes import Operator, Workload, packaged_problem
from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_nvfp4_gqa import CudaNvfp4GqaRoute
from kernelarc.genomes.routes._cuda_nvfp4_space import Nvfp4Sizes
from kernelarc.genomes.routes._cuda_route import whole_gene

ROUTES = Path(__file__).resolve().parents[2] / "genomes" / "routes"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
HOPPER, BLACKWELL = (DeviceLimits.of_arch(arch) for arch in ("sm_90a", "sm_100a"))
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
WHOLE: dict[str, Allele] = {
    "products": "warpgroup", "warpgroups": 2, "parts": 1, "store": "engine", "spare": True,
    "mix": "first", "dequantise": "table", "ahead": True, "max_registers": 0, "min_blocks": 1,
    "pdl": False,
}  # fmt: skip
TILED: dict[str, Allele] = {
    "products": "warpgroup", "warpgroups": 2, "parts": 1, "tile_kv": 128, "stages": 2,
    "store": "engine", "mix": "first", "dequantise": "table", "max_registers": 0, "min_blocks": 1,
    "pdl": False,
}  # fmt: skip
NATIVE: dict[str, Allele] = {
    "products": "fp4", "parts": 1, "tile_kv": 128, "store": "engine", "dequantise": "table",
    "max_registers": 0, "min_blocks": 1, "pdl": False,
}  # fmt: skip


def numbers(
    codes: NDArray[np.uint8], scales: NDArray[np.uint8], whole: float
) -> NDArray[np.float64]:
    """What quantised rows are worth: the even feature in a byte's low half."""
    table = np.array([*MAGNITUDES, *(-m for m in MAGNITUDES)])
    apart = np.stack((codes & 15, codes >> 4), axis=-1).reshape(*codes.shape[:-1], -1)
    exponent, mantissa = scales.astype(int) >> 3 & 15, scales.astype(int) & 7
    each = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    found: NDArray[np.float64] = table[apart] * np.repeat(each, 16, axis=-1) * whole
    return found


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class Job:
    """Quantised queries, keys and values of some sizes, and what is right for them."""

    def __init__(self, length: int, *, head: int, group: int, kv_heads: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.length, self.head, self.group, self.kv_heads = length, head, group, kv_heads
        self.tensors: dict[str, NDArray[Any]] = {}
        worth = {}
        for name, heads, whole in (
            ("q", group * kv_heads, 0.31), ("k", kv_heads, 0.23), ("v", kv_heads, 0.7),
        ):  # fmt: skip
            shape = (1, heads, length)
            codes = rng.integers(0, 256, (*shape, head // 2), dtype=np.uint8)
            scales = rng.integers(1, 0x44, (*shape, head // 16), dtype=np.uint8)  # 2**-9 to 3
            self.tensors[name], self.tensors[f"{name}_scale"] = codes, scales
            self.tensors[f"{name}_global_scale"] = np.array(whole, np.float32)
            worth[name] = numbers(codes, scales, float(np.float32(whole)))
        keys, values = (np.repeat(worth[name], group, axis=1) for name in "kv")
        scores = worth["q"] @ keys.swapaxes(-1, -2) * head**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = weights / weights.sum(-1, keepdims=True)
        self.output = self.weights @ values
        self.allowed = 2.0**-7 * (self.weights @ np.abs(values))  # weights and results are rounded
        self.outputs: dict[str, NDArray[Any]] = {
            "output": np.zeros(self.output.shape, np.uint16),
            "weights": np.zeros(self.weights.shape, np.uint16),
        }

    def operator(self) -> Operator:
        whole = packaged_problem("nvfp4_gqa").operator
        sizes = {
            "query_heads": self.group * self.kv_heads, "kv_heads": self.kv_heads,
            "head_dim": self.head,
        }  # fmt: skip
        axes = {n: replace(a, value=sizes.get(n, a.value)) for n, a in whole.axes.items()}
        return replace(whole, axes=axes)


def outcome(
    job: Job,
    folder: Path,
    genes: dict[str, Allele],
    planted: tuple[str, str] = ("", ""),
    *,
    seed: int = 1,
) -> str:
    """Say what is wrong with a genome's run, ``""`` where nothing is; results are asserted.

    Args:
        job: What is computed.
        folder: Where to work.
        genes: The genome.
        planted: Text of the kernel, and what stands in its place.
        seed: Of the order of threads.
    """
    operator = job.operator()
    route = CudaNvfp4GqaRoute(operator)
    axes = {"batch_size": 1, "seq_len": job.length}
    workload = Workload(operator=operator.fingerprint, axes=axes)
    device = BLACKWELL if genes["products"] == "fp4" or genes["dequantise"] == "convert" else HOPPER
    genome = route.space(workload, device).genome(genes)
    ready = route.prepared(workload, genome, device.arch)
    assert planted[0] in ready.source
    source = ready.source.replace(*planted)
    if genes["products"] == "fp4":  # what the host reckons is what the kernel has
        sizes = Nvfp4Sizes(
            batch=1, q_heads=job.group * job.kv_heads, kv_heads=job.kv_heads, length=job.length,
            head=job.head,
        )  # fmt: skip
        tile = whole_gene(genome, "tile_kv")
        source += f"static_assert(COLUMNS == {sizes.native_columns(tile)});\n"
        source += f"static_assert(BARRIER + 16 + 1024 == {ready.launches[0].shared_bytes});\n"
    program = cuda_host.built(replace(ready, source=source), folder)
    found, complaint = cuda_host.run(program, job.tensors, job.outputs, seed=seed)
    if complaint:
        return complaint
    weights, output = (widened(found[name]) for name in ("weights", "output"))
    np.testing.assert_allclose(weights, job.weights, rtol=6e-3, atol=1e-6)
    assert (np.abs(output - job.output) <= job.allowed).all(), "mixed values are wrong"
    return ""


def named(genes: dict[str, Allele]) -> str:
    return ",".join(f"{n}={a}" for n, a in genes.items()) or "plain"


SHORT = Job(77, head=64, group=3, kv_heads=2, seed=2)
EVEN = Job(96, head=128, group=2, kv_heads=1, seed=3)
LONG = Job(328, head=64, group=2, kv_heads=1, seed=4)
SMALL = Job(257, head=64, group=1, kv_heads=1, seed=7)
ROUND = Job(264, head=64, group=1, kv_heads=1, seed=8)
ODD = Job(261, head=128, group=1, kv_heads=2, seed=5)


@pytest.mark.parametrize(
    ("job", "genes"),
    [
        (EVEN, {}),
        (EVEN, {"store": "direct", "mix": "last", "ahead": False, "parts": 2, "warpgroups": 1}),
        (EVEN, {"products": "warp", "spare": False, "warpgroups": 1, "pdl": True}),
        (SHORT, {"products": "warp", "store": "direct", "dequantise": "convert"}),
        (Job(200, head=64, group=1, kv_heads=2, seed=6), {"warpgroups": 2}),
    ],
    ids=lambda value: named(value) if isinstance(value, dict) else f"{value.length}x{value.head}",
)
def test_all_keys_at_once(tmp_path: Path, job: Job, genes: dict[str, Allele]) -> None:
    assert outcome(job, tmp_path, {**WHOLE, **genes}) == ""


@pytest.mark.parametrize(
    ("job", "genes"),
    [
        (LONG, {}),
        (LONG, {"stages": 1, "warpgroups": 1, "parts": 4, "mix": "last"}),
        (LONG, {"tile_kv": 64, "warpgroups": 3, "parts": 2, "store": "direct"}),
        (ROUND, {"tile_kv": 192, "pdl": True}),
        (SMALL, {"products": "warp", "tile_kv": 64, "store": "direct"}),
        (ODD, {"store": "direct", "tile_kv": 64, "warpgroups": 1}),
        (ROUND, {"products": "warp", "stages": 1, "mix": "last"}),
    ],
    ids=lambda value: named(value) if isinstance(value, dict) else f"{value.length}x{value.head}",
)
def test_key_tiles_pass_by_twice(tmp_path: Path, job: Job, genes: dict[str, Allele]) -> None:
    assert outcome(job, tmp_path, {**TILED, **genes}) == ""


@pytest.mark.parametrize(
    ("job", "genes"),
    [
        (EVEN, {}),
        (EVEN, {"tile_kv": 64, "parts": 2, "dequantise": "convert"}),
        (SHORT, {"store": "direct", "pdl": True}),
        (LONG, {"parts": 2}),
        (LONG, {"tile_kv": 256, "parts": 4}),
        (ODD, {"tile_kv": 64, "store": "direct"}),
        (ODD, {"tile_kv": 256, "store": "direct", "parts": 2}),
    ],
    ids=lambda value: named(value) if isinstance(value, dict) else f"{value.length}x{value.head}",
)
def test_products_of_codes(tmp_path: Path, job: Job, genes: dict[str, Allele]) -> None:
    assert outcome(job, tmp_path, {**NATIVE, **genes}) == ""


@pytest.mark.parametrize("genes", [TILED, NATIVE], ids=["tiled", "native"])
def test_two_thousand_keys(tmp_path: Path, genes: dict[str, Allele]) -> None:
    job = Job(2048, head=64, group=1, kv_heads=1, seed=10)
    assert outcome(job, tmp_path, genes) == ""


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (("described(from, 0, 128)", "described(from, 0, 256)"), "outside"),
        (("row % 128 / 32 * 4", "row % 128 / 64 * 4"), "equal|no unsigned"),
        (("place ^ (place >> 7 & (CHUNKS - 1)) << 4", "place"), "equal"),
        (("memory + KEY_COLUMNS + 4 * step * KEY_PARTS, step > 0",
          "memory + KEY_COLUMNS, step > 0"), "equal"),
        (("| DESCRIBED_HERE", ""), "without its constant"),
        (("1u << 7 | 1u << 10 | width", "5u << 7 | 5u << 10 | width"), "not that product"),
        (("if (warp == 0) columns_give_back(memory, COLUMNS);", ""), "not given back"),
        (("const u32 lanes = memory + ((u32)warp << 21);", "const u32 lanes = memory;"),
         "lanes that are not its own"),
        (("                barrier_wait(base + BARRIER, parity);", ""), "equal|outside"),
        (("dequantise_rows(base, v, v_scale, key);\n                shared_visible_to_engines();",
          "dequantise_rows(base, v, v_scale, key);"), "no fence"),
        (("        laid_down_was_read();\n        __syncthreads();\n#pragma unroll 1",
          "        __syncthreads();\n#pragma unroll 1"), "equal|wrong|fence"),
    ],
    ids=["scales apart", "scales of other rows", "no swizzle", "scales of other features",
         "no constant", "other codes", "columns kept", "lanes of others", "no wait", "no fence",
         "laid over what leaves"],
)  # fmt: skip
def test_what_is_wrong_with_products_of_codes_shows(
    tmp_path: Path, planted: tuple[str, str], words: str
) -> None:
    try:
        complaint = outcome(EVEN, tmp_path, {**NATIVE, "tile_kv": 128}, planted)
    except AssertionError as error:
        complaint = str(error)
    assert re.search(words, complaint), complaint


def test_results_of_small_heads_have_one_buffer(tmp_path: Path) -> None:
    job = Job(200, head=64, group=1, kv_heads=1, seed=9)
    planted = ("way.leaving + chunk % BOXES * 8192", "way.leaving + chunk % 2 * 8192")
    assert outcome(job, tmp_path, WHOLE, planted) == "outside of shared memory\n"


# Descriptions, bit by bit as the instruction set documents them

# The same products of codes in the PTX that Triton 3.6 makes of ``tl.dot_scaled`` for sm_100a; it
# lays 128 codes of a row down with the same swizzle (4) and distance between groups (32) too.
AS_TRITON_WRITES = {64: 135267456, 128: 136316032, 256: 138413184}
HEADERS = ("device.cuh", "tensor_memory.cuh")
ASKED = """
#include "%s"
%s
int main() {
    const u64 wide[] = {codes_described(0x12200, 64), codes_described(0x100, 32),
                        described(0x3fff0, 0, 128), rows_described(0x8400),
                        columns_described(0x1c00, 16384)};
    for (u64 each : wide) std::printf("%%llu\\n", each);
    for (u32 width : {64u, 128u, 256u})
        std::printf("%%u\\n%%u\\n", product_of_codes(width), product_across(width));
}
"""


def fields(bits: int, *places: tuple[int, int]) -> tuple[int, ...]:
    """The whole numbers that stand from a first to a last bit; all others must be zero."""
    found = tuple(bits >> first & (1 << last - first + 1) - 1 for first, last in places)
    assert bits == sum(n << first for n, (first, _) in zip(found, places, strict=True))
    return found


def test_descriptions_are_as_documented(tmp_path: Path) -> None:
    text = "#define PDL 0\n#define DTYPE_bfloat16 1\n#define MAX_REGISTERS 64\n"
    text += "".join((ROUTES / name).read_text() for name in HEADERS)
    raw, source, program = (tmp_path / name for name in ("raw.txt", "asked.cpp", "asked"))
    raw.write_text(text)
    plain = subprocess.run(
        ["g++", "-x", "c++", "-E", "-P", str(raw)], capture_output=True, text=True, check=True
    ).stdout
    support = Path(cuda_host.__file__).with_suffix(".hpp")
    source.write_text(ASKED % (support, cuda_host.translated(plain)))
    subprocess.run(["g++", "-std=c++20", "-w", str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    codes, narrow, scales, rows, columns, *products = map(int, said.split())
    # Shared memory: start / 16, distances / 16 along and between groups of 8, the constant 1,
    # base offset, kind of leading distance, and the swizzle (of 128, 64 and 32 bytes: 2, 4, 6).
    layout = ((0, 13), (16, 29), (32, 45), (46, 48), (49, 51), (52, 52), (61, 63))
    assert fields(codes, *layout) == (0x1220, 1, 32, 1, 0, 0, 4)
    assert fields(narrow, *layout) == (0x10, 1, 16, 1, 0, 0, 6)
    assert fields(scales, *layout) == (0x3FFF, 0, 8, 1, 0, 0, 0)
    assert fields(rows, *layout) == (0x840, 1, 64, 1, 0, 0, 2)
    assert fields(columns, *layout) == (0x1C0, 1024, 64, 1, 0, 0, 2)
    # Codes: the right one's scale part, types (e2m1: 1), turned, N / 8, type of scales (unsigned
    # e4m3: 0), M / 16, the left one's scale part, depth (64: 0).
    # Elements: sums (float32: 1), types (bfloat16: 1), turned, N / 8, M / 16.
    for width, (of_codes, across) in zip(
        (64, 128, 256), zip(products[::2], products[1::2], strict=True), strict=True
    ):
        scaled = ((4, 5), (7, 9), (10, 12), (15, 15), (16, 16), (17, 22), (23, 23), (24, 28),
                  (29, 30), (31, 31))  # fmt: skip
        assert fields(of_codes, *scaled) == (0, 1, 1, 0, 0, width // 8, 0, 8, 0, 0)
        assert of_codes == AS_TRITON_WRITES[width]
        plain_kind = ((4, 5), (7, 9), (10, 12), (15, 15), (16, 16), (17, 22), (24, 28))
        assert fields(across, *plain_kind) == (1, 1, 1, 0, 1, width // 8, 8)
