"""Triton kernel of attention over 4-bit floats. Imported in compile processes only.

Codes are widened in the kernel: a code times its block's scale has few enough bits to be exact in
any 16-bit float; the scales of whole tensors are applied to the float32 sums. The query heads of a
key-value head lie side by side, so a program's rows are rows of one matrix.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _widened(codes):
    """Values of e2m1 codes: a sign, two bits of exponent, one of mantissa."""
    size = codes & 7
    exponent, mantissa = size >> 1, size & 1
    whole = tl.where(exponent == 0, mantissa, (2 + mantissa) << tl.maximum(exponent - 1, 0))
    value = whole.to(tl.float32) * 0.5
    return tl.where((codes & 8) != 0, -value, value)


@triton.jit
def _tile(
    codes, scales, row, inside, ROWS: tl.constexpr, HEAD: tl.constexpr, FACTOR: tl.constexpr,
    REPEAT: tl.constexpr,
):  # fmt: skip
    """Rows (ROWS, HEAD) of a quantised matrix without its whole scale."""
    half: tl.constexpr = HEAD // 2
    blocks: tl.constexpr = HEAD // 16
    at = codes + row[:, None] * half + tl.arange(0, half)[None, :]
    packed = tl.load(at, mask=inside[:, None], other=0).to(tl.int32)
    value = tl.interleave(_widened(packed & 15), _widened((packed >> 4) & 15))
    if REPEAT:
        at = scales + row[:, None] * blocks + tl.arange(0, blocks)[None, :]
        scale = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
        value = tl.reshape(value, (ROWS, blocks, 16)) * scale[:, :, None]
        value = tl.reshape(value, (ROWS, HEAD))
    else:
        at = scales + row[:, None] * blocks + (tl.arange(0, HEAD) // 16)[None, :]
        value *= tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
    return value.to(FACTOR)


@triton.jit
def _scores(queries, k, k_scale, first, at, LENGTH, factor,
            BLOCK_N: tl.constexpr, HEAD: tl.constexpr, FACTOR: tl.constexpr, REPEAT: tl.constexpr,
):  # fmt: skip
    """Scores against BLOCK_N keys, in powers of two; keys behind the end count nothing."""
    key = at + tl.arange(0, BLOCK_N)
    keys = _tile(k, k_scale, first + key, key < LENGTH, BLOCK_N, HEAD, FACTOR, REPEAT)
    found = tl.dot(queries, tl.trans(keys)) * factor
    return tl.where((key < LENGTH)[None, :], found, -float("inf"))


@triton.jit
def nvfp4_gqa(
    q, q_scale, q_whole, k, k_scale, k_whole, v, v_scale, v_whole, out, weights,
    LENGTH, ROWS, kv_heads,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FACTOR: tl.constexpr,
    REPEAT: tl.constexpr, ONE: tl.constexpr, HEADS_FIRST: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one key-value head. ONE: all keys are one tile, scored once."""
    if HEADS_FIRST:
        head, tile = tl.program_id(0), tl.program_id(1)
    else:
        tile, head = tl.program_id(0), tl.program_id(1)
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = row < ROWS
    whole = head.to(tl.int64) * ROWS + row
    queries = _tile(q, q_scale, whole, inside, BLOCK_M, HEAD, FACTOR, REPEAT)
    first = head.to(tl.int64) * LENGTH
    factor = tl.load(q_whole) * tl.load(k_whole) * SCALE
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    if not ONE:
        for at in range(0, LENGTH, BLOCK_N):
            score = _scores(
                queries, k, k_scale, first, at, LENGTH, factor, BLOCK_N, HEAD, FACTOR, REPEAT
            )  # fmt: skip
            higher = tl.maximum(top, tl.max(score, 1))
            total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(score - higher[:, None]), 1)
            top = higher
    for at in range(0, LENGTH, BLOCK_N):
        score = _scores(
            queries, k, k_scale, first, at, LENGTH, factor, BLOCK_N, HEAD, FACTOR, REPEAT
        )  # fmt: skip
        if ONE:
            top = tl.max(score, 1)
            total = tl.sum(tl.exp2(score - top[:, None]), 1)
        weight = tl.exp2(score - top[:, None]) / total[:, None]
        key = at + tl.arange(0, BLOCK_N)
        held = inside[:, None] & (key < LENGTH)[None, :]
        to = weights + whole[:, None] * LENGTH + key[None, :]
        tl.store(to, weight.to(weights.dtype.element_ty), mask=held)
        values = _tile(v, v_scale, first + key, key < LENGTH, BLOCK_N, HEAD, FACTOR, REPEAT)
        mixed = tl.dot(weight.to(FACTOR), values, mixed)
    mixed *= tl.load(v_whole)
    to = out + whole[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(to, mixed.to(out.dtype.element_ty), mask=inside[:, None])
