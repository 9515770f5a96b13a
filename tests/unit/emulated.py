"""Runs the CUDA sources of experts on the CPU: a host's C++ compiler, and ``emulated.hpp``.

Products of the library between them are NumPy's.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes.kernels import (
    Argument,
    Launch,
    LibraryProduct,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorArgument,
    TensorMap,
)
from kernelarc.genomes.routes._cuda_route import Prepared
from kernelarc.genomes.routes._cuda_source import configured, cuda_source

COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("emulated.hpp")
_REPLACED = ("copy_engine.cuh", "matrices.cuh", "warpgroup.cuh", "products.cuh")


def run_parts(
    parts: list[tuple[str, Prepared]],
    tensors: Mapping[str, NDArray[Any]],
    folder: Path,
    seed: int = 0,
) -> dict[str, NDArray[Any]]:
    """Run every step of some parts in order, and return the buffers between them.

    Args:
        parts: File of each part's source, and the part.
        tensors: The operator's tensors by name, 16-bit floats as their bits; outputs are written.
        folder: Where things are compiled.
        seed: Of the order in which threads run and copies arrive.
    """
    held = {one.name: _poisoned(one) for _, part in parts for one in part.scratch}
    memory = {**held, **tensors}
    assert len(memory) == len(held) + len(tensors)
    places = {name: at for at, name in enumerate(memory)}
    addresses = (ctypes.c_void_p * len(memory))(*(array.ctypes.data for array in memory.values()))
    calls: dict[str, list[str]] = {}
    order: list[tuple[str, int] | LibraryProduct] = []
    for file, part in parts:
        text = _text(file, part) if part.launches else ""
        for step in part.steps:
            if isinstance(step, Launch):
                made = calls.setdefault(text, [])
                order.append((text, len(made)))
                made.append(_call(len(made), step, places, part.macros.get("SHARE", "1")))
            else:
                assert isinstance(step, LibraryProduct)
                order.append(step)
    libraries = {
        text: _compiled("\n".join([text, *made]), folder / f"part{at}")
        for at, (text, made) in enumerate(calls.items())
    }
    for library in libraries.values():
        library.emulated_seed(seed)
    for one in order:
        if isinstance(one, LibraryProduct):
            _multiply(one, memory)
        else:
            getattr(libraries[one[0]], f"launch_{one[1]}")(addresses)
    return held


def _multiply(step: LibraryProduct, memory: Mapping[str, NDArray[Any]]) -> None:
    """Do as the library is told, row-major; the sums are rounded once."""

    def held(place: TensorArgument | ScratchArgument, rows: int, columns: int) -> NDArray[Any]:
        flat = memory[place.name].reshape(-1).view(np.uint16)
        return flat[: rows * columns].reshape(rows, columns)

    m, n, k = step.rows, step.columns, step.depth
    left = numbers(held(step.left, k, m)).T if step.left_across else numbers(held(step.left, m, k))
    right = (
        numbers(held(step.right, k, n)) if step.right_across else numbers(held(step.right, n, k)).T
    )
    found = left @ right
    if step.added is not None:
        found += numbers(held(step.added, m, n))
    held(step.out, m, n)[:] = bits(found)


def _poisoned(one: Scratch) -> NDArray[Any]:
    return np.resize(np.array([0xFF, 0x7F], np.uint8), one.nbytes)  # no number, no index


def _text(file: str, part: Prepared) -> str:
    shared = "extern __shared__ u8 shared_bytes[];"
    headers = {"device.cuh": HEADER.read_text(), **dict.fromkeys(_REPLACED, "")}
    source = cuda_source(file, headers).replace(
        shared, "u8* const shared_bytes = emulated::shared + 16;"
    )
    return configured(source, part.macros)


def _call(number: int, launch: Launch, places: Mapping[str, int], cluster: str) -> str:
    arguments = ", ".join(_argument(each, places) for each in launch.arguments)
    return (
        f'extern "C" void launch_{number}(void** memory) {{\n'
        f"    emulated::launch({launch.grid[0]}, {launch.block[0]}, {cluster}, "
        f"[=] {{ {launch.symbol}({arguments}); }});\n}}\n"
    )


def _argument(given: Argument, places: Mapping[str, int]) -> str:
    if isinstance(given, TensorMap):
        columns, rows = given.extents
        assert given.strides == (2 * columns,) and given.swizzle == 128 and given.box[0] == 64
        assert given.box[1] <= 256
        at = _argument(given.source, places)
        return f"TensorMap{{{at}, {columns}, {rows}, {given.box[0]}, {given.box[1]}}}"
    if isinstance(given, ScalarArgument):
        return "emulated::Address{nullptr}" if given.kind == "u64" else str(given.value)
    assert isinstance(given, TensorArgument | ScratchArgument)
    return f"emulated::Address{{(char*)memory[{places[given.name]}] + {given.offset_bytes}}}"


def _compiled(text: str, stem: Path) -> ctypes.CDLL:
    source, library = stem.with_suffix(".cpp"), stem.with_suffix(".so")
    source.write_text(text)
    command = [str(COMPILER), "-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
    done = subprocess.run(
        [*command, str(source), "-o", str(library)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as the bits of bfloat16, rounded to the nearest even."""
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(np.uint16)


def numbers(found: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of bfloat16's bits."""
    return (found.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
