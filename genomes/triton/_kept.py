"""Machine code kept between processes: what differs only in shapes is compiled once.

A Triton kernel is compiled for types, constants and divisibility, not for sizes: the workloads of a
campaign often share a binary. Whoever starts compile processes names a folder in the environment.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER_VARIABLE = "KERNELARC_COMPILED_DIR"
_FIELDS = (
    "name",
    "num_warps",
    "num_ctas",
    "shared",
    "launch_pdl",
    "launch_cooperative_grid",
    "global_scratch_size",
    "profile_scratch_size",
    "tensordesc_meta",
)


@dataclass(frozen=True, slots=True)
class Code:
    """What Triton made: its metadata as attributes, the binary, the assembly."""

    made: Any
    cubin: bytes
    ptx: str


def code_of(made: Any) -> Code:
    """Take out of Triton's compiled kernel what a build needs."""
    fields = {name: getattr(made.metadata, name) for name in _FIELDS}
    return Code(SimpleNamespace(**fields), bytes(made.asm["cubin"]), str(made.asm["ptx"]))


def kept(key: str) -> Code | None:
    """Return the code of a key, or None where no folder is named or nothing good lies there."""
    place = _place(key)
    if place is None:
        return None
    try:
        content: Mapping[str, Any] = json.loads(zlib.decompress(place.read_bytes()))
        made = SimpleNamespace(**{name: content["made"][name] for name in _FIELDS})
        return Code(made, base64.b64decode(content["cubin"], validate=True), str(content["ptx"]))
    except (OSError, zlib.error, ValueError, KeyError, TypeError):
        return None


def keep(key: str, code: Code) -> None:
    """Keep code under a key. A folder that cannot be written keeps nothing."""
    place = _place(key)
    if place is None:
        return
    content = {"made": vars(code.made), "cubin": base64.b64encode(code.cubin).decode()}
    packed = zlib.compress(json.dumps({**content, "ptx": code.ptx}).encode(), 1)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(packed)
        Path(name).replace(place)


def _place(key: str) -> Path | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) / key[:2] / f"{key}.triton" if folder else None
