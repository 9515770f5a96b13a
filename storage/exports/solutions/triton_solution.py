"""Triton kernels, launched as it was found best for exact shapes.

A shape that the table does not hold runs the reference. Nothing is remembered but compiled kernels,
by shape; every call launches the same kernels in the same order on the current stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import reference
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# -- names and table: filled in by the export --
MODULES: dict[str, Any] = {}
INPUTS: tuple[str, ...] = ()
OUTPUTS: tuple[str, ...] = ()
KEY: tuple[tuple[str, int], ...] = ()
TABLE: dict[tuple[int, ...], dict[str, Any]] = {}
# -- end --

_UNUSED = tl  # constants of the table may be types of Triton
_RAW = ("float4_e2m1", "float4_e2m1fn_x2")
_ALIGNMENT = 16
_compiled: dict[tuple[tuple[int, ...], int], Any] = {}


def _scratch(found: dict[str, Any], device: torch.device) -> dict[str, torch.Tensor]:
    made = {}
    for name, (nbytes, zero) in found["scratch"].items():
        make = torch.zeros if zero else torch.empty
        made[name] = make(nbytes, dtype=torch.uint8, device=device)
    return made


def _typed(buffer: torch.Tensor, offset: int, dtype: str) -> torch.Tensor:
    """Return a buffer from an offset on as elements of a type."""
    kind = torch.uint8 if dtype in _RAW else getattr(torch, dtype)
    return buffer.reshape(-1).view(torch.uint8)[offset:].view(kind)


def _value(what: Any, memory: dict[str, Any]) -> Any:
    """Return one argument: a number, a pointer, a descriptor, or an input that is a number."""
    if not isinstance(what, tuple):
        return what
    kind, name, offset, dtype, *form = what
    held = memory[name]
    if kind == "number":
        return held
    if kind == "pointer":
        plain = dtype not in _RAW and dtype == str(held.dtype).removeprefix("torch.")
        return held if plain and not offset else _typed(held, offset, dtype)
    shape, strides, block, padding = form
    return TensorDescriptor(
        _typed(held, offset, dtype), list(shape), list(strides), list(block), padding
    )


def _bare(value: Any) -> Any:
    """Return a tensor's address: a launcher that is handed one asks the driver nothing."""
    return value.data_ptr() if isinstance(value, torch.Tensor) else value


def _prepared(
    key: tuple[int, ...], place: int, step: dict[str, Any], memory: dict[str, Any], even: bool
) -> list[Callable[[], Any]]:
    """Return what a step does, with everything bound: only launches are left."""
    made: list[Callable[[], Any]] = []
    for name, offset, nbytes in step["clears"]:
        part = memory[name].reshape(-1).view(torch.uint8)[offset : offset + nbytes]
        made.append(part.zero_)
    values = {name: _value(what, memory) for name, what in step["arguments"].items()}
    ready = _compiled.get((key, place)) if even else None
    if ready is not None:
        constants = step["constants"]
        ordered = [_bare(values[n]) if n in values else constants[n] for n in step["order"]]
        stream = torch.cuda.current_stream().cuda_stream
        return [*made, partial(ready[step["grid"]], *ordered, stream=stream)]
    return [*made, partial(_first, (key, place) if even else None, step, values)]


def _first(
    kept: tuple[tuple[int, ...], int] | None, step: dict[str, Any], values: dict[str, Any]
) -> None:
    """Compile a kernel, or find it compiled, and launch it."""
    module, _, name = step["kernel"].partition(".")
    kernel = getattr(MODULES[module], name)
    made = kernel[step["grid"]](**values, **step["constants"], **step["options"])
    if kept is not None and made is not None:
        _compiled[kept] = made


def launch(memory: dict[str, Any]) -> None:
    """Compute the outputs from the inputs, all by name."""
    key = tuple(memory[name].shape[place] for name, place in KEY)
    found = TABLE.get(key)
    if found is None:
        results = reference.run(*(memory[name] for name in INPUTS))
        results = results if isinstance(results, (tuple, list)) else (results,)
        for name, result in zip(OUTPUTS, results, strict=True):
            memory[name].copy_(result)
        return
    tensors = [value for value in memory.values() if isinstance(value, torch.Tensor)]
    even = all(tensor.data_ptr() % _ALIGNMENT == 0 for tensor in tensors)
    memory.update(_scratch(found, tensors[0].device))
    # All arguments first, then all launches: the device does not wait between kernels.
    made = [
        act
        for place, step in enumerate(found["steps"])
        for act in _prepared(key, place, step, memory, even)
    ]
    for act in made:
        act()
