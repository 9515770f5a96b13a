"""Values of inputs that lie in files, and of those that stand in for missing ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import InputError, StandIn, open_blob

_RAW = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
        "float4_e2m1": "uint8", "float4_e2m1fn_x2": "uint8"}  # fmt: skip


def stored_values(rule: Mapping[str, Any], dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the values of an input whose file was found.

    Args:
        rule: Of type ``safetensors``, with ``found_at``.
        dtype: The schema's type; types that NumPy lacks come as whole numbers of their width.
        shape: What it must have.

    Raises:
        InputError: The file is gone, or holds something else.
    """
    blob = open_blob(Path(rule["found_at"]), rule["tensor_key"])
    if blob.shape != shape or dtype not in blob.dtypes:
        raise InputError(f"{blob.path} holds {blob.shape} of {blob.dtypes}, not {shape} of {dtype}")
    return np.frombuffer(blob.read(), dtype=_RAW.get(dtype, dtype)).reshape(shape).copy()


def standing_values(
    made: StandIn, dtype: str, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.generic]:
    """Return whole numbers that fit the axes, shape (n,), in the schema's type.

    Raises:
        InputError: The stand-in is random: those values are made as any others.
    """
    count = shape[0]
    if made.kind == "starts":
        values = np.arange(count, dtype=np.int64) * made.bound // max(count - 1, 1)
    elif made.kind == "places":
        turns = -(-count // made.bound)
        order = np.concatenate([rng.permutation(made.bound) for _ in range(turns)])
        values = order[:count]
    elif made.kind == "constant":
        values = np.full(count, made.bound)
    else:
        raise InputError("random values do not stand in for a file; they are drawn")
    return values.astype(dtype)
