"""A small product in Triton, compiled for nobody. Imported in compile processes only."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rehearsed(a, b, c, K, BLOCK: tl.constexpr):
    """Multiply one tile of a (BLOCK, K) by one of b (K, BLOCK) into c (BLOCK, BLOCK)."""
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK):
        left = tl.load(a + rows[:, None] * K + k + rows[None, :])
        right = tl.load(b + (k + rows)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total.to(tl.bfloat16))
