"""One call of a kernel as values: buffers, views into them, numbers and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.tuning._travel import CannotTravelError
from kernelarc.genomes.triton import TRITON_TYPES, element_bytes

MOST_CARRIED_BYTES = 256 << 20
_ALIGNED = 16
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True, repr=False)
class TypeConstant:
    """One of Triton's types as a constant of a kernel; written down as it is."""

    name: str

    def __repr__(self) -> str:
        return f"tl.dtype({self.name!r})"


Plain: TypeAlias = "bool | int | float | str | TypeConstant | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A tensor argument: where it starts in a buffer.

    Attributes:
        buffer: The buffer's name.
        offset: In elements.
    """

    buffer: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A piece of memory that arguments point into.

    Attributes:
        dtype: Schema dtype.
        elements: How many.
        values: What stands there, where random numbers would not do; None elsewhere.
        zeroed: Whether it is set to zero before each run.
    """

    name: str
    dtype: str
    elements: int
    values: NDArray[Any] | None = None
    zeroed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """What a kernel was called with.

    Attributes:
        buffers: In the order of the arguments that first point into them.
        views: By parameter.
        plain: Numbers and constants by parameter, and the compiler's options that were given.
    """

    buffers: tuple[Buffer, ...]
    views: Mapping[str, View]
    plain: Mapping[str, Plain]


@dataclass(frozen=True, slots=True)
class _Range:
    parameter: str
    dtype: str
    start: int
    end: int


def is_tensor(value: Any) -> bool:
    """Tell whether an argument is a tensor on a device."""
    return hasattr(value, "data_ptr") and hasattr(value, "stride")


def captured(named: Mapping[str, Any], *, zeroed: Sequence[str] = ()) -> CapturedCall:
    """Return a call as values.

    Whole-number tensors travel with their values: they are indices, offsets or lengths, and
    random ones would point anywhere. Floating-point tensors are made anew where they arrive.

    Args:
        named: Arguments by parameter, genes left out.
        zeroed: Parameters whose tensors are zero before each run.

    Raises:
        CannotTravelError: An argument is of a kind that exists in this process only.
    """
    ranges = [_range_of(name, value) for name, value in named.items() if is_tensor(value)]
    groups = _grouped(ranges)
    views: dict[str, View] = {}
    buffers: list[Buffer] = []
    for group in groups:
        start, size = min(r.start for r in group), element_bytes(group[0].dtype)
        name = group[0].parameter
        for each in group:
            views[each.parameter] = View(buffer=name, offset=(each.start - start) // size)
        elements = (max(r.end for r in group) - start) // size
        made = Buffer(name=name, dtype=group[0].dtype, elements=elements)
        buffers.append(_valued(made, group, named, zeroed))
    plain = {name: _plain(name, value) for name, value in named.items() if name not in views}
    return CapturedCall(buffers=tuple(buffers), views=views, plain=plain)


def _plain(name: str, value: Any) -> Plain:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton."):
        return TypeConstant(value.name)
    if hasattr(value, "__index__"):
        return int(value.__index__())
    raise CannotTravelError(f"argument {name!r} is a {type(value).__name__}")


def _range_of(name: str, tensor: Any) -> _Range:
    dtype = str(tensor.dtype).rpartition(".")[2]
    if dtype not in TRITON_TYPES:
        raise CannotTravelError(f"argument {name!r} has the dtype {dtype}")
    strides = [int(step) for step in tensor.stride()]
    extents = [int(extent) for extent in tensor.shape]
    if any(step < 0 for step in strides) or 0 in extents:
        raise CannotTravelError(f"argument {name!r} is empty or runs backwards")
    span = 1 + sum((e - 1) * s for e, s in zip(extents, strides, strict=True))
    start = int(tensor.data_ptr())
    return _Range(name, dtype, start, start + span * element_bytes(dtype))


def _grouped(ranges: Sequence[_Range]) -> list[list[_Range]]:
    """Return arguments by the memory they share, in the order of the first of each."""
    groups: list[list[_Range]] = []
    for each in sorted(ranges, key=lambda r: r.start):
        if groups and each.start < max(r.end for r in groups[-1]):
            groups[-1].append(each)
        else:
            groups.append([each])
    for group in groups:
        if len({r.dtype for r in group}) > 1:
            names = " and ".join(r.parameter for r in group)
            raise CannotTravelError(f"{names} share memory as different types")
        if any(r.start % _ALIGNED for r in group):
            raise CannotTravelError(f"argument {group[0].parameter!r} is not 16-byte aligned")
    order = {r.parameter: place for place, r in enumerate(ranges)}
    ordered = [sorted(group, key=lambda r: order[r.parameter]) for group in groups]
    return sorted(ordered, key=lambda group: order[group[0].parameter])


def _valued(
    buffer: Buffer, group: Sequence[_Range], named: Mapping[str, Any], zeroed: Sequence[str]
) -> Buffer:
    if any(r.parameter in zeroed for r in group):
        return replace(buffer, zeroed=True)
    if "float" in buffer.dtype:
        return buffer
    nbytes = buffer.elements * element_bytes(buffer.dtype)
    if nbytes > MOST_CARRIED_BYTES:
        raise CannotTravelError(
            f"argument {buffer.name!r} holds {nbytes >> 20} MiB of whole numbers, whose values "
            f"would have to travel"
        )
    values = np.zeros(buffer.elements, dtype=np.dtype(buffer.dtype))
    start, size = min(r.start for r in group), element_bytes(buffer.dtype)
    for each in group:
        held = _host(named[each.parameter], (each.end - each.start) // size)
        first = (each.start - start) // size
        values[first : first + held.size] = held
    return replace(buffer, values=values)


def _host(tensor: Any, span: int) -> NDArray[Any]:
    """Return the memory between a tensor's first and last element, on the host."""
    flat = tensor.as_strided((span,), (1,))
    return np.asarray(flat.detach().cpu().numpy()).reshape(-1)
