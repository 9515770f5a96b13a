"""Tune a Triton kernel of one's own: the kernel, how it is launched, and what there is to choose.

Run it with ``kernelarc run examples/triton_kernel.py --device cuda:0``; other sizes with
``--set rows=4096``. It needs ``kernelarc[cuda,triton]`` and an NVIDIA GPU.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: PLR0917

import numpy as np
import triton
import triton.language as tl

import kernelarc


@triton.jit
def scaled_softmax(x, y, rows, columns, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y[r] = softmax(scale * x[r]), ROWS rows a program, a row COLUMNS elements at a time."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, COLUMNS):
        inside = (r < rows)[:, None] & (start + c < columns)[None, :]
        at = r[:, None] * columns + (start + c)[None, :]
        part = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32) * scale
        higher = tl.maximum(largest, tl.max(part, 1))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(part - higher[:, None]), 1)
        largest = higher
    for start in range(0, columns, COLUMNS):
        inside = (r < rows)[:, None] & (start + c < columns)[None, :]
        at = r[:, None] * columns + (start + c)[None, :]
        part = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32) * scale
        result = tl.exp(part - largest[:, None]) / total[:, None]
        tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)


def launch(x, y, rows, columns, ROWS, COLUMNS, num_warps, maxnreg):
    """Launch the kernel as a program would. Tensors, axes and genes come by name."""
    grid = (triton.cdiv(rows, ROWS),)
    scaled_softmax[grid](
        x, y, rows, columns, 0.125, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=num_warps, maxnreg=maxnreg
    )


def reference(x):
    """Say what is right; called with NumPy arrays in float64."""
    e = np.exp(0.125 * (x - x.max(axis=1, keepdims=True)))
    return e / e.sum(axis=1, keepdims=True)


KERNEL = kernelarc.TritonKernel(
    launch=launch,
    axes={"rows": 8192, "columns": 4096},
    inputs={"x": ("bfloat16", ("rows", "columns"))},
    outputs={"y": ("bfloat16", ("rows", "columns"))},
    reference=reference,
    genes=[
        kernelarc.PowerOfTwo(name="ROWS", low=1, high=16),
        kernelarc.PowerOfTwo(name="COLUMNS", low=128, high=8192),
        kernelarc.PowerOfTwo(name="num_warps", low=1, high=16),
        kernelarc.Choice(name="maxnreg", options=(0, 32, 64, 128)),  # 0: no limit
    ],
    constraints=["ROWS * COLUMNS <= 32768", "ROWS * COLUMNS >= 32 * num_warps"],
    seeds=[{"ROWS": 1, "COLUMNS": 4096, "num_warps": 4, "maxnreg": 0}],  # what you run today
    tolerance=kernelarc.Tolerance(max_atol=1e-3, max_rtol=2e-2),
    bytes_moved="4 * rows * columns",
)
