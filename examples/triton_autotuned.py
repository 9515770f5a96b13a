"""Tune a kernel that has ``@triton.autotune`` already: its configurations become the first genomes.

The search space is widened from them, and the autotuner's keys become axes:
``kernelarc run examples/triton_autotuned.py --device cuda:0 --set M=8192 --set N=8192``.
It needs ``kernelarc[cuda,triton]`` and an NVIDIA GPU.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: PLR0917

import triton
import triton.language as tl

import kernelarc


@triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
            num_stages=3,
            num_warps=8,
        ),
        triton.Config(
            {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8},
            num_stages=4,
            num_warps=4,
        ),
    ],
    key=["M", "N", "K"],
)
@triton.heuristics({"EVEN_K": lambda call: call["K"] % call["BLOCK_K"] == 0})
@triton.jit
def matmul(
    a, b, c, M, N, K, stride_am, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Compute c = a . b^T; tiles go in groups of GROUP_M rows, which share operands in cache."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group, place = program // (GROUP_M * tiles_n), program % (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    tile_m, tile_n = group * GROUP_M + place % height, place // height

    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    left = a + m[:, None] * stride_am + k[None, :]
    right = b + n[None, :] * stride_bn + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            x, y = tl.load(left), tl.load(right)
        else:
            x = tl.load(left, mask=(k < K - start)[None, :], other=0.0)
            y = tl.load(right, mask=(k < K - start)[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += BLOCK_K
        right += BLOCK_K
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    out = c + m[:, None] * stride_cm + n[None, :]
    tl.store(out, total.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def launch(a, b, c):
    """Launch the kernel as the program does; the autotuner's constants are left to kernelarc."""
    (M, K), N = a.shape, b.shape[0]
    matmul[lambda call: (triton.cdiv(M, call["BLOCK_M"]) * triton.cdiv(N, call["BLOCK_N"]),)](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0)
    )


def reference(a, b):
    """Say what is right; called with NumPy arrays in float64."""
    return a @ b.T


MATMUL = kernelarc.TritonKernel(
    launch=launch,
    axes={"M": 4096, "N": 4096, "K": 4096},
    inputs={"a": ("bfloat16", ("M", "K")), "b": ("bfloat16", ("N", "K"))},
    outputs={"c": ("bfloat16", ("M", "N"))},
    reference=reference,
    flops="2 * M * N * K",
    bytes_moved="2 * (M * K + N * K + M * N)",
)
