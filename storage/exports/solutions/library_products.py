"""Products by algorithms of cuBLASLt that were found for exact shapes, between kernels.

An algorithm that this version of the library refuses gives way to the library's own choice. Nothing
is remembered but descriptors, by form; the stream and all addresses are those of the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch

_TYPES = {"float16": 2, "bfloat16": 14}
_COMPUTE_32F, _SCALE_32F = 68, 0
_TRANS_A, _TRANS_B = 3, 4
_PREFER_WORKSPACE = 1
_ATTRIBUTES = "iIiIIIIHH"  # algorithm, tile, split-K, reduction, swizzle, custom, stages, ...
_WHOLE = {"i": ctypes.c_int32, "I": ctypes.c_uint32, "H": ctypes.c_uint16}
_MOST_CHOICES = 200


class Form(NamedTuple):
    """One form of product, row-major and packed: ``out = left . right^T (+ added)``.

    ``left_across``: left is (depth, rows); ``right_across``: right is (depth, columns). The
    algorithm is nine attributes, or None: then the library's choice of that number runs.
    """

    rows: int
    columns: int
    depth: int
    dtype: str
    left_across: bool
    right_across: bool
    added: bool
    algorithm: tuple[int, ...] | None
    choice: int
    workspace_bytes: int


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


def _set(name: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    _call(name, target, ctypes.c_int(attribute), ctypes.byref(value), size)


def _layout(kind: int, rows: int, columns: int, transposed: bool) -> ctypes.c_void_p:
    """Describe op(X) of rows x columns, stored transposed or not, column-major, packed."""
    stored = (columns, rows) if transposed else (rows, columns)
    shape = (ctypes.c_uint64(stored[0]), ctypes.c_uint64(stored[1]), ctypes.c_int64(stored[0]))
    return _made("cublasLtMatrixLayoutCreate", kind, *shape)


class Plan:
    """Descriptors and algorithm of one form. The library computes the transposed product."""

    def __init__(self, form: Form, device: int) -> None:
        del device  # a plan for each: the library chooses for the current one
        kind = _TYPES[form.dtype]
        self.form = form
        self.desc = _made("cublasLtMatmulDescCreate", _COMPUTE_32F, _SCALE_32F)
        put = "cublasLtMatmulDescSetAttribute"
        _set(put, self.desc, _TRANS_A, ctypes.c_int32(not form.right_across))
        _set(put, self.desc, _TRANS_B, ctypes.c_int32(form.left_across))
        self.first = _layout(kind, form.columns, form.depth, not form.right_across)
        self.second = _layout(kind, form.depth, form.rows, form.left_across)
        self.out = _layout(kind, form.columns, form.rows, False)
        self.types = (_COMPUTE_32F, _SCALE_32F, kind, kind, kind, kind)
        found = None if form.algorithm is None else self._found(form.algorithm)
        self.algo = (self._chosen() if found is None else found).algo
        self.alpha, self.beta = ctypes.c_float(1.0), ctypes.c_float(1.0 if form.added else 0.0)

    def _descriptors(self) -> tuple[ctypes.c_void_p, ...]:
        return (self.desc, self.first, self.second, self.out, self.out)

    def _found(self, row: tuple[int, ...]) -> _Result | None:
        """Return the algorithm of nine attributes, or None where this library refuses it."""
        algo, result = (ctypes.c_uint64 * 8)(), _Result()
        try:
            _call("cublasLtMatmulAlgoInit", _context(), *self.types, row[0], algo)
            for place, (kind, value) in enumerate(zip(_ATTRIBUTES, row, strict=True)):
                if place:
                    whole = _WHOLE[kind](value)
                    _set("cublasLtMatmulAlgoConfigSetAttribute", algo, place, whole)  # type: ignore[arg-type]
            asked = (_context(), *self._descriptors(), algo, ctypes.byref(result))
            _call("cublasLtMatmulAlgoCheck", *asked)
        except RuntimeError:
            return None
        if result.state != 0 or result.workspace_bytes > self.form.workspace_bytes:
            return None
        result.algo = algo
        return result

    def _chosen(self) -> _Result:
        """Return the library's choice of the form's number, or the last one that it has."""
        preference = _made("cublasLtMatmulPreferenceCreate")
        _set(
            "cublasLtMatmulPreferenceSetAttribute",
            preference, _PREFER_WORKSPACE, ctypes.c_uint64(self.form.workspace_bytes),
        )  # fmt: skip
        results, count = (_Result * _MOST_CHOICES)(), ctypes.c_int()
        _call(
            "cublasLtMatmulAlgoGetHeuristic",
            _context(), *self._descriptors(), preference, _MOST_CHOICES, results,
            ctypes.byref(count),
        )  # fmt: skip
        _call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [result for result in results[: count.value] if result.state == 0]
        return usable[min(self.form.choice, len(usable) - 1)]


_plan = lru_cache(maxsize=None)(Plan)


def bound(form: Form, addresses: list[int], workspace: int, stream: int) -> Callable[[], None]:
    """Return a launch with everything bound.

    Args:
        form: What is computed.
        addresses: Of left, right, what is added (or the output), output.
        workspace: Address of scratch memory, 0 where the form has none.
        stream: Where it is launched.
    """
    plan = _plan(form, torch.cuda.current_device())
    left, right, added, out = map(ctypes.c_void_p, addresses)
    arguments = (
        _context(), plan.desc,
        ctypes.byref(plan.alpha), right, plan.first, left, plan.second,
        ctypes.byref(plan.beta), added, plan.out, out, plan.out,
        ctypes.byref(plan.algo),
        ctypes.c_void_p(workspace), ctypes.c_size_t(form.workspace_bytes), ctypes.c_void_p(stream),
    )  # fmt: skip

    def act() -> None:
        _call("cublasLtMatmul", *arguments)

    return act
