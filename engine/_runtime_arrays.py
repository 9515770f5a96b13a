"""Arrays of CuPy, of torch, and whatever speaks DLPack or ``__cuda_array_interface__``.

Nothing is copied: an array is looked at (address, shape, strides, type) and its memory is used as
it lies. No library is imported here that its user has not imported already, CuPy aside.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

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


class Kind(ABC):
    """One library's arrays. ``key`` and ``address`` are on the way of every call."""

    @abstractmethod
    def key(self, array: Any) -> Hashable:
        """Return all that a plan depends on: equal keys, equal layouts."""

    def keys(self, a: Any, b: Any, out: Any, residual: Any) -> Hashable:
        """Return all that a plan depends on of a call's arrays.

        Raises:
            InputError: They are not of one library.
        """
        key = self.key
        try:
            return (
                key(a),
                key(b),
                None if out is None else key(out),
                None if residual is None else True if residual is out else key(residual),
            )
        except AttributeError:
            names = dict.fromkeys(
                f"{type(x).__module__}.{type(x).__name__}"
                for x in (a, b, out, residual)
                if x is not None
            )
            raise InputError(f"arrays must be of one library, not {', '.join(names)}") from None

    @abstractmethod
    def address(self, array: Any) -> int:
        """Return the address of the first element."""

    @abstractmethod
    def layout(self, array: Any) -> Layout:
        """Look at an array; slow."""

    @abstractmethod
    def stream(self, array: Any) -> int:
        """Return the stream that the array's library uses now."""

    @abstractmethod
    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        """Make an output on the array's device."""


class CupyKind(Kind):
    """Arrays of CuPy."""

    def __init__(self) -> None:
        self.cupy = cupy()
        self._current = self.cupy.cuda.get_current_stream

    def key(self, array: Any) -> Hashable:
        return array.shape, array.strides, array.dtype.num, array.data.device_id

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def layout(self, array: Any) -> Layout:
        size = array.dtype.itemsize
        return Layout(
            shape=tuple(array.shape),
            strides=tuple(step // size for step in array.strides),
            dtype=str(array.dtype),
            device=int(array.data.device_id),
        )

    def stream(self, array: Any) -> int:
        return int(self._current().ptr)

    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        wanted = like.dtype if str(like.dtype) == dtype else dtype
        return self.cupy.empty(tuple(shape), dtype=wanted)


class TorchKind(Kind):
    """Tensors of torch; no gradient is recorded."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        raw = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)
        self._raw: Callable[[int], int] = raw or self._public

    def _public(self, device: int) -> int:
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def key(self, array: Any) -> Hashable:
        return array.shape, array.stride(), array.dtype, array.get_device()

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

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

    def stream(self, array: Any) -> int:
        return self._raw(array.get_device())

    def empty(self, like: Any, shape: Sequence[int], dtype: str) -> Any:
        return self._torch.empty(
            tuple(shape), dtype=getattr(self._torch, dtype), device=like.device
        )


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
