"""Triton kernels of one expert's backward pass from kept activations. Imports Triton.

Imported in compile processes only. H is the size of a token, WIDE that of a hidden row. Sums are
float32. The gradients of gate and up lie between the kernels in up to three forms: rounded to the
tensors' type, what that rounding lost, and float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    """Places that can be read: what lies behind the end reads the first."""
    if EVEN:
        return n
    return tl.where(n < END, n, 0)


@triton.jit
def _kept(value, rounded, rest, wide, at, held):
    """Write a gradient in every form that a later kernel reads."""
    if rounded is not None:
        short = value.to(rounded.dtype.element_ty)
        tl.store(rounded + at, short, mask=held)
        if rest is not None:
            lost = value - short.to(tl.float32)
            tl.store(rest + at, lost.to(rest.dtype.element_ty), mask=held)
    if wide is not None:
        tl.store(wide + at, value, mask=held)


@triton.jit
def kept_gradients(
    grad, down, gate, sigmoid, silu, up,
    gate_rounded, gate_rest, gate_wide, up_rounded, up_rest, up_wide,
    N, H, WIDE, tiles_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """One tile of grad . down, ended in the gradients of gate and up from what was kept."""
    tile, column = _place(tl.program_id(0), tiles_m, tl.cdiv(WIDE, BLOCK_N), GROUP)
    m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    row = tl.where(m < N, m, 0)
    left_at = grad + row[:, None] * H + k[None, :]
    right_at = down + k[:, None] * WIDE + _within(n, WIDE, EVEN_N)[None, :]
    d = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for at in range(0, H, BLOCK_K):
        if EVEN_K:
            d = tl.dot(_read(left_at, None), _read(right_at, None), d)
        else:
            held = k < H - at
            d = tl.dot(_read(left_at, held[None, :]), _read(right_at, held[:, None]), d)
        left_at += BLOCK_K
        right_at += BLOCK_K * WIDE
    at = m[:, None] * WIDE + n[None, :]
    inside = (m < N)[:, None] & (n < WIDE)[None, :]
    grad_up = d * tl.load(silu + at, mask=inside, other=0.0).to(tl.float32)
    _kept(grad_up, up_rounded, up_rest, up_wide, at, inside)
    s = tl.load(sigmoid + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    _kept(d * u * (s * (1.0 + g * (1.0 - s))), gate_rounded, gate_rest, gate_wide, at, inside)


@triton.jit
def _read(at, held):
    """Read a tile; what is not held is zero, None holds all of it."""
    if held is None:
        return tl.load(at)
    else:
        return tl.load(at, mask=held, other=0.0)


@triton.jit
def _times(total, left, rest, at, b, held):
    """Add left . b: left is rounded, with what was lost in rest or lost for good, or float32."""
    a = _read(left + at, held)
    if left.dtype.element_ty == tl.float32:
        total = tl.dot(a, b.to(tl.float32), total, input_precision="tf32")
    else:
        total = tl.dot(a, b, total)
        if rest is not None:
            total = tl.dot(_read(rest + at, held), b, total)
    return total


@triton.jit
def _added(
    total, left, rest, right, row, n, WIDE, H,
    BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Add left (rows, WIDE) . right (WIDE, H) of one tile to the total."""
    k = tl.arange(0, BLOCK_K)
    left_at = row[:, None] * WIDE + k[None, :]
    right_at = right + k[:, None] * H + _within(n, H, EVEN_N)[None, :]
    for at in range(0, WIDE, BLOCK_K):
        if EVEN_K:
            total = _times(total, left, rest, left_at, _read(right_at, None), None)
        else:
            held = k < WIDE - at
            b = _read(right_at, held[:, None])
            total = _times(total, left, rest, left_at, b, held[None, :])
        left_at += BLOCK_K
        right_at += BLOCK_K * H
    return total


