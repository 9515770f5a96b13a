"""Matrix products by algorithms of cuBLASLt that were found for exact shapes.

A shape that the table does not hold, or an algorithm that this version of the library refuses,
runs the library's own first heuristic. Nothing is remembered but descriptors, by shape; every
call launches the same kernels, on the current stream, whatever the addresses are.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch

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
_COMPUTE_32F, _COMPUTE_TF32, _SCALE_32F = 68, 77, 0
_TRANS_A, _TRANS_B, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_PREFER_WORKSPACE = 1
_ATTRIBUTES = "iIiIIIIHH"  # algorithm, tile, split-K, reduction, swizzle, custom, stages, ...
_WHOLE = {"i": ctypes.c_int32, "I": ctypes.c_uint32, "H": ctypes.c_uint16}


class _Result(ctypes.Structure):
    """What the library answers about an algorithm."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """Return the very library that torch has loaded."""
    torch.cuda.current_blas_handle()
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps:
            if "libcublasLt.so" in line:
                return ctypes.CDLL(line.split(maxsplit=5)[5].strip())
    return ctypes.CDLL("libcublasLt.so")


def _context() -> ctypes.c_void_p:
    """A handle of cuBLAS is one of cuBLASLt."""
    return ctypes.c_void_p(torch.cuda.current_blas_handle())


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} failed with status {status}")


def _made(name: str, *arguments: object) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    return made


def _set(name: str, target: ctypes.c_void_p, attribute: int, value: ctypes._SimpleCData) -> None:  # type: ignore[type-arg]
    size = ctypes.c_size_t(ctypes.sizeof(value))
    _call(name, target, ctypes.c_int(attribute), ctypes.byref(value), size)


class _Plan:
    """Descriptors and the algorithm of one shape. The library computes the transposed product."""

    def __init__(self, batch: int, m: int, n: int, k: int, bias: bool) -> None:
        self.compute = _COMPUTE_TF32 if TF32 else _COMPUTE_32F
        factor, out = _TYPES[DTYPE], _TYPES[OUT_DTYPE]
        self.desc = _made("cublasLtMatmulDescCreate", self.compute, _SCALE_32F)
        put = "cublasLtMatmulDescSetAttribute"
        _set(put, self.desc, _TRANS_A, ctypes.c_int32(TRANSPOSE_B))
        _set(put, self.desc, _TRANS_B, ctypes.c_int32(TRANSPOSE_A))
        epilogue = _EPILOGUES[ACTIVATION]
        if bias:
            epilogue = _BIAS if ACTIVATION == "none" else epilogue | _BIAS
            _set(put, self.desc, _BIAS_TYPE, ctypes.c_int32(out))
        _set(put, self.desc, _EPILOGUE, ctypes.c_uint32(epilogue))
        self.first = _layout(factor, n, k, TRANSPOSE_B, batch)
        self.second = _layout(factor, k, m, TRANSPOSE_A, batch)
        self.out = _layout(out, n, m, False, batch)
        self.types = (self.compute, _SCALE_32F, factor, factor, out, out)
        row = TABLE.get((batch, m, n, k))
        found = None if row is None else self._found(row)
        self.result = self._heuristic() if found is None else found

    def _descriptors(self) -> tuple[ctypes.c_void_p, ...]:
        return (self.desc, self.first, self.second, self.out, self.out)

    def _found(self, row: tuple[int, ...]) -> _Result | None:
        """Return the table's algorithm, or None where this library refuses it."""
        algo, result = (ctypes.c_uint64 * 8)(), _Result()
        try:
            _call("cublasLtMatmulAlgoInit", _context(), *self.types, row[0], algo)
            for place, (kind, value) in enumerate(zip(_ATTRIBUTES, row, strict=True)):
                whole = _WHOLE[kind](value)
                size = ctypes.c_size_t(ctypes.sizeof(whole))
                if place:
                    _call(
                        "cublasLtMatmulAlgoConfigSetAttribute",
                        algo, ctypes.c_int(place), ctypes.byref(whole), size,
                    )  # fmt: skip
            _call(
                "cublasLtMatmulAlgoCheck",
                _context(), *self._descriptors(), algo, ctypes.byref(result),
            )  # fmt: skip
        except RuntimeError:
            return None
        if result.state != 0 or result.workspace_bytes > WORKSPACE_BYTES:
            return None
        result.algo = algo
        return result

    def _heuristic(self) -> _Result:
        preference = _made("cublasLtMatmulPreferenceCreate")
        _set(
            "cublasLtMatmulPreferenceSetAttribute",
            preference, _PREFER_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES),
        )  # fmt: skip
        result, count = _Result(), ctypes.c_int()
        _call(
            "cublasLtMatmulAlgoGetHeuristic",
            _context(), *self._descriptors(), preference, 1, ctypes.byref(result),
            ctypes.byref(count),
        )  # fmt: skip
        _call("cublasLtMatmulPreferenceDestroy", preference)
        return result


def _layout(kind: int, rows: int, columns: int, transposed: bool, batch: int) -> ctypes.c_void_p:
    """Describe op(X) of rows x columns, stored transposed or not, column-major, packed."""
    stored = (columns, rows) if transposed else (rows, columns)
    shape = (ctypes.c_uint64(stored[0]), ctypes.c_uint64(stored[1]), ctypes.c_int64(stored[0]))
    layout = _made("cublasLtMatrixLayoutCreate", kind, *shape)
    if batch > 1:
        put = "cublasLtMatrixLayoutSetAttribute"
        _set(put, layout, _BATCH_COUNT, ctypes.c_int32(batch))
        _set(put, layout, _BATCH_STRIDE, ctypes.c_int64(rows * columns))
    return layout


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
        _set("cublasLtMatmulDescSetAttribute", plan.desc, _BIAS_POINTER, address)
    scratch = torch.empty(max(plan.result.workspace_bytes, 1), dtype=torch.uint8, device=a.device)
    added = out if residual is None else residual
    alpha, beta = ctypes.c_float(1.0), ctypes.c_float(0.0 if residual is None else 1.0)
    _call(
        "cublasLtMatmul",
        _context(), plan.desc,
        ctypes.byref(alpha), ctypes.c_void_p(b.data_ptr()), plan.first,
        ctypes.c_void_p(a.data_ptr()), plan.second,
        ctypes.byref(beta), ctypes.c_void_p(added.data_ptr()), plan.out,
        ctypes.c_void_p(out.data_ptr()), plan.out,
        ctypes.byref(plan.result.algo),
        ctypes.c_void_p(scratch.data_ptr()), ctypes.c_size_t(plan.result.workspace_bytes),
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
