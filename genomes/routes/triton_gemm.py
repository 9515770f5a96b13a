"""Triton kernels of a matrix product. Imported in compile processes only: it imports Triton.

``A (m, k) . B (k, n)`` with either factor stored transposed, then residual, bias, activation. The
constants are the route's genes; what they mean is said there.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x / (1.0 + tl.exp(-2.0 * inner))
    return x


@triton.jit
def _place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Rows and columns of a tile: GROUP rows of tiles are walked column by column."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    wide = GROUP * columns
    first = (tile // wide) * GROUP
    height = tl.minimum(rows - first, GROUP)
    return first + (tile % wide) % height, (tile % wide) // height


@triton.jit
def _summed(
    a, b, row, column, begin, end, M, N, K, a_m, a_k, b_n, b_k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    EVICT_A: tl.constexpr, EVICT_B: tl.constexpr, CACHE: tl.constexpr,
    LOOP_STAGES: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """The sum over k in [begin, end) of one tile, in float32."""
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if DESCRIPTORS:
        for k in tl.range(begin, end, BLOCK_K, num_stages=LOOP_STAGES,
                          warp_specialize=WARP_SPECIALIZE):  # fmt: skip
            if A_TURNED:
                left = a.load([k, row * BLOCK_M]).T
            else:
                left = a.load([row * BLOCK_M, k])
            if B_TURNED:
                right = b.load([column * BLOCK_N, k]).T
            else:
                right = b.load([k, column * BLOCK_N])
            total = tl.dot(left, right, total)
    else:
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        if not EVEN_M:
            m = m % M
        if not EVEN_N:
            n = n % N
        depth = tl.arange(0, BLOCK_K)
        left_at = a + m[:, None] * a_m + (begin + depth)[None, :] * a_k
        right_at = b + (begin + depth)[:, None] * b_k + n[None, :] * b_n
        for k in tl.range(begin, end, BLOCK_K, num_stages=LOOP_STAGES):
            if EVEN_K:
                left = tl.load(left_at, eviction_policy=EVICT_A, cache_modifier=CACHE)
                right = tl.load(right_at, eviction_policy=EVICT_B, cache_modifier=CACHE)
            else:
                inside = depth < end - k
                left = tl.load(left_at, mask=inside[None, :], other=0.0,
                               eviction_policy=EVICT_A, cache_modifier=CACHE)  # fmt: skip
                right = tl.load(right_at, mask=inside[:, None], other=0.0,
                                eviction_policy=EVICT_B, cache_modifier=CACHE)  # fmt: skip
            total = tl.dot(left, right, total)
            left_at += BLOCK_K * a_k
            right_at += BLOCK_K * b_k
    return total


@triton.jit
def _finished(
    total, residual, bias, m, n, M, N, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Add what is added and apply what is applied last; m and n are the tile's own."""
    if HAS_RESIDUAL:
        inside = (m[:, None] < M) & (n[None, :] < N)
        held = tl.load(residual + m[:, None] * N + n[None, :], mask=inside, other=0.0)
        total += held.to(tl.float32)
    if HAS_BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    return _activated(total, ACTIVATION)


