"""Arrays of CuPy, of torch, and whatever speaks DLPack or ``__cuda_array_interface__``.

Nothing is copied: an array is looked at (address, shape, strides, type) and its memory is used as
it lies. No library is imported here that its user has not imported already, CuPy aside.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from kernelarc.genomes import InputError, MissingPartError

_ON_GPU = (2, 13)
"""DLPack's numbers of device memory and of managed memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How an array lies in memory.

    Attributes:
        shape: Of 2 or more axes (1 for a bias).
        strides: In elements.
        dtype: Schema dtype name.
        device: Number of the GPU.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int

    def packed(self, *, transposed: bool) -> bool:
        """Tell whether the last two axes are without gaps, the earlier ones packed outside."""
        *outer, rows, columns = self.shape
        inner = (1, rows) if transposed else (columns, 1)
        steps, step = [], rows * columns
        for extent in reversed(outer):
            steps.append(step)
            step *= extent
        wanted = (*reversed(steps), *inner)
        lengths = zip(self.shape, self.strides, wanted, strict=True)
        return all(extent == 1 or have == want for extent, have, want in lengths)


@dataclass(slots=True)
class Facts:
    """What the arrays of a call must be like for a plan to fit them, in their library's terms.

    Attributes:
        shape: Of output and residual.
        dtype: Of the factors.
        out_dtype: Of output and residual.
        rows: Whether A lies row after row; where not, ``strides_a`` says how.
        columns: Whether B lies column after column (a stored weight, transposed).
    """

    shape: tuple[int, ...]
    dtype: Any
    out_dtype: Any
    device: int
    rows: bool
    strides_a: tuple[int, ...]
    columns: bool
    strides_b: tuple[int, ...]


Addresses: TypeAlias = "tuple[int, int, int, int]"
"""Of A, B, residual (or output), output."""


class Kind(ABC):
    """One library's arrays.

    Attributes:
        key: Takes an array; returns all of it that a plan depends on.
        address: Takes an array; returns the address of its first element.
        stream: Takes a device's number; returns the stream that the library uses there now.
    """

    key: Callable[[Any], Hashable]
    address: Callable[[Any], int]
    stream: Callable[[int], int]

    @abstractmethod
    def facts(self, a: Any, b: Any, out: Any) -> Facts:
        """Return what other arrays must be like to be multiplied as these are."""

    @abstractmethod
    def match(self, facts: Facts, a: Any, b: Any, out: Any, residual: Any) -> Addresses | None:
        """Return the addresses of arrays that are as the facts say, else None.

        On the way of every call, so each array is asked as little as possible. Shapes of A and B
        are known to fit.
        """

    @abstractmethod
    def layout(self, array: Any) -> Layout:
        """Look at an array; slow."""

    @abstractmethod
    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        """Make an output on the array's device."""


