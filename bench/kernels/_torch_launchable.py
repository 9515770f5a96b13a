"""The reference in torch, or another form of it: a baseline among what is launched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernelarc.bench._reference import said
from kernelarc.bench.cuda._clock import Call
from kernelarc.bench.kernels._launchable import Launchable
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._oracle import Oracle
from kernelarc.bench.kernels._program import LaunchRefusedError
from kernelarc.bench.kernels._torch_calls import is_compiled

_SCARCE = 0.5  # of the device's memory: a graph's pool may need as much as a call did


class TorchLaunchable(Launchable):
    """Torch on tensors of their own types.

    Its outputs are torch's own; ``land`` copies them to where they can be judged.

    Args:
        oracle: Of the job, over torch.
        stream: Where it is captured and replayed.
        name: Which of the oracle's calls.

    Raises:
        LaunchRefusedError: The reference is not written for torch, or there is no such call.
    """

    checked = False

    def __init__(self, oracle: Oracle, stream: Any, name: str) -> None:
        self.aliases: dict[str, str] = {}
        if oracle.torch is None:
            raise LaunchRefusedError("the reference is not written for torch")
        self._oracle, self._torch = oracle, oracle.torch
        self._compiled = is_compiled(name)
        try:
            self._run = oracle.calls().get(name)
        except Exception as error:
            raise LaunchRefusedError(said(error)) from None
        self._stream = self._torch.cuda.ExternalStream(stream.ptr)
        self._pools: list[Any] = []
        self._captures: bool | None = None

    def call(self, buffers: TensorSet) -> Call:
        """Return a call on torch tensors over the set's memory.

        The call raises ``LaunchRefusedError`` where torch does not run on them.
        """
        arguments = self._arguments(buffers)

        def call() -> None:
            self._called(arguments)

        return call

    def land(self, buffers: TensorSet) -> None:
        """Do the job on a set once and copy the outputs into it.

        Raises:
            LaunchRefusedError: Torch does not run on it.
            InputError: It gives other outputs than the job has.
        """
        result = self._called(self._arguments(buffers))
        with self._torch.cuda.stream(self._stream):
            self._oracle.take(result, buffers)

    def _arguments(self, buffers: TensorSet) -> list[Any]:
        arguments = self._oracle.natives(buffers)
        return [self._as_bytes(one) for one in arguments] if self._compiled else arguments

    def _called(self, arguments: list[Any]) -> Any:
        torch = self._torch
        try:
            with torch.no_grad(), torch.cuda.stream(self._stream):
                return self._run(*arguments)
        except Exception as error:
            raise LaunchRefusedError(said(error)) from None

    def _as_bytes(self, argument: Any) -> Any:
        """Return a tensor of 4-bit floats as what it is stored in: compilers know no such type."""
        torch = self._torch
        narrow = isinstance(argument, torch.Tensor) and argument.dtype is torch.float4_e2m1fn_x2
        return argument.view(torch.uint8) if narrow else argument

    def captures(self, buffers: TensorSet) -> bool:
        """Tell whether it runs without ever waiting for the device.

        What reads a tensor's values on the host does not, and a capture would fail. What is
        compiled when first called is so before: compilers may wait.
        """
        if self._captures is None and self._compiled:
            try:
                self.call(buffers)()
            except LaunchRefusedError:
                self._captures = False
        if self._captures is None:
            mode = self._torch.cuda.get_sync_debug_mode()
            self._torch.cuda.set_sync_debug_mode("error")
            try:
                self.call(buffers)()
                self._captures = True
            except LaunchRefusedError:
                self._captures = False
            finally:
                self._torch.cuda.set_sync_debug_mode(mode)
        return self._captures

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Route torch's allocations during a capture to a pool of its own.

        What torch keeps to itself is given back before where memory is scarce: during a capture it
        cannot be.
        """
        self._oracle.give_back(_SCARCE)
        pool = self._torch.cuda.MemPool()
        self._pools.append(pool)  # the graph writes there for as long as it lives
        with self._torch.cuda.use_mem_pool(pool):
            yield
