"""What is used of cuBLASLt's binding, and what is read from its enumerations.

The binding is a parameter everywhere, so that a library that answers otherwise (another version,
a fake in a test) is met with its own numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from kernelarc.genomes import LT_ATTRIBUTES, MissingPartError, ShapePair

Lt: TypeAlias = Any
"""The module ``nvmath.bindings.cublasLt`` or one that answers like it."""

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28}
"""``cudaDataType`` by schema dtype."""

COMPUTE_32F = 68
COMPUTE_32F_FAST_TF32 = 77

_PAIR_NAME = re.compile(r"_(\d+)x(\d+|AUTO)")


class _Member(Protocol):
    name: str

    def __int__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The binding's enumerations as shapes.

    Attributes:
        tiles: Tile number to rows and columns.
        stages: Stage number to depth and count, 0 for "as many as fit".
        clusters: Cluster number to rows and columns, (0, 0) for "as the library likes".
        inners: Inner shape numbers.
    """

    tiles: Mapping[int, ShapePair]
    stages: Mapping[int, ShapePair]
    clusters: Mapping[int, ShapePair]
    inners: tuple[int, ...]


def load_lt() -> Lt:
    """Import the binding.

    Raises:
        MissingPartError: It is not installed, or finds no library.
    """
    try:
        from nvmath.bindings import cublasLt  # noqa: PLC0415

        cublasLt.get_version()
    except Exception as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        raise MissingPartError(
            "cuBLASLt cannot be used: install kernelarc[cuda] and nvidia-cublas for your CUDA "
            f"version ({line})"
        ) from None
    return cublasLt


def numbering(lt: Lt) -> Numbering:
    """Read the shapes that the binding's enumerations name."""
    return Numbering(
        tiles={0: (0, 0), **_pairs(lt.MatmulTile)},
        stages={0: (0, 0), **_pairs(lt.MatmulStages)},
        clusters={0: (0, 0), **_pairs(lt.ClusterShape)},
        inners=tuple(int(member) for member in lt.MatmulInnerShape),
    )


def _pairs(members: Iterable[_Member]) -> dict[int, ShapePair]:
    found = {}
    for member in members:
        match = _PAIR_NAME.search(member.name)
        if match is not None:
            second = 0 if match[2] == "AUTO" else int(match[2])
            found[int(member)] = (int(match[1]), second)
    return found


def attribute_types(lt: Lt) -> tuple[np.dtype[Any], ...]:
    """Return the types of the nine attributes: their sizes are all that the library checks."""
    return tuple(
        np.dtype(lt.get_matmul_algo_config_attribute_dtype(number))
        for number in range(len(LT_ATTRIBUTES))
    )


def setter(call: Any, owner: int, attribute: int, value: int, kind: Any) -> None:
    """Set one attribute of a descriptor, a layout or a preference."""
    held = np.array([value], dtype=kind)
    call(owner, attribute, held.ctypes.data, held.nbytes)


def status_of(error: Exception) -> int:
    """Return the library's status number of an error, -1 where it has none."""
    status = getattr(error, "status", None)
    return -1 if status is None else int(status)
