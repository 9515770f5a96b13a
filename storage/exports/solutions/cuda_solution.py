"""CUDA kernels, launched as it was found best for exact shapes, with products of cuBLASLt between.

NVRTC compiles a shape's kernels when it is first seen. A shape that the table does not hold, a
chip of another architecture or a tensor that begins in the middle of 16 bytes runs the reference.
Nothing is remembered but loaded kernels; every call launches the same kernels in the same order on
the current stream, whatever the addresses are.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import kernels
import reference
import torch

# -- names and table: filled in by the export --
ARCH = "sm_90a"
INPUTS: tuple[str, ...] = ()
OUTPUTS: tuple[str, ...] = ()
KEY: tuple[tuple[str, int], ...] = ()
TABLE: dict[tuple[int, ...], dict[str, Any]] = {}
# -- end --

_OPTIONS = ("--std=c++17", "-default-device")
_DYNAMIC_SHARED, _CARVEOUT = 8, 9  # function attributes of the driver
_OVERLAP = 6  # launch attribute: the kernel may begin before the one before it has ended
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_ALIGNMENT = 16  # of tensors, for the copy engine and for vectors
_LIBRARY_ALIGNMENT = 256  # what cuBLASLt counts on when it is asked for algorithms


@lru_cache(maxsize=1)
def _nvrtc() -> ctypes.CDLL:
    """Return the compiler's library: torch's own, or what the system finds."""
    for folder in sys.path:
        for found in sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so*")):
            return ctypes.CDLL(str(found))
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("NVRTC was not found: neither beside torch nor on the library path")


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _asked(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} failed with status {status}")


def cubin(text: str, arch: str) -> bytes:
    """Compile a whole source."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    source = ctypes.c_char_p(text.encode())
    _asked(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
    flags = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in _OPTIONS)]
    if nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags)) != 0:
        raise RuntimeError(_part(nvrtc, program, "ProgramLog").decode(errors="replace"))
    return _part(nvrtc, program, "CUBIN")


def _part(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _asked(nvrtc, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    held = ctypes.create_string_buffer(size.value)
    _asked(nvrtc, f"nvrtcGet{what}", program, held)
    return held.raw


@cache
def _functions(key: tuple[int, ...], device: int) -> tuple[ctypes.c_void_p, ...]:
    """Return a shape's kernels, loaded on a device and ready to be launched."""
    found, module = TABLE[key], ctypes.c_void_p()
    image = cubin(found["macros"] + kernels.TEXTS[found["text"]], ARCH)
    _asked(_driver(), "cuModuleLoadData", ctypes.byref(module), image)
    made = []
    for step in found["steps"]:
        function = ctypes.c_void_p()
        if "product" in step:
            made.append(function)
            continue
        symbol = step["symbol"].encode()
        _asked(_driver(), "cuModuleGetFunction", ctypes.byref(function), module, symbol)
        wanted = {_DYNAMIC_SHARED: step["shared"], _CARVEOUT: step["carveout"]}
        for attribute, value in wanted.items():
            if value is not None:
                _asked(_driver(), "cuFuncSetAttribute", function, attribute, value)
        made.append(function)
    return tuple(made)


def _tensor_map(address: int, form: tuple[Any, ...]) -> Any:
    """Return a tensor map over an address, aligned as the driver wants it."""
    kind, extents, strides, box, steps, swizzle, interleave, promotion, nan_fill = form
    rank = len(extents)
    held = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
    offset = -ctypes.addressof(held) % _MAP_ALIGNMENT
    place = (ctypes.c_char * _MAP_BYTES).from_buffer(held, offset)
    _asked(
        _driver(), "cuTensorMapEncodeTiled", place, kind, rank, ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
        (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*steps),
        interleave, swizzle, promotion, nan_fill,
    )  # fmt: skip
    return place


def _parameter(what: tuple[Any, ...], memory: dict[str, Any]) -> Any:
    """Return one parameter's memory."""
    kind, *rest = what
    if kind == "number":
        return ctypes.create_string_buffer(struct.pack(*rest), struct.calcsize(rest[0]))
    if kind == "input":
        letter, name = rest
        value = float(memory[name]) if letter in "<e<f<d" else int(memory[name])
        return ctypes.create_string_buffer(struct.pack(letter, value), struct.calcsize(letter))
    name, offset, *form = rest
    address = memory[name].data_ptr() + offset
    return _tensor_map(address, tuple(form)) if kind == "map" else ctypes.c_uint64(address)


class _Value(ctypes.Union):
    _fields_ = (("bytes", ctypes.c_char * 64), ("number", ctypes.c_int))


class _Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute: the value stands on a multiple of 8 bytes."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", _Value))


class _Launch(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def _bound(
    function: ctypes.c_void_p, step: dict[str, Any], memory: dict[str, Any], stream: int
) -> Callable[[], None]:
    """Return a launch with everything bound, tensor maps included: only the driver is left."""
    if "product" in step:
        return _product(step, memory, stream)
    held = [_parameter(what, memory) for what in step["arguments"]]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    attributes = (_Attribute * 1)(_Attribute(id=_OVERLAP, value=_Value(number=1)))
    bound = _Launch(
        tuple(step["grid"]), tuple(step["block"]), step["shared"], stream, attributes,
        int(step["overlap"]),
    )  # fmt: skip

    def act() -> None:
        _asked(_driver(), "cuLaunchKernelEx", ctypes.byref(bound), function, pointers, None)
        del held[:]  # what the pointers point at lives until now

    return act


def _product(step: dict[str, Any], memory: dict[str, Any], stream: int) -> Callable[[], None]:
    """Return a product of the library with everything bound."""
    import library_products  # noqa: PLC0415 - is there where a table has such steps

    places = [memory[name].data_ptr() + offset for _, name, offset in step["arguments"]]
    form = library_products.Form(*step["product"])
    bound: Callable[[], None] = library_products.bound(form, places[:4], (*places, 0)[4], stream)
    return bound


def _fits(memory: dict[str, Any], device: torch.device, steps: list[dict[str, Any]]) -> bool:
    """Tell whether chip and addresses are what the kernels were made for."""
    major, minor = torch.cuda.get_device_capability(device)
    tensors = [each for each in memory.values() if isinstance(each, torch.Tensor) and each.dim()]
    wanted = _LIBRARY_ALIGNMENT if any("product" in step for step in steps) else _ALIGNMENT
    even = all(tensor.data_ptr() % wanted == 0 for tensor in tensors)
    return even and f"sm_{major}{minor}a" == ARCH


def launch(memory: dict[str, Any]) -> None:
    """Compute the outputs from the inputs, all by name."""
    key = tuple(memory[name].shape[place] for name, place in KEY)
    found = TABLE.get(key)
    device = memory[OUTPUTS[0]].device
    if found is None or not _fits(memory, device, found["steps"]):
        results = reference.run(*(memory[name] for name in INPUTS))
        results = results if isinstance(results, (tuple, list)) else (results,)
        for name, result in zip(OUTPUTS, results, strict=True):
            memory[name].copy_(result)
        return
    for name, (nbytes, zero) in found["scratch"].items():
        make = torch.zeros if zero else torch.empty
        memory[name] = make(nbytes, dtype=torch.uint8, device=device)
    functions = _functions(key, device.index or 0)
    stream = torch.cuda.current_stream().cuda_stream
    # All arguments first, then all launches: the device does not wait between kernels.
    made = [
        _bound(function, step, memory, stream)
        for function, step in zip(functions, found["steps"], strict=True)
    ]
    for act in made:
        act()
