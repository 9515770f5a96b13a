"""cuBLASLt on the host: products as descriptors and layouts say, over memory by address.

``EmulatedLt`` answers as the worker's binding does, ``EmulatedLibrary`` as the shared library does
through ctypes. Both know nothing but what they were told by attribute: column-major matrices with
leading dimensions, 16-bit floats as bfloat16, one rounding of the sums.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.unit.emulated import bits, numbers
from tests.unit.lt_fake import FakeLt

BFLOAT16, COMPUTE_32F, SCALE_32F = 14, 68, 0
_TRANSPOSES, _EPILOGUE = (3, 4), 7
_SIZES = {_TRANSPOSES[0]: 4, _TRANSPOSES[1]: 4, _EPILOGUE: 4}
_KNOWN = 2**16


@dataclass
class Made:
    """Descriptors and layouts by handle; what was multiplied."""

    created: dict[int, tuple[int, ...]] = field(default_factory=dict)
    attributes: dict[tuple[int, int], int] = field(default_factory=dict)
    multiplied: list[tuple[int, ...]] = field(default_factory=list)

    def create(self, *what: int) -> int:
        """Return a new handle."""
        self.created[_KNOWN + len(self.created)] = what
        return _KNOWN + len(self.created) - 1

    def put(self, owner: int, attribute: int, raw: bytes) -> None:
        """Take an attribute of a descriptor: of the size that the header gives it."""
        assert len(raw) == _SIZES[attribute], (attribute, raw)
        self.attributes[owner, attribute] = int.from_bytes(raw, "little")

    def multiply(
        self, desc: int, factors: Sequence[tuple[int, int]], added: tuple[int, int],
        out: tuple[int, int], scales: tuple[float, float],
    ) -> None:  # fmt: skip
        """Compute ``D = alpha op(A) op(B) + beta C``; each is an address and a layout."""
        assert self.created[desc] == (COMPUTE_32F, SCALE_32F)
        assert self.attributes.get((desc, _EPILOGUE), 1) == 1
        sides = []
        for factor, transpose in zip(factors, _TRANSPOSES, strict=True):
            held = self._matrix(*factor)
            sides.append(held.T if self.attributes[desc, transpose] else held)
        target = self._matrix(*out)
        assert (sides[0].shape[0], sides[1].shape[1]) == target.shape == self._matrix(*added).shape
        sums = scales[0] * (numbers(sides[0]) @ numbers(sides[1]))
        if scales[1]:
            sums += scales[1] * numbers(self._matrix(*added))
        target[:] = bits(sums)
        self.multiplied.append((factors[0][0], factors[1][0], added[0], out[0]))

    def _matrix(self, address: int, layout: int) -> NDArray[np.uint16]:
        kind, rows, columns, leading = self.created[layout]
        assert kind == BFLOAT16 and rows <= leading and address % 256 == 0
        raw = (ctypes.c_uint16 * (leading * columns)).from_address(address)
        held: NDArray[np.uint16] = np.ctypeslib.as_array(raw)
        return held.reshape(columns, leading)[:, :rows].T


class EmulatedLt(FakeLt):
    """The worker's binding."""

    def __init__(self) -> None:
        super().__init__()
        self.made = Made()

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self.made.create(compute, scale)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        return self.made.create(kind, rows, columns, leading)

    def matmul_desc_set_attribute(self, owner: int, attribute: int, at: int, size: int) -> None:
        self.made.put(owner, attribute, ctypes.string_at(at, size))

    def matmul(self, handle: int, desc: int, *rest: int) -> None:
        alpha, a, first, b, second, beta, c, third, d, out, *_ = rest
        scales = (_float(alpha), _float(beta))
        self.made.multiply(desc, [(a, first), (b, second)], (c, third), (d, out), scales)


class EmulatedLibrary:
    """The shared library through ctypes; it has one choice, and takes every algorithm."""

    def __init__(self) -> None:
        self.made = Made()

    def cublasLtMatmulDescCreate(self, found: Any, compute: int, scale: int) -> int:
        found._obj.value = self.made.create(compute, scale)
        return 0

    def cublasLtMatrixLayoutCreate(
        self, found: Any, kind: int, rows: Any, columns: Any, leading: Any
    ) -> int:
        kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        assert (type(rows), type(columns), type(leading)) == kinds
        found._obj.value = self.made.create(kind, rows.value, columns.value, leading.value)
        return 0

    def cublasLtMatmulDescSetAttribute(
        self, owner: Any, attribute: Any, value: Any, size: Any
    ) -> int:
        self.made.put(owner.value, attribute.value, bytes(value._obj)[: size.value])
        return 0

    def cublasLtMatmulPreferenceCreate(self, found: Any) -> int:
        found._obj.value = self.made.create()
        return 0

    def cublasLtMatmulPreferenceSetAttribute(self, *_: Any) -> int:
        return 0

    cublasLtMatmulPreferenceDestroy = cublasLtMatmulPreferenceSetAttribute

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        arguments[-1]._obj.value = 1
        return 0

    def cublasLtMatmul(self, handle: Any, desc: Any, *rest: Any) -> int:
        alpha, a, first, b, second, beta, c, third, d, out, *_ = rest
        self.made.multiply(
            desc.value,
            [(a.value, first.value), (b.value, second.value)],
            (c.value, third.value),
            (d.value, out.value),
            (alpha._obj.value, beta._obj.value),
        )
        return 0


def _float(address: int) -> float:
    return float(ctypes.c_float.from_address(address).value)
