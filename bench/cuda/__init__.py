"""The device ``cuda:N``: a worker process per GPU holds the only CUDA context.

Importing this package maps no CUDA library; only the worker does, and whoever calls ``load_lt``.

- the device: CudaDevice, CudaSession
- one product on a library handle, for the runtime: Matmul, Algorithm, Side, load_lt
"""

from kernelarc.bench.cuda._binding import load_lt
from kernelarc.bench.cuda._device import CudaDevice, demand_parts
from kernelarc.bench.cuda._library import Algorithm, Matmul, Side
from kernelarc.bench.cuda._session import CudaSession

__all__ = [
    "Algorithm",
    "CudaDevice",
    "CudaSession",
    "Matmul",
    "Side",
    "demand_parts",
    "load_lt",
]
