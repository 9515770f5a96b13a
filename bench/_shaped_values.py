"""Values that a tensor's name calls for, where plain random ones would mean something else.

The harness shapes random inputs by name. Made here are masks, angles, spreads, decays, weights that
sum to one; norm weights and scaled matrices are drawn on the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import TensorSpec

Values: TypeAlias = "NDArray[np.float32]"
_Shape: TypeAlias = tuple[int, ...]
_Maker: TypeAlias = "Callable[[_Shape, np.random.Generator], Values]"

_SPREADS = re.compile(r"(^|_)(rstd|std|variance|var)\d*$")
_CAUSAL = frozenset({"attention_mask", "causal_mask"})
_BINARY = frozenset({"x_mask", "text_mask", "aspect_ratio_mask", "drop_mask", "attention_mask"})
_BINARY_WORDS = ("binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked")
_SHARES = frozenset({"attn_weights", "attention_weights", "routing_weights"})
_LOWEST = {"float16": -65504.0, "bfloat16": -3.3895313892515355e38}


def shaped_values(
    spec: TensorSpec, shape: _Shape, rng: np.random.Generator, *, sampling: bool = False
) -> Values | None:
    """Return what a tensor's name and description call for, or None where nothing does.

    Args:
        spec: A floating-point tensor of 16 bits or more; others are never shaped.
        shape: With its axes bound.
        rng: Where the values come from.
        sampling: Whether the operator samples: its ``probs`` sum to one.

    Returns:
        float32 values of the shape, which every such type holds to its own precision.
    """
    if spec.dtype not in {"float64", "float32", "float16", "bfloat16"}:
        return None
    maker = _shares if sampling and spec.name == "probs" else _maker_of(spec, shape)
    return None if maker is None else maker(shape, rng).astype(np.float32)


def _maker_of(spec: TensorSpec, shape: _Shape) -> _Maker | None:
    name, told = spec.name, spec.description.lower()
    if _is_causal(name, told, shape):
        lowest = _LOWEST.get(spec.dtype, float(np.finfo(np.float32).min))
        return lambda shape, _: np.triu(np.full(shape, lowest, dtype=np.float32), 1)
    if name in _BINARY or (name.endswith("_mask") and any(w in told for w in _BINARY_WORDS)):
        return _zero_or_one
    if _SPREADS.search(name):
        return _spread
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _shares if name in _SHARES or ("softmax" in told and "output" in told) else None


def _zero_or_one(shape: _Shape, rng: np.random.Generator) -> Values:
    return rng.integers(0, 2, size=shape).astype(np.float32)


def _spread(shape: _Shape, rng: np.random.Generator) -> Values:
    return np.abs(_normal(shape, rng)) + np.float32(0.1)


def _angle(shape: _Shape, rng: np.random.Generator) -> Values:
    return np.clip(_normal(shape, rng), -np.pi, np.pi)


def _between(low: float, high: float) -> _Maker:
    return lambda shape, rng: rng.uniform(low, high, size=shape).astype(np.float32)


def _is_causal(name: str, told: str, shape: _Shape) -> bool:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return False
    return name in _CAUSAL or ("attention mask" in told and "causal" in told)


def _normal(shape: _Shape, rng: np.random.Generator) -> Values:
    return rng.standard_normal(shape, dtype=np.float32)


def _shares(shape: _Shape, rng: np.random.Generator) -> Values:
    raised = np.exp(_normal(shape, rng))
    found: Values = raised / raised.sum(axis=-1, keepdims=True)
    return found


def narrowed(values: Values, dtype: str) -> NDArray[np.generic]:
    """Return float32 values in a schema type, bfloat16 as its 16 bits, rounded to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


_BY_NAME: Mapping[str, _Maker] = {
    **dict.fromkeys(("cos", "cos_cached", "rope_cos"), lambda s, rng: np.cos(_angle(s, rng))),
    **dict.fromkeys(("sin", "sin_cached", "rope_sin"), lambda s, rng: np.sin(_angle(s, rng))),
    "A": _between(-1.0, -0.001),
    "A_log": _between(-5.0, -1.0),
    "A_cumsum": lambda s, rng: np.cumsum(_between(-0.1, 0.0)(s, rng), axis=-1),
    "g": _between(-5.0, 0.0),
}
