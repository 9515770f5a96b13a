"""How random inputs of a problem are spread: by their names and types, as the harness spreads them.

A problem's tolerance is meant for these values. Where factors were scaled that the harness does not
scale, sums would be smaller beside an absolute tolerance, and a kernel that rounds its partial sums
would be called right here and wrong there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.cuda._kernels import CONSTANT, NORMAL
from kernelarc.genomes import TensorSpec

_NORM_WEIGHT = re.compile(r"norm\d*_weight$")
_NORM_BIAS = re.compile(r"norm\d*_bias$")
_MATRIX = re.compile(r"^weight\d*$|_(weights?|projs?|weight_matrix)\d*$")
_SHAPED = frozenset({"float64", "float32", "float16", "bfloat16"})
_WHOLE = {"int8": 128, "int16": 1024, "int32": 1024, "int64": 1024}


@dataclass(frozen=True, slots=True)
class Draw:
    """How a tensor is drawn on the device: a distribution, and what it is multiplied by.

    Attributes:
        fixed: Whether the values are the same in every draw.
    """

    how: int
    scale: float = 1.0
    fixed: bool = False


def named_draw(spec: TensorSpec, shape: tuple[int, ...]) -> Draw:
    """Return how a floating-point tensor is drawn that ``shaped_values`` does not make."""
    if spec.dtype not in _SHAPED:
        return Draw(NORMAL)
    if _NORM_WEIGHT.search(spec.name):
        return Draw(CONSTANT, 1.0, fixed=True)
    if _NORM_BIAS.search(spec.name):
        return Draw(CONSTANT, 0.0, fixed=True)
    if len(shape) > 1 and _MATRIX.search(spec.name):
        return Draw(NORMAL, 1.0 / math.sqrt(max(shape[-1], 1)))
    return Draw(NORMAL)


def whole_values(
    dtype: str, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.generic] | None:
    """Return whole numbers of a type, below zero too; None of a type that is none of these."""
    most = _WHOLE.get(dtype)
    return None if most is None else rng.integers(-most, most, size=shape).astype(dtype)


def random_scalar(dtype: str, rng: np.random.Generator) -> float | int | bool:
    """Return a Python scalar of a type."""
    if dtype == "bool":
        return bool(rng.integers(0, 2))
    drawn = whole_values(dtype, (), rng)
    return float(rng.standard_normal()) if drawn is None else int(drawn)
