"""Compiled kernels on ``cuda:N``: a compile pool ahead of one device worker.

Importing this package maps no CUDA library and no compiler; only its processes do.

- the device: KernelDevice, KernelSession
- building without a device: BuildShelf, CompilePool, Order, BuildReply
"""

from kernelarc.bench.kernels._compile_pool import CompilePool, Order
from kernelarc.bench.kernels._device import KernelDevice
from kernelarc.bench.kernels._messages import BuildReply
from kernelarc.bench.kernels._session import KernelSession
from kernelarc.bench.kernels._shelf import BuildShelf

__all__ = [
    "BuildReply",
    "BuildShelf",
    "CompilePool",
    "KernelDevice",
    "KernelSession",
    "Order",
]
