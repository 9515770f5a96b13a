"""Files of tensors that workloads name: where they lie, what they hold, what stands in for them.

The format (safetensors) is eight bytes of length, a JSON object of names, types, shapes and
offsets, and the bytes. Reading it here serves types that NumPy does not have.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kernelarc.genomes._axes import ELEMENT_BYTES
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._operators import Operator, TensorSpec

TRACE_ROOT = "FLASHINFER_TRACE_DIR"
"""Environment variable that names a folder in which the files are looked for as well."""

_HEADER_LIMIT = 100_000_000
_DTYPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "F64": ("float64",),
        "F32": ("float32",),
        "F16": ("float16",),
        "BF16": ("bfloat16",),
        "F8_E4M3": ("float8_e4m3fn",),
        "F8_E5M2": ("float8_e5m2",),
        "F4": ("float4_e2m1", "float4_e2m1fn_x2"),
        "U8": ("float4_e2m1", "float4_e2m1fn_x2"),
        "I64": ("int64",),
        "I32": ("int32",),
        "I16": ("int16",),
        "I8": ("int8",),
        "BOOL": ("bool",),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One tensor in a file.

    Attributes:
        path: The file.
        offset: Where its bytes begin in the file.
        nbytes: How many there are.
        shape: As stored.
        dtypes: The schema's names for its type.
    """

    path: Path
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]

    def read(self) -> bytes:
        """Return its bytes, row-major."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.nbytes)


def blob_roots(folder: Path) -> tuple[Path, ...]:
    """Return where a problem folder's files are looked for: in it, then where the user says."""
    named = os.environ.get(TRACE_ROOT)
    return (folder, *([Path(named)] if named else []))


def find_blob(path: str, roots: Sequence[Path]) -> Path | None:
    """Return a file that a workload names, or None.

    Each root is tried with the whole path, then with ever fewer leading folders: a root may
    already contain them.
    """
    parts = Path(path).parts
    if Path(path).is_absolute():
        return Path(path) if _is_file(Path(path)) else None
    for root in roots:
        for start in range(len(parts)):
            candidate = root.joinpath(*parts[start:])
            if _is_file(candidate):
                return candidate.resolve()
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def open_blob(path: Path, key: str) -> Blob:
    """Return one tensor of a file.

    Raises:
        InputError: The file is none of this format, or holds no such tensor.
    """
    entries, start = _header(path)
    entry = entries.get(key)
    if not isinstance(entry, dict):
        raise InputError(f"{path} holds no tensor {key!r}{nearest(key, entries)}")
    try:
        begin, end = (int(place) for place in entry["data_offsets"])
        shape = tuple(int(extent) for extent in entry["shape"])
        dtypes = _DTYPES.get(str(entry["dtype"]), ())
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: the entry of {key!r} is malformed") from None
    if not 0 <= begin <= end <= path.stat().st_size - start:
        raise InputError(f"{path} is shorter than its tensor {key!r}: it was cut off")
    return Blob(path=path, offset=start + begin, nbytes=end - begin, shape=shape, dtypes=dtypes)


def _header(path: Path) -> tuple[dict[str, object], int]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if 0 < length <= _HEADER_LIMIT else b""
        entries = json.loads(text)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no safetensors file: its header is no JSON") from None
    if not isinstance(entries, dict):
        raise InputError(f"{path} is no safetensors file: its header is no JSON object")
    return {name: entry for name, entry in entries.items() if name != "__metadata__"}, 8 + length


def check_blob(blob: Blob, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape or type than the operator's.

    Raises:
        InputError: Says which.
    """
    if blob.shape != shape:
        raise InputError(f"{blob.path} holds the shape {blob.shape}, the axes say {shape}")
    if spec.dtype not in blob.dtypes:
        held = " or ".join(blob.dtypes) or "an unknown type"
        raise InputError(f"{blob.path} holds {held}, the definition says {spec.dtype}")
    if blob.nbytes != math.prod(shape) * ELEMENT_BYTES[spec.dtype]:
        raise InputError(f"{blob.path}: {blob.nbytes} bytes are not what {shape} needs")


# Standing in for a file that is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """How whole numbers are made that fit the axes, where their file is missing.

    Attributes:
        kind: ``"starts"``: sequences of equal length, ending at ``bound``; ``"places"``: distinct
            where possible, below ``bound``; ``"constant"``: all ``bound``; ``"random"``: values
            as for any random input.
        bound: A number, or 0 for random values.
    """

    kind: str
    bound: int = 0


def stand_in(operator: Operator, spec: TensorSpec, axes: Mapping[str, int]) -> StandIn | None:
    """Return how a missing tensor is made, or None where the axes do not determine it.

    Floating-point tensors can be random. Of whole numbers these are known: ``*_indptr`` (where
    sequences start), ``*_indices`` (which pages they use) and ``*_last_page_len``.
    """
    if spec.dtype.startswith(("float", "bfloat")):
        return StandIn(kind="random")
    if spec.shape is None or len(spec.shape) != 1:
        return None
    stem = spec.name.rpartition("_")[0]
    if spec.name.endswith("_indptr"):
        return _bounded(
            "starts", (f"num_{stem}_indices", f"total_{stem[:-1]}", f"total_{stem}"), axes
        )
    if spec.name.endswith("_indices"):
        return _bounded("places", ("num_pages", f"num_{stem}_pages"), axes)
    if spec.name.endswith("last_page_len"):
        return _bounded("constant", ("page_size",), axes)
    return None


def _bounded(kind: str, names: Sequence[str], axes: Mapping[str, int]) -> StandIn | None:
    found = next((axes[name] for name in names if name in axes), None)
    if found is None or (found == 0 and kind == "places"):  # there is no place to point to
        return None
    return StandIn(kind=kind, bound=found)
