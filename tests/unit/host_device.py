"""A device whose memory is the host's and whose kernels are NumPy's: for the judge's own logic.

Everything goes through one stream that can be captured into a graph and replayed; a launch takes
ten microseconds, whatever it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelarc.bench.cuda._clock import Call, Segment, Span
from kernelarc.bench.cuda._kernels import (
    BAND_BYTE,
    CONSTANT,
    POSITIVE,
    REPORT,
    WHOLE,
    ZERO_ONE,
    Bounds,
    Tensor,
)

LAUNCH_US = 10.0
L2_BYTES = 1 << 17


def at(address: int, nbytes: int) -> Any:
    """Return bytes of memory as an array over them."""
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, dtype=np.uint8)


def floats(tensor: Tensor) -> Any:
    """Return a float32 tensor's memory."""
    assert tensor.dtype == "float32"
    return at(tensor.address, tensor.nbytes).view(np.float32)


class Stream:
    """Runs at once, or notes down while it is captured."""

    ptr = 1

    def __init__(self) -> None:
        self.noted: list[Call] | None = None
        self.launched = 0

    def do(self, work: Call) -> None:
        """Run or note down."""
        if self.noted is None:
            work()
        else:
            self.noted.append(work)

    def launch(self, work: Call) -> None:
        """Run or note down a launch, which takes time."""

        def counted() -> None:
            self.launched += 1
            work()

        self.do(counted)

    def synchronize(self) -> None:
        """Nothing is ever pending."""


class Array(np.ndarray[Any, Any]):
    """An array that tells its address as CuPy's do."""

    @property
    def data(self) -> Any:
        address = int(self.ctypes.data)
        nbytes = self.nbytes
        return SimpleNamespace(
            ptr=address, memset_async=lambda value, count, stream: at(address, nbytes).fill(value)
        )

    def get(self, stream: Any = None) -> Any:
        """Return a copy on the host."""
        return np.array(self)


class Memory:
    """What stands for CuPy."""

    ndarray, float64, uint64, uint8 = Array, np.float64, np.uint64, np.uint8

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        runtime = SimpleNamespace(
            memsetAsync=self._memset,
            memcpy=self._memcpy,
            memcpyAsync=self._memcpy,
            deviceSynchronize=lambda: None,
            streamIsCapturing=lambda ptr: stream.noted is not None,
        )
        self.cuda = SimpleNamespace(runtime=runtime, alloc=self._alloc)

    def _memset(self, address: int, value: int, nbytes: int, stream: int) -> None:
        self._stream.do(lambda: at(address, nbytes).fill(value))

    def _memcpy(self, to: int, source: int, nbytes: int, kind: int, stream: int = 0) -> None:
        def copy() -> None:
            at(to, nbytes)[:] = at(source, nbytes)

        self._stream.do(copy)

    @staticmethod
    def _alloc(nbytes: int) -> Any:
        held = np.zeros(nbytes + 64, dtype=np.uint8)
        return SimpleNamespace(ptr=int(held.ctypes.data), held=held)

    @staticmethod
    def array(values: Any, dtype: Any = None) -> Array:
        return np.array(values, dtype=dtype).view(Array)

    @staticmethod
    def zeros(count: Any, dtype: Any = None) -> Array:
        return np.zeros(count, dtype=dtype).view(Array)

    @staticmethod
    def empty(shape: Any, dtype: Any = None) -> Array:
        return np.empty(shape, dtype=dtype).view(Array)

    @staticmethod
    def asarray(values: Any, dtype: Any = None) -> Array:
        return np.asarray(values, dtype=dtype).view(Array)

    @staticmethod
    def ascontiguousarray(values: Any) -> Array:
        return np.ascontiguousarray(values).view(Array)