@triton.jit
def _stored(
    total, c, residual, bias, row, column, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr,
    STORE_DESCRIPTOR: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Finish and store one tile, in PARTS strips of columns."""
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    if PARTS == 1:
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        done = _finished(total, residual, bias, m, n, M, N, HAS_RESIDUAL, HAS_BIAS, ACTIVATION)
        if STORE_DESCRIPTOR:
            c.store([row * BLOCK_M, column * BLOCK_N], done.to(OUT))
        else:
            inside = (m[:, None] < M) & (n[None, :] < N)
            tl.store(c + m[:, None] * N + n[None, :], done.to(OUT), mask=inside)
    else:
        half: tl.constexpr = BLOCK_N // 2
        split = tl.permute(tl.reshape(total, (BLOCK_M, 2, half)), (0, 2, 1))
        first, second = tl.split(split)
        n = column * BLOCK_N + tl.arange(0, half)
        done = _finished(first, residual, bias, m, n, M, N, HAS_RESIDUAL, HAS_BIAS, ACTIVATION)
        if STORE_DESCRIPTOR:
            c.store([row * BLOCK_M, column * BLOCK_N], done.to(OUT))
        else:
            inside = (m[:, None] < M) & (n[None, :] < N)
            tl.store(c + m[:, None] * N + n[None, :], done.to(OUT), mask=inside)
        n = column * BLOCK_N + half + tl.arange(0, half)
        done = _finished(second, residual, bias, m, n, M, N, HAS_RESIDUAL, HAS_BIAS, ACTIVATION)
        if STORE_DESCRIPTOR:
            c.store([row * BLOCK_M, column * BLOCK_N + half], done.to(OUT))
        else:
            inside = (m[:, None] < M) & (n[None, :] < N)
            tl.store(c + m[:, None] * N + n[None, :], done.to(OUT), mask=inside)


@triton.jit
def product(
    a, b, c, residual, bias, M, N, K, a_m, a_k, b_n, b_k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    DESCRIPTORS: tl.constexpr, STORE_DESCRIPTOR: tl.constexpr,
    A_TURNED: tl.constexpr, B_TURNED: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    EVICT_A: tl.constexpr, EVICT_B: tl.constexpr, CACHE: tl.constexpr,
    LOOP_STAGES: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, PARTS: tl.constexpr,
    PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """One tile each program, or with PROGRAMS > 0 so many programs that take tiles in turn."""
    if PROGRAMS:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
            row, column = _place(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
            total = _summed(
                a, b, row, column, 0, K, M, N, K, a_m, a_k, b_n, b_k, BLOCK_M, BLOCK_N, BLOCK_K,
                DESCRIPTORS, A_TURNED, B_TURNED, EVEN_M, EVEN_N, EVEN_K, EVICT_A, EVICT_B, CACHE,
                LOOP_STAGES, WARP_SPECIALIZE,
            )  # fmt: skip
            _stored(
                total, c, residual, bias, row, column, M, N, BLOCK_M, BLOCK_N, PARTS,
                STORE_DESCRIPTOR, HAS_RESIDUAL, HAS_BIAS, ACTIVATION, OUT,
            )  # fmt: skip
    else:
        row, column = _place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
        total = _summed(
            a, b, row, column, 0, K, M, N, K, a_m, a_k, b_n, b_k, BLOCK_M, BLOCK_N, BLOCK_K,
            DESCRIPTORS, A_TURNED, B_TURNED, EVEN_M, EVEN_N, EVEN_K, EVICT_A, EVICT_B, CACHE,
            LOOP_STAGES, WARP_SPECIALIZE,
        )  # fmt: skip
        _stored(
            total, c, residual, bias, row, column, M, N, BLOCK_M, BLOCK_N, PARTS,
            STORE_DESCRIPTOR, HAS_RESIDUAL, HAS_BIAS, ACTIVATION, OUT,
        )  # fmt: skip


@triton.jit
def partial_product(
    a, b, partial, M, N, K, chunk, a_m, a_k, b_n, b_k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    DESCRIPTORS: tl.constexpr, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    EVICT_A: tl.constexpr, EVICT_B: tl.constexpr, CACHE: tl.constexpr,
    LOOP_STAGES: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """One tile's sum over one chunk of k, in float32, into partial (chunks, M, N)."""
    row, column = _place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, K)
    total = _summed(
        a, b, row, column, begin, end, M, N, K, a_m, a_k, b_n, b_k, BLOCK_M, BLOCK_N, BLOCK_K,
        DESCRIPTORS, A_TURNED, B_TURNED, EVEN_M, EVEN_N, EVEN_K, EVICT_A, EVICT_B, CACHE,
        LOOP_STAGES, WARP_SPECIALIZE,
    )  # fmt: skip
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = partial + tl.program_id(1).to(tl.int64) * M * N
    tl.store(at + m[:, None] * N + n[None, :], total, mask=inside)


@triton.jit
def gathered(
    partial, c, residual, bias, M, N, CHUNKS: tl.constexpr, BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """Add the chunks of BLOCK elements, finish and store them."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < M * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in tl.static_range(CHUNKS):
        total += tl.load(partial + chunk * M * N + at, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        total += tl.load(bias + at % N, mask=inside, other=0.0).to(tl.float32)
    tl.store(c + at, _activated(total, ACTIVATION).to(OUT), mask=inside)
