"""Triton kernels of RMSNorm, with or without a residual added. Imported in compile processes only.

What the constants mean is said in the route.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _held(
    x, residual, weight, y, summed, eps, group, rows, HIDDEN: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_SUM: tl.constexpr, EVICT: tl.constexpr,
    STORE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """ROWS rows at once, held in registers between the two uses."""
    row = group * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None].to(tl.int64) * HIDDEN + column[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < HIDDEN)
    total = tl.load(x + at, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    if HAS_RESIDUAL:
        right = tl.load(residual + at, mask=inside, other=0.0, eviction_policy=EVICT)
        total += right.to(tl.float32)
    if HAS_SUM:
        tl.store(summed + at, total.to(OUT), mask=inside, cache_modifier=STORE)
    scale = tl.rsqrt(tl.sum(total * total, 1) / HIDDEN + eps)
    factor = tl.load(weight + column, mask=column < HIDDEN, other=0.0,
                     eviction_policy="evict_last").to(tl.float32)  # fmt: skip
    done = total * scale[:, None] * factor[None, :]
    tl.store(y + at, done.to(OUT), mask=inside, cache_modifier=STORE)


@triton.jit
def _read_twice(
    x, residual, weight, y, summed, eps, group, rows, HIDDEN: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_SUM: tl.constexpr, EVICT: tl.constexpr,
    STORE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """ROWS rows in blocks of columns, read once for the squares and once for the result."""
    row = group * ROWS + tl.arange(0, ROWS)
    start = row[:, None].to(tl.int64) * HIDDEN
    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for begin in tl.range(0, HIDDEN, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < HIDDEN)
        total = tl.load(x + start + column[None, :], mask=inside, other=0.0,
                        eviction_policy="evict_last").to(tl.float32)  # fmt: skip
        if HAS_RESIDUAL:
            right = tl.load(residual + start + column[None, :], mask=inside, other=0.0,
                            eviction_policy="evict_last")  # fmt: skip
            total += right.to(tl.float32)
        squares += total * total
        if HAS_SUM:
            tl.store(summed + start + column[None, :], total.to(OUT), mask=inside,
                     cache_modifier=STORE)  # fmt: skip
    scale = tl.rsqrt(tl.sum(squares, 1) / HIDDEN + eps)
    for begin in tl.range(0, HIDDEN, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < HIDDEN)
        total = tl.load(x + start + column[None, :], mask=inside, other=0.0,
                        eviction_policy=EVICT).to(tl.float32)  # fmt: skip
        if HAS_RESIDUAL:
            right = tl.load(residual + start + column[None, :], mask=inside, other=0.0,
                            eviction_policy=EVICT)  # fmt: skip
            total += right.to(tl.float32)
        factor = tl.load(weight + column, mask=column < HIDDEN, other=0.0,
                         eviction_policy="evict_last").to(tl.float32)  # fmt: skip
        done = total * scale[:, None] * factor[None, :]
        tl.store(y + start + column[None, :], done.to(OUT), mask=inside, cache_modifier=STORE)


@triton.jit
def normalised(
    x, residual, weight, y, summed, eps, rows,
    HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr,
    HELD: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_SUM: tl.constexpr, EVICT: tl.constexpr,
    STORE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """A group of rows each program, or with PROGRAMS > 0 so many programs take groups in turn."""
    if PROGRAMS:
        for group in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), PROGRAMS):
            if HELD:
                _held(x, residual, weight, y, summed, eps, group, rows, HIDDEN, BLOCK, ROWS,
                      HAS_RESIDUAL, HAS_SUM, EVICT, STORE, OUT)  # fmt: skip
            else:
                _read_twice(x, residual, weight, y, summed, eps, group, rows, HIDDEN, BLOCK, ROWS,
                            HAS_RESIDUAL, HAS_SUM, EVICT, STORE, OUT)  # fmt: skip
    else:
        group = tl.program_id(0)
        if HELD:
            _held(x, residual, weight, y, summed, eps, group, rows, HIDDEN, BLOCK, ROWS,
                  HAS_RESIDUAL, HAS_SUM, EVICT, STORE, OUT)  # fmt: skip
        else:
            _read_twice(x, residual, weight, y, summed, eps, group, rows, HIDDEN, BLOCK, ROWS,
                        HAS_RESIDUAL, HAS_SUM, EVICT, STORE, OUT)  # fmt: skip
