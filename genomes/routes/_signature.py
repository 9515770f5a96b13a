"""Recognising an operator by its tensors: how many, of which types, and how their axes agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kernelarc.genomes._operators import Operator, TensorSpec

Binding: TypeAlias = "dict[str, tuple[str, ...]]"


def matched(operator: Operator, inputs: Sequence[str], outputs: Sequence[str]) -> Binding | None:
    """Match an operator's tensors, in order, with patterns; return what each letter stands for.

    A pattern is a dtype and letters, ``"float T H"``: a letter stands for one axis (or number),
    the same wherever it occurs; ``*T`` for one axis or several. ``"float"`` is bfloat16 or
    float16, the same wherever it occurs; ``"whole"`` is int32 or int64; ``"scalar"`` a Python
    scalar. Names of tensors and axes play no part.

    Returns:
        Axes by letter, and ``"float"`` and ``"whole"`` with the dtype; None where it does not fit.
    """
    specs = (*operator.inputs, *operator.outputs)
    patterns = (*inputs, *outputs)
    if len(operator.inputs) != len(inputs) or len(operator.outputs) != len(outputs):
        return None
    if any(spec.optional for spec in operator.inputs):
        return None
    found: Binding = {}
    fits = (
        _fits(spec, *pattern.split(), found=found)
        for spec, pattern in zip(specs, patterns, strict=True)
    )
    return found if all(fits) else None


def _fits(spec: TensorSpec, kind: str, *letters: str, found: Binding) -> bool:
    if kind == "scalar" or spec.shape is None:
        return kind == "scalar" and spec.shape is None
    kinds = {"float": ("bfloat16", "float16"), "whole": ("int32", "int64")}.get(kind, (kind,))
    if spec.dtype not in kinds or found.setdefault(kind, (spec.dtype,)) != (spec.dtype,):
        return False
    shape, wide = spec.shape, [letter for letter in letters if letter.startswith("*")]
    spare = len(shape) - len(letters)
    if spare < 0 or (spare and not wide):
        return False
    at = 0
    for letter in letters:
        count = 1 + (spare if letter.startswith("*") else 0)
        part, at = shape[at : at + count], at + count
        if found.setdefault(letter.removeprefix("*"), part) != part:
            return False
    return True


def extent(found: Binding, letter: str, axes: Mapping[str, int]) -> int:
    """Return the size of what a letter stands for."""
    return math.prod(axes[name] if name in axes else int(name) for name in found[letter])
