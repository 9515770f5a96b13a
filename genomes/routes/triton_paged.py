"""Triton kernels of causal attention over a cache. Imported in compile processes only.

A row is one query of one query head; the query heads of a key-value head are rows of one tile, so
that keys and values are read once for them. Which sequence a tile belongs to is read from where
the sequences start; while DECODING each has one query. Keys lie in pages, or, RAGGED, one after
another. With several SPLITS programs share out a tile's keys, and a second kernel joins them.
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
    RAGGED: tl.constexpr, MASKED: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """Add BLOCK_N keys to the running softmax."""
    key = at + tl.arange(0, BLOCK_N)
    there = key < last
    if RAGGED:
        slot = (pages_at + key).to(tl.int64)
    else:
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
def _place(HEADS_FIRST: tl.constexpr, LONGEST_FIRST: tl.constexpr):
    """The tile of rows and the key-value head of this program."""
    if HEADS_FIRST:
        kv_head, tile, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    else:
        tile, kv_head, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    if LONGEST_FIRST:
        tile = tiles - 1 - tile
    return tile, kv_head


@triton.jit
def _keys(
    kv_starts, last_pages, sequence, PAGE: tl.constexpr, HAS_LAST_PAGE: tl.constexpr
):  # fmt: skip
    """Where a sequence's pages begin, and how many keys they hold."""
    pages_at = tl.load(kv_starts + sequence)
    held = (tl.load(kv_starts + sequence + 1) - pages_at) * PAGE
    if HAS_LAST_PAGE:
        held = tl.where(held > 0, held + tl.load(last_pages + sequence) - PAGE, 0)
    return pages_at, held


@triton.jit
def _share(last, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr):
    """The keys of this program: whole steps of BLOCK_N, but for the last one."""
    share = tl.cdiv(tl.cdiv(last, BLOCK_N), SPLITS) * BLOCK_N
    low = tl.program_id(2) * share
    return low, tl.minimum(last, low + share)


@triton.jit
def _store(out, lse, at, line, inside, top, total, mixed):
    """Write what was mixed, and the base-2 logarithm of the sums; rows that saw nothing are 0."""
    some = total > 0.0
    mixed = mixed / tl.where(some, total, 1.0)[:, None]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside[:, None])
    sums = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), -float("inf"))
    tl.store(lse + line, sums, mask=inside)


@triton.jit
def gqa_paged(
    q, k_cache, v_cache, q_starts, kv_starts, kv_pages, last_pages, scale, out, lse, lines,
    SEQUENCES: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DECODING: tl.constexpr, RAGGED: tl.constexpr, HAS_LAST_PAGE: tl.constexpr,
    SPLITS: tl.constexpr, PARTED: tl.constexpr, HEADS_FIRST: tl.constexpr,
    LONGEST_FIRST: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one key-value head; HEADS query heads share it.

    PARTED: keys that every row sees are added without a mask first. With SPLITS, out and lse have
    a plane of ``lines`` rows for each part of the keys.
    """
    tile, kv_head = _place(HEADS_FIRST, LONGEST_FIRST)
    if DECODING:
        each: tl.constexpr = (HEADS + BLOCK_M - 1) // BLOCK_M
        sequence, place = tile // each, tile % each
        q_begin, queries_here = sequence, 1
    else:
        sequence, place = _sequence(q_starts, tile, SEQUENCES, WIDTH, HEADS, BLOCK_M)
        if sequence >= SEQUENCES:
            return
        q_begin = tl.load(q_starts + sequence)
        queries_here = tl.load(q_starts + sequence + 1) - q_begin
    pages_at, held = _keys(kv_starts, last_pages, sequence, PAGE, HAS_LAST_PAGE)
    row = place * BLOCK_M + tl.arange(0, BLOCK_M)
    query = row // HEADS
    inside = query < queries_here
    ahead = held - queries_here
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
    low, high = _share(last, BLOCK_N, SPLITS)
    if SPLITS > 1:
        plane = tl.program_id(2).to(tl.int64) * lines
        out += plane * HEAD
        lse += plane
    whole = low
    if PARTED:
        least = (place * BLOCK_M) // HEADS + ahead + 1
        common = tl.maximum(tl.minimum(least, last), 0) // BLOCK_N * BLOCK_N
        whole = tl.maximum(tl.minimum(common, high), low)
        for begin in range(low, whole, BLOCK_N):
            top, total, mixed = _step(
                queries, k_cache, v_cache, kv_pages, pages_at, begin, last, seen, kv_head, factor,
                top, total, mixed, KV_HEADS, HEAD, PAGE, BLOCK_N, RAGGED, False, EVICT,
            )  # fmt: skip
    for begin in range(whole, high, BLOCK_N):
        top, total, mixed = _step(
            queries, k_cache, v_cache, kv_pages, pages_at, begin, last, seen, kv_head, factor,
            top, total, mixed, KV_HEADS, HEAD, PAGE, BLOCK_N, RAGGED, True, EVICT,
        )  # fmt: skip
    _store(out, lse, at, line, inside, top, total, mixed)


@triton.jit
def gqa_joined(
    parts, part_sums, out, lse, lines,
    SPLITS: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Join what programs found in their parts of the keys, for BLOCK queries of a head each."""
    line = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = line < lines
    feature = tl.arange(0, HEAD)
    at = line.to(tl.int64)[:, None] * HEAD + feature[None, :]
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for part in tl.static_range(SPLITS):
        found = tl.load(part_sums + part * lines + line, mask=inside, other=-float("inf"))
        top = tl.maximum(top, found)
    shift = tl.where(top == -float("inf"), 0.0, top)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK, HEAD), dtype=tl.float32)
    for part in tl.static_range(SPLITS):
        found = tl.load(part_sums + part * lines + line, mask=inside, other=-float("inf"))
        weight = tl.exp2(found - shift)
        total += weight
        plane = tl.cast(part, tl.int64) * lines * HEAD
        held = tl.load(parts + plane + at, mask=inside[:, None], other=0.0)
        mixed += weight[:, None] * held
    _store(out, lse, at, line, inside, shift, total, mixed)
