"""Triton's kernel objects: a jitted function below any decorators. Needs Triton when called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MOST_LAYERS = 20


def jitted(value: Any) -> Any:
    """Return the jitted function below any decorators, or None where there is none."""
    from triton.runtime.jit import JITFunction  # noqa: PLC0415 - an optional part

    for _ in range(_MOST_LAYERS):
        if value is None or isinstance(value, JITFunction):
            return value
        value = getattr(value, "fn", None)
    return None


def layers(value: Any) -> Iterator[Any]:
    """Yield a kernel's decorators from the outermost inwards, the jitted function last."""
    base = jitted(value)
    while value is not base:
        yield value
        value = value.fn
    yield base


def tuner_of(value: Any) -> Any:
    """Return the autotuner among a kernel's decorators, or None."""
    return next((each for each in layers(value) if hasattr(each, "configs")), None)
