"""A Triton kernel that commits, by genes, what kernels do at their worst. Imports Triton late."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def planted(
    a,
    b,
    c,
    M,
    N,
    K,
    WAY: tl.constexpr,
    WARPS: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, DEPTH)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for begin in range(0, K, DEPTH):
        left = tl.load(a + m[:, None] * K + (begin + k)[None, :])
        right = tl.load(b + n[None, :] * K + (begin + k)[:, None])
        total = tl.dot(left, right, total)
    if WAY == "wrong with 8 warps" and WARPS == 8:
        total += 1.0
    if WAY == "input":
        tl.store(a + m, total.sum(1).to(tl.bfloat16))
    if WAY == "hang":
        stop = tl.load(c).to(tl.float32)
        while stop != 12345.0:
            stop = tl.load(c, volatile=True).to(tl.float32)
    if WAY == "illegal":
        tl.store(c + (1 << 36) + m.to(tl.int64), total.sum(1).to(tl.bfloat16))
    if WAY == "outside":
        tl.store(c + M * N + m, total.sum(1).to(tl.bfloat16))
    inside = (m[:, None] < M) & (n[None, :] < N)
    if WAY == "half":
        inside = inside & (n[None, :] < N // 2)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=inside)
