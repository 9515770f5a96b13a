"""The worker's own kernels, compiled once and launched on one stream."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

ELEMENT_KINDS = {
    "float32": 0, "float16": 1, "bfloat16": 2, "float8_e4m3fn": 3, "float64": 4,
    "int32": 5, "int64": 6, "int16": 7, "int8": 8,
    "bool": 9, "float4_e2m1": 9, "float4_e2m1fn_x2": 9, "float8_e5m2": 10,
}  # fmt: skip
ACTIVATION_KINDS = {"none": 0, "relu": 1, "gelu": 2}
NORMAL, HEAVY, ZERO_ONE, CONSTANT, WHOLE, POSITIVE = 0, 1, 2, 3, 4, 5
BAND_BYTE = 0xA7

REPORT = np.dtype(
    [
        ("not_finite", np.uint64),
        ("mismatched", np.uint64),
        ("over_cap", np.uint64),
        ("nonzero", np.uint64),
        ("differing", np.uint64),
        ("damaged", np.uint64),
        ("digest", np.uint64),
        ("max_error", np.float64),
        ("max_spread", np.float64),
        ("sum_square_error", np.float64),
    ]
)

_THREADS = 256
_MOST_BLOCKS = 132 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a comparison holds errors against; all absolute but ``rtol``."""

    atol: float
    rtol: float
    floor: float
    cap_factor: float
    cap_limit: float


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in device memory."""

    address: int
    count: int
    nbytes: int
    dtype: str


EXACT = Bounds(atol=0.0, rtol=0.0, floor=0.0, cap_factor=1.0, cap_limit=0.0)


class JudgeModule:
    """``judge.cu``, compiled by a thread while others wait for libraries to load.

    Args:
        cupy: The module; a context is current.
        ordinal: The device's number.
    """

    def __init__(self, cupy: Any, ordinal: int) -> None:
        self._cp, self._ordinal = cupy, ordinal
        source = resources.files("kernelarc.bench.cuda").joinpath("judge.cu").read_text()
        self._module = cupy.RawModule(code=source, options=("-std=c++17",))
        self._thread = Thread(target=self._compile, name="kernelarc judge", daemon=True)
        self._thread.start()

    def _compile(self) -> None:
        with contextlib.suppress(Exception):  # whoever asks for a kernel compiles again, and sees
            self._cp.cuda.Device(self._ordinal).use()
            self._module.compile()

    def get(self) -> Any:
        """Wait for it; return CuPy's module."""
        self._thread.join()
        return self._module


