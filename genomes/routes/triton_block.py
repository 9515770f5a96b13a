"""Triton kernels between a decoder block's products. Imported in compile processes only.

Rows are tokens. Sums are float32; what one subtask hands to the next is of the block's own type.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normed(
    x, added, weight, out, summed, eps, H,
    BLOCK: tl.constexpr, HAS_ADDED: tl.constexpr,
):  # fmt: skip
    """One row: added to another where there is one, and normalised by its root mean square."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < H
    base = row.to(tl.int64) * H
    value = tl.load(x + base + at, mask=inside, other=0.0)
    if HAS_ADDED:
        value += tl.load(added + base + at, mask=inside, other=0.0)
        tl.store(summed + base + at, value, mask=inside)
    wide = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / H + eps)
    done = wide * scale * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + base + at, done.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotated(
    x, weight, cos, sin, eps, ROWS, SEQ, heads,
    HEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK heads, each normalised and turned by its token's position, in place."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    half: tl.constexpr = HEAD // 2
    feature = tl.arange(0, half)
    inside = (row < ROWS)[:, None]
    at = x + row[:, None] * HEAD + feature[None, :]
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + half, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / HEAD + eps)[:, None]
    low *= scale * tl.load(weight + feature).to(tl.float32)[None, :]
    high *= scale * tl.load(weight + half + feature).to(tl.float32)[None, :]
    place = (row // heads) % SEQ
    angle = place[:, None] * HEAD + feature[None, :]
    cos_low = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + angle + half, mask=inside, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + angle + half, mask=inside, other=0.0).to(tl.float32)
    kind = x.dtype.element_ty
    tl.store(at, (low * cos_low - high * sin_low).to(kind), mask=inside)
    tl.store(at + half, (high * cos_high + low * sin_high).to(kind), mask=inside)


@triton.jit
def _step(
    queries, k, v, line, at, seen, factor, SEQ, top, total, mixed,
    STRIDE: tl.constexpr, HEAD: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add BLOCK_N keys to the running softmax."""
    key = at + tl.arange(0, BLOCK_N)
    there = key < SEQ
    feature = tl.arange(0, HEAD)
    by_key = line + key[None, :] * STRIDE + feature[:, None]
    score = tl.dot(queries, tl.load(k + by_key, mask=there[None, :], other=0.0)) * factor
    if MASKED:
        score = tl.where(key[None, :] < seen[:, None], score, -float("inf"))
    higher = tl.maximum(top, tl.max(score, 1))
    weight = tl.exp2(score - higher[:, None])
    shrunk = tl.exp2(top - higher)
    by_value = line + key[:, None] * STRIDE + feature[None, :]
    values = tl.load(v + by_value, mask=there[:, None], other=0.0)
    mixed = tl.dot(weight.to(values.dtype), values, mixed * shrunk[:, None])
    return higher, total * shrunk + tl.sum(weight, 1), mixed


@triton.jit
def attended(
    q, k, v, out, SEQ, factor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Causal attention of one tile: HEADS query heads of one key-value head, query by query."""
    tile, pair = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    batch, kv_head = pair // KV_HEADS, pair % KV_HEADS
    stride: tl.constexpr = KV_HEADS * HEAD
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    query = row // HEADS
    inside = query < SEQ
    token = (batch * SEQ + query) * (KV_HEADS * HEADS) + kv_head * HEADS + row % HEADS
    at = token.to(tl.int64)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    queries = tl.load(q + at, mask=inside[:, None], other=0.0)
    line = (batch * SEQ).to(tl.int64) * stride + kv_head * HEAD
    seen = tl.minimum(query, SEQ - 1) + 1
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    whole = ((tile * BLOCK_M) // HEADS + 1) // BLOCK_N * BLOCK_N
    for begin in range(0, whole, BLOCK_N):
        top, total, mixed = _step(
            queries, k, v, line, begin, seen, factor, SEQ, top, total, mixed,
            stride, HEAD, BLOCK_N, False,
        )  # fmt: skip
    for begin in range(whole, tl.max(seen, 0), BLOCK_N):
        top, total, mixed = _step(
            queries, k, v, line, begin, seen, factor, SEQ, top, total, mixed,
            stride, HEAD, BLOCK_N, True,
        )  # fmt: skip
    done = mixed / total[:, None]
    tl.store(out + at, done.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def activated(gate, up, out, N, BLOCK: tl.constexpr):
    """BLOCK elements of silu(gate) * up."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (g / (1.0 + tl.exp(-g)) * u).to(out.dtype.element_ty), mask=inside)
