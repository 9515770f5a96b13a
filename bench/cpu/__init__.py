"""The device ``cpu``: compile pool, killable worker, guarded and cold timing."""

from kernelarc.bench.cpu._device import CpuDevice
from kernelarc.bench.cpu._naive import naive_gemm_route
from kernelarc.bench.cpu._session import CpuLimits, CpuSession

__all__ = ["CpuDevice", "CpuLimits", "CpuSession", "naive_gemm_route"]
