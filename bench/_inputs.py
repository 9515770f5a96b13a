"""Fresh inputs for an operator: random by default, and variants that friendly values would hide.

Every value comes from the ``numpy.random.Generator`` handed in. Values are made in the tensor's
own type, so that the reference sees exactly what the candidate sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._numerics import numpy_dtype
from kernelarc.genomes import (
    InputError,
    Operator,
    TensorSpec,
    Workload,
    axis_values,
    nearest,
)

Value: TypeAlias = "NDArray[np.generic] | float | int | bool"


class Variant(StrEnum):
    """How the floating-point tensors of one check are filled."""

    RANDOM = "random"
    TRIPLED = "x3"
    HUNDREDTH = "x0.01"
    NEGATED = "negated"
    HEAVY_TAILED = "heavy-tailed"
    ONES = "ones"
    ZERO_ONE = "zero-one"


EXACT_VARIANTS = (Variant.ONES, Variant.ZERO_ONE)
"""Canaries: sums of products of these are exact, so that any wrong index shows."""

_RAGGED = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103)
_SCALE = {Variant.TRIPLED: 3.0, Variant.HUNDREDTH: 0.01, Variant.NEGATED: -1.0}
_TAIL_LIMIT = {"float16": 64.0}
_INTEGERS_BELOW = 8


def present_inputs(operator: Operator, workload: Workload) -> tuple[TensorSpec, ...]:
    """Return the inputs that take part: an optional one only where the workload's options say."""
    return tuple(
        spec for spec in operator.inputs if not spec.optional or workload.options.get(spec.name)
    )


def shape_of(spec: TensorSpec, axes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a tensor's shape with its axes bound; a Python scalar's is ``()``.

    Raises:
        InputError: The shape names an axis that there is not.
    """
    extents = []
    for part in spec.shape or ():
        if part.isdigit():
            extents.append(int(part))
        elif part in axes:
            extents.append(axes[part])
        else:
            raise InputError(f"tensor {spec.name!r} has no axis {part!r}{nearest(part, axes)}")
    return tuple(extents)


def make_inputs(
    operator: Operator,
    workload: Workload,
    rng: np.random.Generator,
    variant: Variant = Variant.RANDOM,
) -> dict[str, Value]:
    """Return fresh inputs by name, in the operator's order; absent optional ones are left out.

    Raises:
        InputError: An input's type, dtype or shape cannot be made here.
    """
    axes = axis_values(operator, workload)
    return {
        spec.name: _value(spec, shape_of(spec, axes), workload.inputs.get(spec.name), rng, variant)
        for spec in present_inputs(operator, workload)
    }


def _value(
    spec: TensorSpec,
    shape: tuple[int, ...],
    rule: Mapping[str, Any] | None,
    rng: np.random.Generator,
    variant: Variant,
) -> Value:
    kind = "random" if rule is None else rule.get("type", "random")
    if kind == "scalar" and rule is not None:
        return _scalar(spec, shape, rule)
    if kind != "random":
        raise InputError(f"input {spec.name!r} is of type {kind!r}: random and scalar can be made")
    values = _tensor(shape, numpy_dtype(spec.dtype), rng, variant)
    return values if spec.shape is not None else values.item()


def _scalar(spec: TensorSpec, shape: tuple[int, ...], rule: Mapping[str, Any]) -> Value:
    value = rule.get("value")
    if not isinstance(value, bool | int | float):
        raise InputError(f"input {spec.name!r}: a scalar needs a number as value, not {value!r}")
    return value if spec.shape is None else np.full(shape, value, dtype=numpy_dtype(spec.dtype))


def _tensor(
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    rng: np.random.Generator,
    variant: Variant,
) -> NDArray[np.generic]:
    if not np.issubdtype(dtype, np.floating):
        high = 2 if dtype == np.bool_ else _INTEGERS_BELOW
        return rng.integers(0, high, size=shape).astype(dtype)
    if variant is Variant.ONES:
        return np.ones(shape, dtype=dtype)
    if variant is Variant.ZERO_ONE:
        return rng.integers(0, 2, size=shape, dtype=np.int8).astype(dtype)
    values = rng.standard_normal(shape, dtype=_drawn(dtype))
    if variant is Variant.HEAVY_TAILED:
        limit = _TAIL_LIMIT.get(dtype.name, 1e4)
        tails = np.exp(2.0 * rng.standard_normal(shape, dtype=np.float32))
        values = np.clip(values * tails, -limit, limit)
    scaled: NDArray[np.generic] = (values * _SCALE.get(variant, 1.0)).astype(dtype)
    return scaled


def _drawn(dtype: np.dtype[np.generic]) -> type[np.float32] | type[np.float64]:
    return np.float64 if dtype == np.float64 else np.float32


def ragged_workload(operator: Operator, workload: Workload, rng: np.random.Generator) -> Workload:
    """Return the workload with small var axes, all different and none a multiple of a tile."""
    names = [name for name, axis in operator.axes.items() if axis.kind == "var"]
    extents = rng.choice(_RAGGED, size=len(names), replace=len(names) > len(_RAGGED))
    axes = dict(zip(names, (int(extent) for extent in extents), strict=True))
    return replace(workload, axes=axes, uuid="")