class Kernels:
    """The judge's kernels, in NumPy; float32 only."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._reports = np.zeros(96, dtype=REPORT)

    def clear(self) -> None:
        self._reports[:] = 0

    def read(self) -> Any:
        return self._reports.copy()

    def upload(self, tensor: Tensor, values: Any) -> None:
        at(tensor.address, tensor.nbytes)[:] = np.ascontiguousarray(values).view(np.uint8).ravel()

    def fill(
        self, tensor: Tensor, *, seed: int, how: int = 0, scale: float = 1.0, **layout: int
    ) -> None:
        rng = np.random.default_rng(seed)
        if how == CONSTANT:
            values = np.full(tensor.count, scale)
        elif how == ZERO_ONE:
            values = (rng.random(tensor.count) < scale).astype(float)
        elif how == WHOLE:
            values = rng.integers(0, int(scale), tensor.count).astype(float)
        else:
            values = rng.standard_normal(tensor.count) * scale
            values = np.abs(values) + 0.1 if how == POSITIVE else values
        floats(tensor)[:] = values

    def widen(self, tensor: Tensor, out: int) -> None:
        at(out, 8 * tensor.count).view(np.float64)[:] = floats(tensor)

    def rounded(self, values: int, count: int, dtype: str) -> None:
        held = at(values, 8 * count).view(np.float64)
        held[:] = held.astype(np.float32)

    def extent(self, values: int, count: int, out: int) -> None:
        held = at(values, 8 * count).view(np.float64)
        at(out, 16).view(np.float64)[:] += [float((held**2).sum()), float(np.abs(held).max())]

    def uneven(self, values: int, count: int, out: int) -> None:
        held = at(values, 8 * count).view(np.float64)
        whole = np.isfinite(held) & (np.rint(held) == held)
        peak = float(np.abs(held[whole]).max(initial=0.0))
        at(out, 16).view(np.float64)[:] = [float((~whole).sum()), peak]

    def compare(
        self, out: Tensor, reference: int, bounds: Bounds, slot: int, *, negative_inf: bool = False
    ) -> None:
        x, y = floats(out).astype(float), at(reference, 8 * out.count).view(np.float64)
        report, finite = self._reports[slot], np.isfinite(x)
        error = np.where(finite, np.abs(x - y), 0.0)
        bound = bounds.atol + bounds.rtol * np.abs(y)
        cap = np.minimum(bounds.cap_factor * np.maximum(bound, bounds.floor), bounds.cap_limit)
        report["not_finite"] += int((~finite).sum())
        report["mismatched"] += int((error > bound).sum())
        report["over_cap"] += int((error > cap).sum())
        report["nonzero"] += int((x != 0).sum())
        report["max_error"] = max(report["max_error"], float(error.max()))
        report["max_spread"] = float(np.nanmax(np.abs(x - x[0]))) if finite[0] else 1.0
        report["sum_square_error"] += float((error**2).sum())

    def differing(self, left: int, right: int, nbytes: int, slot: int) -> None:
        self._reports[slot]["differing"] += int((at(left, nbytes) != at(right, nbytes)).sum())

    def digest(self, tensor: Tensor, salt: int, slot: int) -> None:
        digest = hash((salt, at(tensor.address, tensor.nbytes).tobytes())) & 0xFFFFFFFF
        self._reports[slot]["digest"] += np.uint64(digest)

    def bands(self, addresses: int, count: int, nbytes: int, slot: int) -> None:
        for address in at(addresses, 8 * count).view(np.uint64):
            damaged = (at(int(address), nbytes) != BAND_BYTE).sum()
            self._reports[slot]["damaged"] += np.uint64(damaged)

    def sweep(self, address: int, nbytes: int) -> None:
        """There is no cache."""


class Graph:
    """Noted work, replayed."""

    def __init__(self, stream: Stream, segments: Sequence[tuple[list[Call], list[Call]]]) -> None:
        self._stream, self._segments = stream, segments
        self.calls = 0

    def replay(self) -> Span:
        timed = 0
        for before, work in self._segments:
            for step in before:
                step()
            begun = self._stream.launched
            for step in work:
                step()
            timed += self._stream.launched - begun
        return Span(LAUNCH_US * timed / max(self.calls, 1), escaped=False)


class Clock:
    """Counts launches for time."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def once(self, call: Call, runway: Call | None = None) -> float:
        begun = self._stream.launched
        call()
        return LAUNCH_US * (self._stream.launched - begun)

    def graph(self, segments: Sequence[Segment]) -> Graph:
        made = [(self._noted(s.before), self._noted(s.calls)) for s in segments]
        graph = Graph(self._stream, made)
        graph.calls = sum(len(s.calls) for s in segments)
        return graph

    def _noted(self, calls: Sequence[Call]) -> list[Call]:
        self._stream.noted = []
        for call in calls:
            call()
        noted, self._stream.noted = self._stream.noted, None
        return noted
