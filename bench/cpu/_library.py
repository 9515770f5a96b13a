"""A kernel loaded into this process."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeAlias

from kernelarc.bench.cpu._messages import Kernel
from kernelarc.bench.cpu._refusal import LAUNCH_FAILED, OUT_OF_MEMORY, Refusal
from kernelarc.bench.cpu._stage import BufferSet
from kernelarc.genomes import Status

Arguments: TypeAlias = "tuple[int | None, ...]"
CANNOT_LOAD = "library cannot be loaded"
_OUT_OF_MEMORY_CODE = 12


class LoadedKernel:
    """A function of a shared library. Close it: its static memory is freed only then.

    Attributes:
        name: Of the genome or contender.
    """

    def __init__(self, kernel: Kernel, axes: Sequence[str]) -> None:
        try:
            self._library = ctypes.CDLL(kernel.path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            function = getattr(self._library, kernel.symbol)
        except (OSError, AttributeError) as error:
            text = str(error).splitlines()[0]
            raise Refusal(Status.LAUNCH_ERROR, CANNOT_LOAD, text) from None
        function.restype = ctypes.c_int
        function.argtypes = [
            ctypes.c_int64 if name in axes else ctypes.c_void_p for name in kernel.arguments
        ]
        self._function: Callable[..., Any] = function
        self._names = kernel.arguments
        self.name = kernel.name

    def arguments(self, buffers: BufferSet) -> Arguments:
        """Return what the function is called with for these buffers."""
        return buffers.arguments(self._names)

    def run(self, calls: Sequence[Arguments]) -> float:
        """Call once for each of ``calls``; return the seconds from first to last.

        Raises:
            Refusal: A call returned something else than 0.
        """
        function, code = self._function, 0
        started = perf_counter_ns()
        for arguments in calls:
            code |= function(*arguments)
        seconds = (perf_counter_ns() - started) * 1e-9
        if code:
            failure = OUT_OF_MEMORY if code == _OUT_OF_MEMORY_CODE else LAUNCH_FAILED
            message = f"returned {code} ({os.strerror(code) if code > 0 else 'no error number'})"
            raise Refusal(Status.LAUNCH_ERROR, failure, message)
        return seconds

    def close(self) -> None:
        """Unload the library."""
        _ctypes.dlclose(self._library._handle)
