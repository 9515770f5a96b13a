"""Triton kernels of the backward pass of gated experts. Imported in compile processes only.

An expert computes ``down(silu(gate(x)) * up(x))``. Assignments of tokens to experts are sorted
by expert first (``counted``, ``placed``); a row below is one assignment in that order, or a token
where there is one expert for all (GROUPED is false). H is the size of a token, WIDE that of an
expert's hidden row. Sums are float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def counted(selected, counts, N, BLOCK: tl.constexpr):
    """Count the assignments of one expert a program."""
    expert = tl.program_id(0)
    found = tl.zeros((BLOCK,), dtype=tl.int32)
    for begin in range(0, N, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        found += (tl.load(selected + at, mask=at < N, other=-1) == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(found, 0))


@triton.jit
def placed(
    selected, counts, rows, N, EXPERTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """List the assignments of one expert a program, in their own order, behind those before it."""
    expert = tl.program_id(0)
    each = tl.arange(0, WIDTH)
    held = tl.load(counts + each, mask=each < EXPERTS, other=0)
    start = tl.sum(tl.where(each < expert, held, 0), 0)
    for begin in range(0, N, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        here = (tl.load(selected + at, mask=at < N, other=-1) == expert).to(tl.int32)
        rank = tl.cumsum(here, 0) - 1
        tl.store(rows + start + rank, at, mask=here != 0)
        start += tl.sum(here, 0)


@triton.jit
def _tile_of(
    counts, tile, EXPERTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr
):  # fmt: skip
    """The expert of a tile of rows, its first row, and where the expert's rows end."""
    each = tl.arange(0, WIDTH)
    held = tl.load(counts + each, mask=each < EXPERTS, other=0)
    tiles = (held + BLOCK_M - 1) // BLOCK_M
    expert = tl.sum((tl.cumsum(tiles, 0) <= tile).to(tl.int32), 0)
    before = tl.sum(tl.where(each < expert, tiles, 0), 0)
    start = tl.sum(tl.where(each < expert, held, 0), 0)
    end = start + tl.sum(tl.where(each == expert, held, 0), 0)
    return expert, start + (tile - before) * BLOCK_M, end


