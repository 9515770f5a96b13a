"""Fresh values whose float64 answer is known without computing it anew.

A product of matrices is computed once for some rows and columns. Choosing rows, negating them and
scaling them by powers of two changes every value that a kernel sees and reads, while the exact
answer changes in the same, exactly known way. The same holds for rows of a normalisation, up to
scaling: there only signs are changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._inputs import make_inputs
from kernelarc.bench._reference import run_reference
from kernelarc.bench.cpu._references import Arrays, Reference, ValueSource, WholeReference
from kernelarc.genomes import Operator, Workload, builtin_operators

_Floats: TypeAlias = "NDArray[np.float64]"
_BASE_EXTENT = 512
"""Rows and columns whose answer is computed; larger matrices are made of these."""

_PIECE_ELEMENTS = 1 << 16

_REFRESH_EVERY = 200
"""After so many fills the base itself is drawn anew."""


def value_source(operator: Operator, workload: Workload) -> ValueSource:
    """Return the cheapest source of values for an operator."""
    if operator.fingerprint == builtin_operators()["gemm"].fingerprint:
        return _ProductValues(operator, workload)
    if operator.fingerprint == builtin_operators()["add_rmsnorm"].fingerprint:
        return _NormValues(operator, workload)
    return _AnyValues(operator, workload)


class _AnyValues(ValueSource):
    """Any operator: values drawn and the reference run each time."""

    def __init__(self, operator: Operator, workload: Workload) -> None:
        self._operator = operator
        self._workload = workload

    def fill(self, inputs: Arrays, rng: np.random.Generator) -> Reference:
        drawn = make_inputs(self._operator, self._workload, rng)
        for name, array in inputs.items():
            np.copyto(array, np.asarray(drawn[name]), casting="unsafe")
        return WholeReference(run_reference(self._operator, drawn))

    def stir(self, inputs: Arrays, reference: Reference, rng: np.random.Generator) -> Reference:
        return self.fill(inputs, rng)


def _signs(rng: np.random.Generator, n: int) -> _Floats:
    return rng.choice(np.array([-1.0, 1.0]), size=n)


def _factors(rng: np.random.Generator, n: int) -> _Floats:
    """Signed powers of two between 1/2 and 2: multiplying with them is exact."""
    return _signs(rng, n) * np.exp2(rng.integers(-1, 2, size=n).astype(np.float64))


def _chosen(
    base: NDArray[Any], index: NDArray[np.int64], factor: _Floats, out: NDArray[Any]
) -> None:
    """out[i] = base[index[i]] * factor[i], some rows at a time so that they stay in caches."""
    narrow = factor.astype(out.dtype)[:, None]
    step = max(1, _PIECE_ELEMENTS // max(base.shape[1], 1))
    for start in range(0, len(index), step):
        part = slice(start, start + step)
        np.multiply(base.take(index[part], axis=0), narrow[part], out=out[part])


class _BasedValues(ValueSource):
    """What sources with a base share: it is drawn when first needed and now and then anew."""

    def __init__(self, operator: Operator, workload: Workload, extents: dict[str, int]) -> None:
        self._operator = operator
        self._base_workload = Workload(
            operator=workload.operator,
            axes={axis: min(workload.axes[axis], n) for axis, n in extents.items()},
            inputs=workload.inputs,
            tolerance=workload.tolerance,
            options=workload.options,
        )
        self._fills = 0
        self._base: dict[str, NDArray[Any]] = {}
        self._answer: dict[str, NDArray[Any]] = {}

    def _draw(self, rng: np.random.Generator) -> None:
        if self._fills % _REFRESH_EVERY == 0:
            drawn = make_inputs(self._operator, self._base_workload, rng)
            self._base = {name: np.asarray(value) for name, value in drawn.items()}
            self._answer = dict(run_reference(self._operator, drawn))
        self._fills += 1


@dataclass(slots=True)
class _Product(Reference):
    """C[i, j] = chosen[row[i], j] * factor[i] + R[i, j]."""

    chosen: _Floats
    row: NDArray[np.int64]
    factor: _Floats
    added: NDArray[Any] | None

    def rows(self, output: str, start: int, stop: int) -> NDArray[np.generic]:
        part = self.chosen.take(self.row[start:stop], axis=0)
        part *= self.factor[start:stop, None]
        if self.added is not None:
            part += self.added[start:stop]
        return part


class _ProductValues(_BasedValues):
    """gemm: rows of A and columns of B chosen from a base, negated and scaled."""

    def __init__(self, operator: Operator, workload: Workload) -> None:
        whole = workload.axes["K"]
        super().__init__(operator, workload, {"M": _BASE_EXTENT, "N": _BASE_EXTENT, "K": whole})
        self._m, self._n = workload.axes["M"], workload.axes["N"]

    def _draw(self, rng: np.random.Generator) -> None:
        super()._draw(rng)
        if "residual" in self._base:  # the product alone is what rows and columns are chosen of
            product = self._answer["c"] - self._base.pop("residual")
            self._answer = {"c": product}

    def fill(self, inputs: Arrays, rng: np.random.Generator) -> Reference:
        self._draw(rng)
        a, b = self._base["a"], self._base["b"]
        row = rng.integers(0, a.shape[0], size=self._m)
        column = rng.integers(0, b.shape[1], size=self._n)
        factor, column_factor = _factors(rng, self._m), _factors(rng, self._n)
        _chosen(a, row, factor, inputs["a"])
        into: NDArray[Any] = inputs["b"]
        np.multiply(b.take(column, axis=1), column_factor.astype(into.dtype), out=into)
        added = None
        if "residual" in inputs:
            added = np.empty((self._m, self._n), dtype=np.float32)
            rng.standard_normal(dtype=np.float32, out=added)
            np.copyto(inputs["residual"], added)
        chosen = self._answer["c"].take(column, axis=1)
        chosen *= column_factor
        return _Product(chosen, row, factor, added)

    def stir(self, inputs: Arrays, reference: Reference, rng: np.random.Generator) -> Reference:
        assert isinstance(reference, _Product)
        i, j = int(rng.integers(self._m)), int(rng.integers(self._n))
        a: NDArray[Any] = inputs["a"]
        b: NDArray[Any] = inputs["b"]
        a[i] *= -1
        b[:, j] *= -1
        reference.factor[i] *= -1
        reference.chosen[:, j] *= -1
        return reference


@dataclass(slots=True)
class _Norm(Reference):
    """y[i, j] = chosen["y"][row[i], j] * sign[i], and summed the same way."""

    chosen: dict[str, NDArray[Any]]
    row: NDArray[np.int64]
    sign: _Floats

    def rows(self, output: str, start: int, stop: int) -> NDArray[np.generic]:
        part: NDArray[Any] = self.chosen[output].take(self.row[start:stop], axis=0)
        part *= self.sign[start:stop, None]
        return part


class _NormValues(_BasedValues):
    """add_rmsnorm: rows chosen from a base and negated; weights negated and scaled."""

    def __init__(self, operator: Operator, workload: Workload) -> None:
        whole = workload.axes["hidden"]
        super().__init__(operator, workload, {"rows": _BASE_EXTENT, "hidden": whole})
        self._rows, self._hidden = workload.axes["rows"], whole

    def fill(self, inputs: Arrays, rng: np.random.Generator) -> Reference:
        self._draw(rng)
        row = rng.integers(0, self._base["x"].shape[0], size=self._rows)
        sign, factor = _signs(rng, self._rows), _factors(rng, self._hidden)
        for name in ("x", "residual"):
            _chosen(self._base[name], row, sign, inputs[name])
        weight: NDArray[Any] = inputs["norm_weight"]
        np.multiply(self._base["norm_weight"], factor, out=weight, casting="same_kind")
        chosen = {"y": self._answer["y"] * factor, "summed": self._answer["summed"]}
        return _Norm(chosen, row, sign)

    def stir(self, inputs: Arrays, reference: Reference, rng: np.random.Generator) -> Reference:
        assert isinstance(reference, _Norm)
        i, j = int(rng.integers(self._rows)), int(rng.integers(self._hidden))
        for name in ("x", "residual"):
            array: NDArray[Any] = inputs[name]
            array[i] *= -1
        weight: NDArray[Any] = inputs["norm_weight"]
        weight[j] *= -1
        reference.sign[i] *= -1
        reference.chosen["y"][:, j] *= -1
        return reference
