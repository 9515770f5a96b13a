"""What a GPU cannot exceed, from its own figures, and what it reaches, measured.

The floor must never refuse an honest time, so every figure errs towards too fast: the highest
clock that the device may ever have, and the matrix units' rate of its generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelarc.bench._roofline import Peak

_FLOPS_PER_CYCLE = {  # dense, per multiprocessor: 16-bit factors; 8-bit twice, tfloat32 half
    (7, 0): 1024,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 7): 2048,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
    (10, 3): 8192,
    (12, 0): 2048,
}
_UNKNOWN_FLOPS_PER_CYCLE = 32768
_FLOAT32_PER_CYCLE = 512
_UNKNOWN_CLOCK_HZ = 4.0e9
_UNKNOWN_BYTES_PER_S = 40e12
_CACHE_BYTES_PER_CYCLE = 256
_CALL_US = 0.4


def cuda_peak(
    properties: Mapping[str, Any],
    clocks_mhz: tuple[int | None, int | None],
    *,
    dtype: str,
    tf32: bool = False,
) -> Peak:
    """Return what a device cannot exceed on a job.

    Args:
        properties: As the runtime gives them.
        clocks_mhz: Highest clocks of multiprocessors and memory, where told.
        dtype: The narrowest type that is multiplied: it sets the arithmetic's rate.
        tf32: Whether float32 factors may be rounded to tfloat32.
    """
    clock = 1e6 * clocks_mhz[0] if clocks_mhz[0] else _UNKNOWN_CLOCK_HZ
    cores = int(properties["multiProcessorCount"])
    generation = (int(properties["major"]), int(properties["minor"]))
    rate = float(_FLOPS_PER_CYCLE.get(generation, _UNKNOWN_FLOPS_PER_CYCLE))
    if dtype in {"float32", "float64"}:
        rate = rate / 2 if tf32 else _FLOAT32_PER_CYCLE
    elif dtype.startswith("float4"):
        rate *= 4
    elif dtype not in {"bfloat16", "float16"}:
        rate *= 2
    width = int(properties["memoryBusWidth"])
    memory = 2e6 * clocks_mhz[1] * width / 8 if clocks_mhz[1] else _UNKNOWN_BYTES_PER_S
    return Peak(
        flops_per_s=cores * clock * rate,
        memory_bytes_per_s=1.02 * memory,
        cache_bytes_per_s=cores * clock * _CACHE_BYTES_PER_CYCLE,
        cache_bytes=float(properties["l2CacheSize"]),
        overhead_us=_CALL_US,
    )


def measured_copy_bytes_per_s(cupy: Any, stream: Any, once: Callable[[Any], float]) -> float:
    """Return the bandwidth of a large copy inside the device, bytes read plus bytes written."""
    size = 1 << 30
    source, target = cupy.cuda.alloc(size), cupy.cuda.alloc(size)
    runtime = cupy.cuda.runtime
    runtime.memsetAsync(int(source.ptr), 0x5A, size, stream.ptr)

    def copy() -> None:
        runtime.memcpyAsync(int(target.ptr), int(source.ptr), size, 3, stream.ptr)

    times = sorted(once(copy) for _ in range(7))
    return 2.0 * size / (times[3] * 1e-6)
