"""Triton kernel of a gated projection. Imported in compile processes only: it imports Triton.

``bend(x . gate') * (x . up')``: x is (M, K), both weights are (N, K). Sums are float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """GROUP tiles of rows are walked column by column."""
    wide = GROUP * tiles_n
    first = (tile // wide) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + (tile % wide) % height, (tile % wide) // height


@triton.jit
def _bent(x, BEND: tl.constexpr):
    if BEND == "gelu":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return x / (1.0 + tl.exp(-2.0 * inner))
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _tile(
    x, gate, up, out, row, column, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    BEND: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    """Both products of one tile, bent and multiplied."""
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    m_held = m if EVEN_M else tl.where(m < M, m, 0)
    n_held = n if EVEN_N else tl.where(n < N, n, 0)
    k = tl.arange(0, BLOCK_K)
    x_at = x + m_held[:, None] * K + k[None, :]
    by_column = n_held[None, :] * K + k[:, None]
    g = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    u = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(0, K, BLOCK_K):
        if EVEN_K:
            left = tl.load(x_at)
            g = tl.dot(left, tl.load(gate + by_column, eviction_policy=EVICT), g)
            u = tl.dot(left, tl.load(up + by_column, eviction_policy=EVICT), u)
        else:
            held = k < K - at
            left = tl.load(x_at, mask=held[None, :], other=0.0)
            g = tl.dot(left, tl.load(gate + by_column, mask=held[:, None], other=0.0), g)
            u = tl.dot(left, tl.load(up + by_column, mask=held[:, None], other=0.0), u)
        x_at += BLOCK_K
        by_column += BLOCK_K
    inside = (m < M)[:, None] & (n < N)[None, :]
    done = _bent(g, BEND) * u
    tl.store(out + m[:, None] * N + n[None, :], done.to(out.dtype.element_ty), mask=inside)


@triton.jit
def gated(
    x, gate, up, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    BEND: tl.constexpr, EVICT: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """One tile a program, or with PROGRAMS > 0 so many programs that take tiles in turn."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    if PROGRAMS:
        for tile in range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS):
            row, column = _place(tile, tiles_m, tiles_n, GROUP)
            _tile(
                x, gate, up, out, row, column, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K,
                EVEN_M, EVEN_N, EVEN_K, BEND, EVICT,
            )  # fmt: skip
    else:
        row, column = _place(tl.program_id(0), tiles_m, tiles_n, GROUP)
        _tile(
            x, gate, up, out, row, column, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K,
            EVEN_M, EVEN_N, EVEN_K, BEND, EVICT,
        )  # fmt: skip
