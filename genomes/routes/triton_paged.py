"""Triton kernel of causal attention over a paged cache. Imported in compile processes only.

A row is one query of one query head; the query heads of a key-value head are rows of one tile, so
that keys and values are read once for them. Which sequence a tile belongs to is read from where
the sequences start.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sequence(
    q_starts, tile, SEQUENCES: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """The sequence of a tile, and the tile's place in it."""
    each = tl.arange(0, WIDTH)
    there = each < SEQUENCES
    begin = tl.load(q_starts + each, mask=there, other=0)
    end = tl.load(q_starts + each + 1, mask=there, other=0)
    tiles = ((end - begin) * HEADS + BLOCK_M - 1) // BLOCK_M
    sequence = tl.sum((tl.cumsum(tiles, 0) <= tile).to(tl.int32), 0)
    return sequence, tile - tl.sum(tl.where(each < sequence, tiles, 0), 0)


@triton.jit
def _step(
    queries, k_cache, v_cache, kv_pages, pages_at, at, last, seen, kv_head, factor,
    top, total, mixed,
    KV_HEADS: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """Add BLOCK_N keys to the running softmax."""
    key = at + tl.arange(0, BLOCK_N)
    there = key < last
    page = tl.load(kv_pages + pages_at + key // PAGE, mask=there, other=0)
    slot = page.to(tl.int64) * PAGE + key % PAGE
    line = (slot * KV_HEADS + kv_head) * HEAD
    feature = tl.arange(0, HEAD)
    by_key = line[None, :] + feature[:, None]
    keys = tl.load(k_cache + by_key, mask=there[None, :], other=0.0, eviction_policy=EVICT)
    score = tl.dot(queries, keys) * factor
    if MASKED:
        score = tl.where(key[None, :] < seen[:, None], score, -float("inf"))
    higher = tl.maximum(top, tl.max(score, 1))
    safe = tl.where(higher == -float("inf"), 0.0, higher)
    weight = tl.exp2(score - safe[:, None])
    shrunk = tl.exp2(top - safe)
    total = total * shrunk + tl.sum(weight, 1)
    by_value = line[:, None] + feature[None, :]
    values = tl.load(v_cache + by_value, mask=there[:, None], other=0.0, eviction_policy=EVICT)
    mixed = tl.dot(weight.to(values.dtype), values, mixed * shrunk[:, None])
    return higher, total, mixed


@triton.jit
def gqa_paged(
    q, k_cache, v_cache, q_starts, kv_starts, kv_pages, scale, out, lse,
    SEQUENCES: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PARTED: tl.constexpr, HEADS_FIRST: tl.constexpr, LONGEST_FIRST: tl.constexpr,
    EVICT: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one key-value head; HEADS query heads share it.

    PARTED: keys that every row sees are added without a mask first.
    """
    if HEADS_FIRST:
        kv_head, tile, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    else:
        tile, kv_head, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    if LONGEST_FIRST:
        tile = tiles - 1 - tile
    sequence, place = _sequence(q_starts, tile, SEQUENCES, WIDTH, HEADS, BLOCK_M)
    if sequence >= SEQUENCES:
        return
    q_begin, q_end = tl.load(q_starts + sequence), tl.load(q_starts + sequence + 1)
    pages_at = tl.load(kv_starts + sequence)
    held = (tl.load(kv_starts + sequence + 1) - pages_at) * PAGE
    row = place * BLOCK_M + tl.arange(0, BLOCK_M)
    query = row // HEADS
    inside = query < q_end - q_begin
    ahead = held - (q_end - q_begin)
    seen = tl.where(inside, query + ahead + 1, 0)
    line = (q_begin + query) * (HEADS * KV_HEADS) + kv_head * HEADS + row % HEADS
    feature = tl.arange(0, HEAD)
    at = line.to(tl.int64)[:, None] * HEAD + feature[None, :]
    queries = tl.load(q + at, mask=inside[:, None], other=0.0)
    factor = scale * 1.4426950408889634
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    last = tl.maximum(tl.max(seen, 0), 0)
    whole = 0
    if PARTED:
        least = (place * BLOCK_M) // HEADS + ahead + 1
        whole = tl.maximum(tl.minimum(least, last), 0) // BLOCK_N * BLOCK_N
        for begin in range(0, whole, BLOCK_N):
            top, total, mixed = _step(
                queries, k_cache, v_cache, kv_pages, pages_at, begin, last, seen, kv_head, factor,
                top, total, mixed, KV_HEADS, HEAD, PAGE, BLOCK_N, False, EVICT,
            )  # fmt: skip
    for begin in range(whole, last, BLOCK_N):
        top, total, mixed = _step(
            queries, k_cache, v_cache, kv_pages, pages_at, begin, last, seen, kv_head, factor,
            top, total, mixed, KV_HEADS, HEAD, PAGE, BLOCK_N, True, EVICT,
        )  # fmt: skip
    some = total > 0.0
    mixed = mixed / tl.where(some, total, 1.0)[:, None]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside[:, None])
    sums = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), -float("inf"))
    tl.store(lse + line, sums, mask=inside)