class CupyKind(Kind):
    """Arrays of CuPy."""

    def __init__(self) -> None:
        self.cupy = cupy()
        self.key = attrgetter("shape", "strides", "dtype.num", "data.device_id")
        self.address = attrgetter("data.ptr")
        current = self.cupy.cuda.get_current_stream
        self.stream = lambda device: current(device).ptr

    def facts(self, a: Any, b: Any, out: Any) -> Facts:
        return Facts(
            shape=out.shape,
            dtype=a.dtype,
            out_dtype=out.dtype,
            device=a.data.device_id,
            rows=a._c_contiguous,
            strides_a=a.strides,
            columns=b._f_contiguous,
            strides_b=b.strides,
        )

    def match(self, facts: Facts, a: Any, b: Any, out: Any, residual: Any) -> Addresses | None:
        held, kind = a.data, facts.out_dtype
        if (
            held.device_id != facts.device
            or a.dtype is not facts.dtype
            or b.dtype is not facts.dtype
            or out.dtype is not kind
            or out.shape != facts.shape
            or not out._c_contiguous
            or not (a._c_contiguous if facts.rows else a.strides == facts.strides_a)
            or not (b._f_contiguous if facts.columns else b.strides == facts.strides_b)
        ):
            return None
        target = out.data.ptr
        if residual is None or residual is out:
            return held.ptr, b.data.ptr, target, target
        if (
            residual.dtype is not kind
            or residual.shape != facts.shape
            or not residual._c_contiguous
        ):
            return None
        return held.ptr, b.data.ptr, residual.data.ptr, target

    def layout(self, array: Any) -> Layout:
        size = array.dtype.itemsize
        return Layout(
            shape=tuple(array.shape),
            strides=tuple(step // size for step in array.strides),
            dtype=str(array.dtype),
            device=int(array.data.device_id),
        )

    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        wanted = like.dtype if str(like.dtype) == dtype else dtype
        return self.cupy.empty(tuple(shape), dtype=wanted)


class TorchKind(Kind):
    """Tensors of torch; no gradient is recorded."""

    def __init__(self) -> None:
        torch = self._torch = sys.modules["torch"]
        self.key = lambda array: (array.shape, array.stride(), array.dtype, array.get_device())
        self.address = torch.Tensor.data_ptr
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream = raw or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))

    def facts(self, a: Any, b: Any, out: Any) -> Facts:
        return Facts(
            shape=tuple(out.shape),
            dtype=a.dtype,
            out_dtype=out.dtype,
            device=a.get_device(),
            rows=a.is_contiguous(),
            strides_a=a.stride(),
            columns=False,
            strides_b=b.stride(),
        )

    def match(self, facts: Facts, a: Any, b: Any, out: Any, residual: Any) -> Addresses | None:
        kind = facts.out_dtype
        if (
            a.get_device() != facts.device
            or a.dtype is not facts.dtype
            or b.dtype is not facts.dtype
            or out.dtype is not kind
            or out.shape != facts.shape
            or not out.is_contiguous()
            or not (a.is_contiguous() if facts.rows else a.stride() == facts.strides_a)
            or b.stride() != facts.strides_b
        ):
            return None
        target = out.data_ptr()
        if residual is None or residual is out:
            return a.data_ptr(), b.data_ptr(), target, target
        if (
            residual.dtype is not kind
            or residual.shape != facts.shape
            or not residual.is_contiguous()
        ):
            return None
        return a.data_ptr(), b.data_ptr(), residual.data_ptr(), target

    def layout(self, array: Any) -> Layout:
        if not array.is_cuda:
            raise InputError(
                f"a tensor on {array.device} cannot be multiplied here: move it to cuda"
            )
        return Layout(
            shape=tuple(array.shape),
            strides=tuple(array.stride()),
            dtype=str(array.dtype).removeprefix("torch."),
            device=int(array.get_device()),
        )

    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        kind = getattr(self._torch, dtype)
        return self._torch.empty(tuple(shape), dtype=kind, device=like.device)


def one_library(a: Any, b: Any, *others: Any) -> InputError:
    """Return the error that names a missing factor, or the libraries whose arrays were mixed."""
    if a is None or b is None:
        return InputError("a and b are the factors: neither may be None")
    given = [array for array in (a, b, *others) if array is not None]
    names = dict.fromkeys(f"{type(x).__module__}.{type(x).__name__}" for x in given)
    return InputError(f"arrays must be of one library, not {', '.join(names)}")


def cupy() -> Any:
    """Import CuPy.

    Raises:
        MissingPartError: It is not installed or does not work here.
    """
    try:
        import cupy as found  # noqa: PLC0415 - maps CUDA's libraries
    except Exception as error:
        line = str(error).splitlines()[0]
        raise MissingPartError(f"CuPy is needed: install kernelarc[cuda] ({line})") from None
    return found


def as_cupy(array: Any) -> Any:
    """Wrap an array of another library, without a copy.

    Raises:
        InputError: It is no array on a GPU.
    """
    found = cupy()
    try:
        if hasattr(array, "__cuda_array_interface__"):
            return found.asarray(array)
        if hasattr(array, "__dlpack__") and array.__dlpack_device__()[0] in _ON_GPU:
            return found.from_dlpack(array)
    except Exception as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"a {type(array).__name__} cannot be used as it lies on the GPU: {line}"
        ) from None
    raise InputError(
        f"a {type(array).__name__} is no array on a GPU: CuPy arrays, torch tensors and whatever "
        f"has __dlpack__ or __cuda_array_interface__ are"
    )
