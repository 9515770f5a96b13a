"""Products by algorithms of cuBLASLt that were found for exact shapes, between kernels.

An algorithm that this version of the library refuses gives way to the library's own choice. Nothing
is remembered but descriptors, by form; the stream and all addresses are those of the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch

# -- calls of the library: filled in by the export --
from kernelarc.storage.exports.solutions.library_calls import (
    COMPUTE_32F,
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

_TYPES = {"float16": 2, "bfloat16": 14}
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


class Plan:
    """Descriptors and algorithm of one form. The library computes the transposed product."""

    def __init__(self, form: Form, device: int) -> None:
        del device  # a plan for each: the library chooses for the current one
        kind = _TYPES[form.dtype]
        self.form = form
        self.desc = made("cublasLtMatmulDescCreate", COMPUTE_32F, SCALE_32F)
        described = "cublasLtMatmulDescSetAttribute"
        put(described, self.desc, TRANS_A, ctypes.c_int32(not form.right_across))
        put(described, self.desc, TRANS_B, ctypes.c_int32(form.left_across))
        self.first = layout(kind, form.columns, form.depth, not form.right_across)
        self.second = layout(kind, form.depth, form.rows, form.left_across)
        self.out = layout(kind, form.columns, form.rows, False)
        self.algo = self._result(kind).algo
        self.alpha, self.beta = ctypes.c_float(1.0), ctypes.c_float(1.0 if form.added else 0.0)

    def _result(self, kind: int) -> Result:
        """Return what was recorded, or the library's choice of that number, or its last one."""
        form = self.form
        types = (COMPUTE_32F, SCALE_32F, kind, kind, kind, kind)
        descriptors = (self.desc, self.first, self.second, self.out, self.out)
        if form.algorithm is not None:
            found = remade(form.algorithm, types, descriptors, form.workspace_bytes)
            if found is not None:
                return found
        choices = offered(descriptors, form.workspace_bytes, _MOST_CHOICES)
        return choices[min(form.choice, len(choices) - 1)]


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
        context(), plan.desc,
        ctypes.byref(plan.alpha), right, plan.first, left, plan.second,
        ctypes.byref(plan.beta), added, plan.out, out, plan.out,
        ctypes.byref(plan.algo),
        ctypes.c_void_p(workspace), ctypes.c_size_t(form.workspace_bytes), ctypes.c_void_p(stream),
    )  # fmt: skip

    def act() -> None:
        call("cublasLtMatmul", *arguments)

    return act