@triton.jit
def kept_token_gradients(
    grad_gate, gate_rest, grad_up, up_rest, gate, up, out, N, H, WIDE, tiles_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """One tile of grad_gate . gate + grad_up . up; PAIRED: both step by step in one loop."""
    tile, column = _place(tl.program_id(0), tiles_m, tl.cdiv(H, BLOCK_N), GROUP)
    m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.where(m < N, m, 0)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if PAIRED:
        k = tl.arange(0, BLOCK_K)
        left_at = row[:, None] * WIDE + k[None, :]
        right_at = k[:, None] * H + _within(n, H, EVEN_N)[None, :]
        for at in range(0, WIDE, BLOCK_K):
            if EVEN_K:
                b = _read(gate + right_at, None)
                total = _times(total, grad_gate, gate_rest, left_at, b, None)
                b = _read(up + right_at, None)
                total = _times(total, grad_up, up_rest, left_at, b, None)
            else:
                held = k < WIDE - at
                b = _read(gate + right_at, held[:, None])
                total = _times(total, grad_gate, gate_rest, left_at, b, held[None, :])
                b = _read(up + right_at, held[:, None])
                total = _times(total, grad_up, up_rest, left_at, b, held[None, :])
            left_at += BLOCK_K
            right_at += BLOCK_K * H
    else:
        total = _added(
            total, grad_gate, gate_rest, gate, row, n, WIDE, H, BLOCK_K, EVEN_N, EVEN_K
        )  # fmt: skip
        total = _added(total, grad_up, up_rest, up, row, n, WIDE, H, BLOCK_K, EVEN_N, EVEN_K)
    inside = (m < N)[:, None] & (n < H)[None, :]
    tl.store(out + m[:, None] * H + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _added_rows(
    total, total_2, left, rest, left_2, rest_2, right, at, N, p, q, P, Q,
    BLOCK_K: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
):  # fmt: skip
    """Add left' . right of BLOCK_K rows of one tile, and left_2' . right where there is one."""
    r = at + tl.arange(0, BLOCK_K)
    inside = r < N
    left_at = r[None, :] * P + _within(p, P, EVEN_M)[:, None]
    right_at = r[:, None] * Q + _within(q, Q, EVEN_N)[None, :]
    b = _read(right + right_at, inside[:, None])
    total = _times(total, left, rest, left_at, b, inside[None, :])
    if left_2 is not None:
        total_2 = _times(total_2, left_2, rest_2, left_at, b, inside[None, :])
    return total, total_2


@triton.jit
def _leave(out, out_2, total, total_2, p, q, P, Q, STREAM: tl.constexpr):
    """Write one tile of both gradients; STREAM: they need not stay in the L2 cache."""
    into = (p < P)[:, None] & (q < Q)[None, :]
    at = p[:, None] * Q + q[None, :]
    how: tl.constexpr = ".cs" if STREAM else ""
    tl.store(out + at, total.to(out.dtype.element_ty), mask=into, cache_modifier=how)
    if out_2 is not None:
        tl.store(out_2 + at, total_2.to(out_2.dtype.element_ty), mask=into, cache_modifier=how)


@triton.jit
def kept_weight_gradients(
    left, rest, left_2, rest_2, right, out, out_2, N, P, Q,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, COLUMNS: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """COLUMNS neighbouring tiles of left' (P, rows) . right (rows, Q), of left_2' too.

    Several tiles are one loop, so that what the next one reads is on its way while one is written:
    few rows are one step a tile.
    """
    tiles_n = tl.cdiv(Q, BLOCK_N)
    walks = tl.cdiv(tiles_n, COLUMNS)
    row, walk = _place(tl.program_id(0), tl.cdiv(P, BLOCK_M), walks, GROUP)
    p = row * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if COLUMNS == 1:
        q = walk * BLOCK_N + tl.arange(0, BLOCK_N)
        for at in range(0, N, BLOCK_K):
            total, total_2 = _added_rows(
                total, total_2, left, rest, left_2, rest_2, right, at, N, p, q, P, Q,
                BLOCK_K, EVEN_M, EVEN_N,
            )  # fmt: skip
        _leave(out, out_2, total, total_2, p, q, P, Q, STREAM)
    else:
        first = walk * COLUMNS
        steps = tl.cdiv(N, BLOCK_K)
        for i in range(0, steps * tl.minimum(COLUMNS, tiles_n - first)):
            step = i % steps
            q = (first + i // steps) * BLOCK_N + tl.arange(0, BLOCK_N)
            total, total_2 = _added_rows(
                total, total_2, left, rest, left_2, rest_2, right, step * BLOCK_K, N, p, q, P, Q,
                BLOCK_K, EVEN_M, EVEN_N,
            )  # fmt: skip
            if step == steps - 1:
                _leave(out, out_2, total, total_2, p, q, P, Q, STREAM)
                total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                total_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
