"""Matrix products by algorithms of cuBLASLt that were found for exact shapes.

A shape that the table does not hold, or an algorithm that this version of the library refuses,
runs the library's own first heuristic. Nothing is remembered but descriptors, by shape; every
call launches the same kernels, on the current stream, whatever the addresses are.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch

# -- calls of the library: filled in by the export --
from kernelarc.storage.exports.solutions.library_calls import (
    COMPUTE_32F,
    COMPUTE_TF32,
    SCALE_32F,
    TRANS_A,
    TRANS_B,
    Result,
    call,
    context,
    layout,
    made,
    offered,
    put,
    remade,
)

# -- end --

# -- form and table: filled in by the export --
DTYPE, OUT_DTYPE = torch.bfloat16, torch.bfloat16
TRANSPOSE_A, TRANSPOSE_B = False, True
ACTIVATION = "none"
TF32 = False
WORKSPACE_BYTES = 0
TABLE: dict[tuple[int, int, int, int], tuple[int, ...]] = {}
# -- end --

_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
_EPILOGUES = {"none": 1, "relu": 2, "gelu": 32}
_BIAS = 4
_EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 7, 8, 26


class _Plan:
    """Descriptors and the algorithm of one shape. The library computes the transposed product."""

    def __init__(self, batch: int, m: int, n: int, k: int, bias: bool) -> None:
        self.compute = COMPUTE_TF32 if TF32 else COMPUTE_32F
        factor, out = _TYPES[DTYPE], _TYPES[OUT_DTYPE]
        self.desc = made("cublasLtMatmulDescCreate", self.compute, SCALE_32F)
        described = "cublasLtMatmulDescSetAttribute"
        put(described, self.desc, TRANS_A, ctypes.c_int32(TRANSPOSE_B))
        put(described, self.desc, TRANS_B, ctypes.c_int32(TRANSPOSE_A))
        epilogue = _EPILOGUES[ACTIVATION]
        if bias:
            epilogue = _BIAS if ACTIVATION == "none" else epilogue | _BIAS
            put(described, self.desc, _BIAS_TYPE, ctypes.c_int32(out))
        put(described, self.desc, _EPILOGUE, ctypes.c_uint32(epilogue))
        self.first = layout(factor, n, k, TRANSPOSE_B, batch)
        self.second = layout(factor, k, m, TRANSPOSE_A, batch)
        self.out = layout(out, n, m, False, batch)
        self.types = (self.compute, SCALE_32F, factor, factor, out, out)
        self.result = self._result(TABLE.get((batch, m, n, k)))

    def _result(self, row: tuple[int, ...] | None) -> Result:
        """Return the table's algorithm, or the library's first one where there is none usable."""
        descriptors = (self.desc, self.first, self.second, self.out, self.out)
        found = None if row is None else remade(row, self.types, descriptors, WORKSPACE_BYTES)
        return offered(descriptors, WORKSPACE_BYTES, 1)[0] if found is None else found


_plan = lru_cache(maxsize=None)(_Plan)


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> None:
    """Write ``activation(op(a) . op(b) + residual + bias)`` to ``out``; all are contiguous."""
    n, k = (b.shape[-2], b.shape[-1]) if TRANSPOSE_B else (b.shape[-1], b.shape[-2])
    batch = b.numel() // (n * k)
    plan = _plan(batch, a.numel() // (batch * k), n, k, bias is not None)
    if bias is not None:
        address = ctypes.c_uint64(bias.data_ptr())
        put("cublasLtMatmulDescSetAttribute", plan.desc, _BIAS_POINTER, address)
    scratch = torch.empty(max(plan.result.workspace_bytes, 1), dtype=torch.uint8, device=a.device)
    added = out if residual is None else residual
    alpha, beta = ctypes.c_float(1.0), ctypes.c_float(0.0 if residual is None else 1.0)
    call(
        "cublasLtMatmul",
        context(), plan.desc,
        ctypes.byref(alpha), ctypes.c_void_p(b.data_ptr()), plan.first,
        ctypes.c_void_p(a.data_ptr()), plan.second,
        ctypes.byref(beta), ctypes.c_void_p(added.data_ptr()), plan.out,
        ctypes.c_void_p(out.data_ptr()), plan.out,
        ctypes.byref(plan.result.algo),
        ctypes.c_void_p(scratch.data_ptr()), ctypes.c_size_t(plan.result.workspace_bytes),
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