@triton.jit
def _place(pid, tiles_m, tiles_n, GROUP: tl.constexpr):
    """GROUP tiles of rows are walked column by column; 0 walks a row of tiles at a time."""
    if GROUP == 0:
        return pid // tiles_n, pid % tiles_n
    wide = GROUP * tiles_n
    first = (pid // wide) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + (pid % wide) % height, (pid % wide) // height


@triton.jit
def _within(n, END, EVEN: tl.constexpr):
    """Places that can be read: what lies behind the end reads the first.

    Even tiles stay plain: only then is it known that neighbours lie side by side.
    """
    if EVEN:
        return n
    return tl.where(n < END, n, 0)


@triton.jit
def _three_sums(
    x_at, grad_at, gate_at, up_at, down_at, H, WIDE,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Return x . gate', x . up' and grad . down of one tile."""
    k = tl.arange(0, BLOCK_K)
    g = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    u = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    d = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(0, H, BLOCK_K):
        if EVEN_K:
            left = tl.load(x_at)
            g = tl.dot(left, tl.load(gate_at), g)
            u = tl.dot(left, tl.load(up_at), u)
            d = tl.dot(tl.load(grad_at), tl.load(down_at), d)
        else:
            held = k < H - at
            left = tl.load(x_at, mask=held[None, :], other=0.0)
            g = tl.dot(left, tl.load(gate_at, mask=held[:, None], other=0.0), g)
            u = tl.dot(left, tl.load(up_at, mask=held[:, None], other=0.0), u)
            right = tl.load(down_at, mask=held[:, None], other=0.0)
            d = tl.dot(tl.load(grad_at, mask=held[None, :], other=0.0), right, d)
        x_at += BLOCK_K
        grad_at += BLOCK_K
        gate_at += BLOCK_K
        up_at += BLOCK_K
        down_at += BLOCK_K * WIDE
    return g, u, d


@triton.jit
def hidden_gradients(
    x, grad, scales, rows, counts, gate, up, down, grad_gate, grad_up, hidden, products,
    N, H, WIDE, tiles_m,
    GROUPED: tl.constexpr, TOP_K: tl.constexpr, EXPERTS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Gradients of gate and up, and the scaled hidden row, of one tile: three products at once.

    With GROUPED also one float32 a row and tile of columns: its part of the scale's gradient.
    """
    tile, column = _place(tl.program_id(0), tiles_m, tl.cdiv(WIDE, BLOCK_N), GROUP)
    if GROUPED:
        expert, begin, end = _tile_of(counts, tile, EXPERTS, WIDTH, BLOCK_M)
        if expert >= EXPERTS:
            return
        weights = expert.to(tl.int64) * H * WIDE
        gate += weights
        up += weights
        down += weights
    else:
        begin, end = tile * BLOCK_M, N
    m = begin + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = m < end
    if GROUPED:
        chosen = tl.load(rows + m, mask=inside, other=0)
        token = chosen // TOP_K
    else:
        chosen = m
        token = tl.where(inside, m, 0)
    k = tl.arange(0, BLOCK_K)
    by_token = token[:, None] * H + k[None, :]
    n_held = _within(n, WIDE, EVEN_N)
    by_row = n_held[None, :] * H + k[:, None]
    by_column = k[:, None] * WIDE + n_held[None, :]
    g, u, d = _three_sums(
        x + by_token, grad + by_token, gate + by_row, up + by_row, down + by_column, H, WIDE,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K,
    )  # fmt: skip
    sigmoid = 1.0 / (1.0 + tl.exp(-g))
    silu = g * sigmoid
    out = inside[:, None] & (n < WIDE)[None, :]
    at = m[:, None] * WIDE + n[None, :]
    h = silu * u
    if GROUPED:
        part = tl.sum(tl.where(out, d * h, 0.0), 1)
        tl.store(products + column * N + chosen, part, mask=inside)
        scale = tl.load(scales + chosen, mask=inside, other=0.0)[:, None]
        h *= scale
        d *= scale
    kind = hidden.dtype.element_ty
    tl.store(hidden + at, h.to(kind), mask=out)
    tl.store(grad_up + at, (d * silu).to(kind), mask=out)
    tl.store(grad_gate + at, (d * u * sigmoid * (1.0 + g * (1.0 - sigmoid))).to(kind), mask=out)


@triton.jit
def _added(
    total, left, right, m, n, end, WIDE, H,
    BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Add left (rows, WIDE) . right (WIDE, H) of one tile to the total."""
    k = tl.arange(0, BLOCK_K)
    row = tl.where(m < end, m, 0)
    left_at = left + row[:, None] * WIDE + k[None, :]
    right_at = right + k[:, None] * H + _within(n, H, EVEN_N)[None, :]
    for at in range(0, WIDE, BLOCK_K):
        if EVEN_K:
            total = tl.dot(tl.load(left_at), tl.load(right_at), total)
        else:
            held = k < WIDE - at
            a = tl.load(left_at, mask=held[None, :], other=0.0)
            total = tl.dot(a, tl.load(right_at, mask=held[:, None], other=0.0), total)
        left_at += BLOCK_K
        right_at += BLOCK_K * H
    return total


@triton.jit
def _added_both(
    total, left, right, left_2, right_2, m, n, end, WIDE, H,
    BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Add both products of one tile, step by step in one loop."""
    k = tl.arange(0, BLOCK_K)
    row = tl.where(m < end, m, 0)
    column = _within(n, H, EVEN_N)
    left_at = row[:, None] * WIDE + k[None, :]
    right_at = k[:, None] * H + column[None, :]
    for at in range(0, WIDE, BLOCK_K):
        if EVEN_K:
            total = tl.dot(tl.load(left + left_at), tl.load(right + right_at), total)
            total = tl.dot(tl.load(left_2 + left_at), tl.load(right_2 + right_at), total)
        else:
            held = k < WIDE - at
            a = tl.load(left + left_at, mask=held[None, :], other=0.0)
            total = tl.dot(a, tl.load(right + right_at, mask=held[:, None], other=0.0), total)
            a = tl.load(left_2 + left_at, mask=held[None, :], other=0.0)
            total = tl.dot(a, tl.load(right_2 + right_at, mask=held[:, None], other=0.0), total)
        left_at += BLOCK_K
        right_at += BLOCK_K * H
    return total


@triton.jit
def token_gradients(
    grad_gate, grad_up, gate, up, rows, counts, parts, out, N, H, WIDE, tiles_m,
    GROUPED: tl.constexpr, TOP_K: tl.constexpr, EXPERTS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """One tile of the gradient of the rows' tokens.

    With GROUPED a row goes where its assignment stands; else TOP_K assignments are added to it.
    """
    tiles_n = tl.cdiv(H, BLOCK_N)
    tile, column = _place(tl.program_id(0), tiles_m, tiles_n, GROUP)
    if GROUPED:
        expert, begin, end = _tile_of(counts, tile, EXPERTS, WIDTH, BLOCK_M)
        if expert >= EXPERTS:
            return
        weights = expert.to(tl.int64) * H * WIDE
        gate += weights
        up += weights
    else:
        begin, end = tile * BLOCK_M, N
    m = begin + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if PAIRED:
        total = _added_both(
            total, grad_gate, gate, grad_up, up, m, n, end, WIDE, H, BLOCK_K, EVEN_N, EVEN_K
        )  # fmt: skip
    else:
        total = _added(total, grad_gate, gate, m, n, end, WIDE, H, BLOCK_K, EVEN_N, EVEN_K)
        total = _added(total, grad_up, up, m, n, end, WIDE, H, BLOCK_K, EVEN_N, EVEN_K)
    inside = (m < end)[:, None] & (n < H)[None, :]
    if GROUPED:
        chosen = tl.load(rows + m, mask=m < end, other=0)
        at = chosen[:, None] * H + n[None, :]
    else:
        at = m[:, None] * H + n[None, :]
        if TOP_K:
            part_at = m[:, None] * (TOP_K * H) + n[None, :]
            for slot in tl.static_range(TOP_K):
                held = tl.load(parts + part_at + slot * H, mask=inside, other=0.0)
                total += held.to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _added_rows(
    total, total_2, left, left_2, right, rows, at, end, p, q, P, Q,
    GROUPED: tl.constexpr, TOP_K: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, LEFT_BY_TOKEN: tl.constexpr, DUAL: tl.constexpr,
):  # fmt: skip
    """Add left' . right of BLOCK_K rows of one tile, and left_2' . right where DUAL."""
    r = at + tl.arange(0, BLOCK_K)
    inside = r < end
    if GROUPED:
        token = tl.load(rows + r, mask=inside, other=0) // TOP_K
    else:
        token = r
    by_left, by_right = (token, r) if LEFT_BY_TOKEN else (r, token)
    left_at = by_left[None, :] * P + _within(p, P, EVEN_M)[:, None]
    right_at = by_right[:, None] * Q + _within(q, Q, EVEN_N)[None, :]
    b = tl.load(right + right_at, mask=inside[:, None], other=0.0)
    total = tl.dot(tl.load(left + left_at, mask=inside[None, :], other=0.0), b, total)
    if DUAL:
        a = tl.load(left_2 + left_at, mask=inside[None, :], other=0.0)
        total_2 = tl.dot(a, b, total_2)
    return total, total_2


@triton.jit
def _leave(
    out, out_2, base, total, total_2, p, q, P, Q, DUAL: tl.constexpr, STREAM: tl.constexpr
):  # fmt: skip
    """Write one tile of both weights' gradients; STREAM: they need not stay in the L2 cache."""
    into = (p < P)[:, None] & (q < Q)[None, :]
    at = base + p[:, None] * Q + q[None, :]
    how: tl.constexpr = ".cs" if STREAM else ""
    tl.store(out + at, total.to(out.dtype.element_ty), mask=into, cache_modifier=how)
    if DUAL:
        tl.store(out_2 + at, total_2.to(out_2.dtype.element_ty), mask=into, cache_modifier=how)


@triton.jit
def weight_gradients(
    left, left_2, right, out, out_2, rows, counts, N, P, Q,
    GROUPED: tl.constexpr, TOP_K: tl.constexpr, EXPERTS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
    LEFT_BY_TOKEN: tl.constexpr, DUAL: tl.constexpr, COLUMNS: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """COLUMNS neighbouring tiles of left' (P, rows) . right (rows, Q), of left_2 too where DUAL.

    One of the factors stands by rows, the other by tokens. Several tiles are one loop, so that what
    the next one reads is on its way while one is written: few rows are one step a tile.
    """
    tiles_n = tl.cdiv(Q, BLOCK_N)
    walks = tl.cdiv(tiles_n, COLUMNS)
    row, walk = _place(tl.program_id(0), tl.cdiv(P, BLOCK_M), walks, GROUP)
    expert = tl.program_id(1)
    if GROUPED:
        each = tl.arange(0, WIDTH)
        held = tl.load(counts + each, mask=each < EXPERTS, other=0)
        begin = tl.sum(tl.where(each < expert, held, 0), 0)
        end = begin + tl.sum(tl.where(each == expert, held, 0), 0)
    else:
        begin, end = 0, N
    p = row * BLOCK_M + tl.arange(0, BLOCK_M)
    base = expert.to(tl.int64) * P * Q
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if COLUMNS == 1:
        q = walk * BLOCK_N + tl.arange(0, BLOCK_N)
        for at in range(begin, end, BLOCK_K):
            total, total_2 = _added_rows(
                total, total_2, left, left_2, right, rows, at, end, p, q, P, Q,
                GROUPED, TOP_K, BLOCK_K, EVEN_M, EVEN_N, LEFT_BY_TOKEN, DUAL,
            )  # fmt: skip
        _leave(out, out_2, base, total, total_2, p, q, P, Q, DUAL, STREAM)
    else:
        first = walk * COLUMNS
        steps = tl.maximum(tl.cdiv(end - begin, BLOCK_K), 1)
        for i in range(0, steps * tl.minimum(COLUMNS, tiles_n - first)):
            step = i % steps
            q = (first + i // steps) * BLOCK_N + tl.arange(0, BLOCK_N)
            total, total_2 = _added_rows(
                total, total_2, left, left_2, right, rows, begin + step * BLOCK_K, end, p, q, P, Q,
                GROUPED, TOP_K, BLOCK_K, EVEN_M, EVEN_N, LEFT_BY_TOKEN, DUAL,
            )  # fmt: skip
            if step == steps - 1:
                _leave(out, out_2, base, total, total_2, p, q, P, Q, DUAL, STREAM)
                total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                total_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)


@triton.jit
def summed(products, out, N, TILES: tl.constexpr, BLOCK: tl.constexpr):
    """Add the parts of every row's scale gradient."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in tl.static_range(TILES):
        total += tl.load(products + tile * N + at, mask=at < N, other=0.0)
    tl.store(out + at, total, mask=at < N)
