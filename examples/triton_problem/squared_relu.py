"""A Triton kernel for the problem in this folder: how it is launched, and what there is to choose.

The declaration names the definition's tensors and axes. Workloads, reference and tolerance are the
problem's.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: PLR0917

import triton
import triton.language as tl

import kernelarc


@triton.jit
def squared_relu(x, y, count, BLOCK: tl.constexpr):
    """Square what is above zero, BLOCK elements a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + at, mask=at < count).to(tl.float32), 0.0)
    tl.store(y + at, (value * value).to(y.dtype.element_ty), mask=at < count)


def launch(x, y, rows, columns, BLOCK, num_warps):
    """Launch the kernel as a program would. Tensors, axes and genes come by name."""
    count = rows * columns
    squared_relu[(triton.cdiv(count, BLOCK),)](x, y, count, BLOCK=BLOCK, num_warps=num_warps)


KERNEL = kernelarc.TritonKernel(
    launch=launch,
    axes={"rows": 8192, "columns": 4096},
    inputs={"x": ("bfloat16", ("rows", "columns"))},
    outputs={"y": ("bfloat16", ("rows", "columns"))},
    genes=[
        kernelarc.PowerOfTwo(name="BLOCK", low=256, high=8192),
        kernelarc.PowerOfTwo(name="num_warps", low=1, high=16),
    ],
    seeds=[{"BLOCK": 1024, "num_warps": 4}],
)