class Kernels:
    """Launches the kernels of ``judge.cu``.

    Args:
        cupy: The module.
        stream: All launches go there.
        module: ``JudgeModule.get``.
        slots: How many reports one evaluation may write.
    """

    def __init__(self, cupy: Any, stream: Any, module: Any, slots: int = 96) -> None:
        self._cp, self._stream, self._module = cupy, stream, module
        self._slots = slots
        self._reports = cupy.zeros(slots * REPORT.itemsize, dtype=cupy.uint8)
        self._functions: dict[str, Any] = {}

    def _launch(self, name: str, count: int, arguments: tuple[Any, ...]) -> None:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._module.get_function(name)
        blocks = max(1, min(-(-count // _THREADS), _MOST_BLOCKS))
        function((blocks,), (_THREADS,), arguments, stream=self._stream)

    @cached_property
    def _report_base(self) -> int:
        return int(self._reports.data.ptr)

    def report(self, slot: int) -> int:
        """Return the address of a report."""
        if slot >= self._slots:
            raise ValueError(f"there are {self._slots} reports, no number {slot}")
        return self._report_base + slot * REPORT.itemsize

    def clear(self) -> None:
        """Zero all reports."""
        self._reports.data.memset_async(0, self._reports.nbytes, self._stream)

    def read(self) -> NDArray[np.void]:
        """Wait for the stream and return all reports."""
        raw = self._reports.get(stream=self._stream)
        self._stream.synchronize()
        held: NDArray[np.void] = raw.view(REPORT)
        return held

    def fill(
        self,
        tensor: Tensor,
        *,
        seed: int,
        how: int = NORMAL,
        scale: float = 1.0,
        k_stride: int = 1,
        k_extent: int = 1,
        tail: int = 0,
    ) -> None:
        """Fill a tensor from a counter-based stream: equal arguments, equal bits."""
        arguments = (
            np.uint64(tensor.address),
            np.int64(tensor.count),
            np.int32(ELEMENT_KINDS[tensor.dtype]),
            np.uint64(seed),
            np.int32(how),
            np.float32(scale),
            np.int64(k_stride),
            np.int64(k_extent),
            np.int32(tail),
        )
        self._launch("fill", tensor.count, arguments)

    def upload(self, tensor: Tensor, values: NDArray[Any]) -> None:
        """Copy values of the host into a tensor; they have its bytes."""
        held = np.ascontiguousarray(values)
        if held.nbytes != tensor.nbytes:
            raise ValueError(f"{held.nbytes} bytes do not fill a tensor of {tensor.nbytes}")
        self._stream.synchronize()
        self._cp.cuda.runtime.memcpy(tensor.address, held.ctypes.data, held.nbytes, 1)

    def widen(self, tensor: Tensor, out: int) -> None:
        """Copy a tensor into float64."""
        kind = np.int32(ELEMENT_KINDS[tensor.dtype])
        arguments = (np.uint64(tensor.address), np.uint64(out), np.int64(tensor.count), kind)
        self._launch("widen", tensor.count, arguments)

    def finish(
        self,
        product: int,
        count: int,
        columns: int,
        dtype: str,
        *,
        residual: int,
        bias: int,
        scale: float,
        activation: str,
    ) -> None:
        """Turn the exact product into the reference, in place."""
        arguments = (
            np.uint64(product),
            np.uint64(residual),
            np.uint64(bias),
            np.int64(count),
            np.int64(columns),
            np.int32(ELEMENT_KINDS[dtype]),
            np.float64(scale),
            np.int32(ACTIVATION_KINDS[activation]),
        )
        self._launch("finish", count, arguments)

    def rounded(self, values: int, count: int, dtype: str) -> None:
        """Round a float64 tensor to a type's values, in place."""
        kind = np.int32(ELEMENT_KINDS[dtype])
        self._launch("rounded", count, (np.uint64(values), np.int64(count), kind))

    def extent(self, values: int, count: int, out: int) -> None:
        """Add the sum of squares and the peak of a float64 tensor into two doubles."""
        self._launch("extent", count, (np.uint64(values), np.int64(count), np.uint64(out)))

    def uneven(self, values: int, count: int, out: int) -> None:
        """Add into two doubles how many values are no whole numbers, and the peak of the others."""
        self._launch("uneven", count, (np.uint64(values), np.int64(count), np.uint64(out)))

    def compare(
        self,
        out: Tensor,
        reference: int,
        bounds: Bounds,
        slot: int,
        *,
        negative_inf: bool = False,
    ) -> None:
        """Compare an output with its float64 reference into a report.

        With ``negative_inf`` the output must be negative infinity exactly where the reference is.
        """
        arguments = (
            np.uint64(out.address),
            np.uint64(reference),
            np.int64(out.count),
            np.int32(ELEMENT_KINDS[out.dtype]),
            np.float64(bounds.atol),
            np.float64(bounds.rtol),
            np.float64(bounds.floor),
            np.float64(bounds.cap_factor),
            np.float64(bounds.cap_limit),
            np.int32(negative_inf),
            np.uint64(self.report(slot)),
        )
        self._launch("compare", out.count, arguments)

    def differing(self, left: int, right: int, nbytes: int, slot: int) -> None:
        """Count the half-words in which two buffers differ."""
        count = nbytes // 2
        arguments = (np.uint64(left), np.uint64(right), np.int64(count))
        self._launch("differing", count, (*arguments, np.uint64(self.report(slot))))

    def digest(self, tensor: Tensor, salt: int, slot: int) -> None:
        """Add a tensor's digest to a report."""
        count = tensor.nbytes // 4
        arguments = (np.uint64(tensor.address), np.int64(count), np.uint64(salt))
        self._launch("digest", count, (*arguments, np.uint64(self.report(slot))))

    def bands(self, addresses: int, count: int, nbytes: int, slot: int) -> None:
        """Count overwritten bytes in ``count`` guard bands whose addresses lie on the device."""
        function = self._module.get_function("bands")
        arguments = (np.uint64(addresses), np.int32(nbytes), np.uint64(self.report(slot)))
        function((count,), (_THREADS,), arguments, stream=self._stream)

    def sweep(self, address: int, nbytes: int) -> None:
        """Read a buffer, to evict everything else from the cache."""
        count = nbytes // 16
        self._launch("sweep", count, (np.uint64(address), np.int64(count), np.uint64(0)))
