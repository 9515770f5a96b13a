"""How a solution talks to cuBLASLt: the very library that torch has loaded, through ctypes.

An export writes this text into the sources that need it.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch

COMPUTE_32F, COMPUTE_TF32, SCALE_32F = 68, 77, 0
TRANS_A, TRANS_B = 3, 4
_PREFER_WORKSPACE = 1
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_ATTRIBUTES = "iIiIIIIHH"  # algorithm, tile, split-K, reduction, swizzle, custom, stages, ...
_WHOLE = {"i": ctypes.c_int32, "I": ctypes.c_uint32, "H": ctypes.c_uint16}


class Result(ctypes.Structure):
    """What the library answers about an algorithm."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the very library that torch has loaded."""
    torch.cuda.current_blas_handle()
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps:
            if "libcublasLt.so" in line:
                return ctypes.CDLL(line.split(maxsplit=5)[5].strip())
    return ctypes.CDLL("libcublasLt.so")


def context() -> ctypes.c_void_p:
    """A handle of cuBLAS is one of cuBLASLt."""
    return ctypes.c_void_p(torch.cuda.current_blas_handle())


def call(name: str, *arguments: object) -> None:
    """Call a function of the library; a status that is not 0 is an error."""
    status = getattr(library(), name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} failed with status {status}")


def made(name: str, *arguments: object) -> ctypes.c_void_p:
    """Return what a function of the library makes."""
    found = ctypes.c_void_p()
    call(name, ctypes.byref(found), *arguments)
    return found


def put(name: str, target: object, attribute: int, value: ctypes._SimpleCData[int]) -> None:
    """Set an attribute of a descriptor, a layout, a preference or an algorithm."""
    size = ctypes.c_size_t(ctypes.sizeof(value))
    call(name, target, ctypes.c_int(attribute), ctypes.byref(value), size)


def layout(kind: int, rows: int, columns: int, transposed: bool, batch: int = 1) -> ctypes.c_void_p:
    """Describe op(X) of rows x columns, stored transposed or not, column-major, packed."""
    stored = (columns, rows) if transposed else (rows, columns)
    shape = (ctypes.c_uint64(stored[0]), ctypes.c_uint64(stored[1]), ctypes.c_int64(stored[0]))
    found = made("cublasLtMatrixLayoutCreate", kind, *shape)
    if batch > 1:
        name = "cublasLtMatrixLayoutSetAttribute"
        put(name, found, _BATCH_COUNT, ctypes.c_int32(batch))
        put(name, found, _BATCH_STRIDE, ctypes.c_int64(rows * columns))
    return found


def remade(
    row: tuple[int, ...],
    types: tuple[int, ...],
    descriptors: tuple[ctypes.c_void_p, ...],
    workspace_bytes: int,
) -> Result | None:
    """Return the algorithm of nine attributes, or None where this library refuses it."""
    algo, result = (ctypes.c_uint64 * 8)(), Result()
    try:
        call("cublasLtMatmulAlgoInit", context(), *types, row[0], algo)
        for place, (kind, value) in enumerate(zip(_ATTRIBUTES, row, strict=True)):
            if place:
                put("cublasLtMatmulAlgoConfigSetAttribute", algo, place, _WHOLE[kind](value))
        call("cublasLtMatmulAlgoCheck", context(), *descriptors, algo, ctypes.byref(result))
    except RuntimeError:
        return None
    if result.state != 0 or result.workspace_bytes > workspace_bytes:
        return None
    result.algo = algo
    return result


def offered(
    descriptors: tuple[ctypes.c_void_p, ...], workspace_bytes: int, most: int
) -> list[Result]:
    """Return what the library itself would run, best first; there is at least one."""
    preference = made("cublasLtMatmulPreferenceCreate")
    put(
        "cublasLtMatmulPreferenceSetAttribute",
        preference, _PREFER_WORKSPACE, ctypes.c_uint64(workspace_bytes),
    )  # fmt: skip
    results, count = (Result * most)(), ctypes.c_int()
    call(
        "cublasLtMatmulAlgoGetHeuristic",
        context(), *descriptors, preference, most, results, ctypes.byref(count),
    )  # fmt: skip
    call("cublasLtMatmulPreferenceDestroy", preference)
    usable = [result for result in results[: count.value] if result.state == 0]
    if not usable:
        raise RuntimeError("cublasLtMatmulAlgoGetHeuristic offers nothing for a product")
    return usable
