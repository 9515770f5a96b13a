"""The device ``cuda:N``: a worker process per GPU holds the only CUDA context.

Importing this package maps no CUDA library; only the worker does.
"""

from kernelarc.bench.cuda._device import CudaDevice
from kernelarc.bench.cuda._session import CudaSession

__all__ = ["CudaDevice", "CudaSession"]
