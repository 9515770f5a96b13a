"""Faster than physics: the least time that a workload can take on a device.

The floor exists to expose an instrument that lies, so every figure errs towards *too fast*: a
peak that no real chip reaches makes the floor lower, never higher. A time below it is not a
discovery, it is a fault: work that escaped the clock, was not done, or was remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FASTEST_CLOCK_HZ = 6.0e9
"""What no processor exceeds; used where the system does not tell its highest clock."""

CORE_MEMORY_BYTES_PER_S = 128e9
"""More than one core has ever drawn from memory."""

SOCKET_MEMORY_BYTES_PER_S = 1.0e12
"""More than twelve channels of the fastest modules of a socket give."""

_CORE_CACHE_BYTES_PER_CYCLE = 4 * 64
"""Three loads and a store of the widest vector in one cycle, rounded up."""

_FLOAT32_PER_CYCLE = (
    ({"amx_tile", "avx512f", "sme"}, 64.0),
    ({"fma", "fma4"}, 32.0),
    ({"avx"}, 16.0),
    ({"sse2"}, 8.0),
    ({"sve"}, 64.0),
    ({"asimd", "neon"}, 32.0),
)
"""Per core: two vector units (four on Arm) of multiply-add. The first line that has a feature."""

_UNKNOWN_FLOAT32_PER_CYCLE = 64.0
_HALF_PRECISION_GAIN = 32.0  # matrix tiles on 16-bit types and narrower


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Figures that a device cannot exceed.

    Attributes:
        flops_per_s: Arithmetic of the declared type, over all cores in use.
        memory_bytes_per_s: From and to main memory.
        cache_bytes_per_s: From and to the nearest cache.
        cache_bytes: What may stay resident between calls when inputs are warm.
        overhead_us: Least time of a call that does nothing.
    """

    flops_per_s: float
    memory_bytes_per_s: float
    cache_bytes_per_s: float
    cache_bytes: float
    overhead_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least time of one workload, and what sets it.

    Attributes:
        latency_us: No honest time is below it.
        reason: ``"arithmetic"``, ``"memory"``, ``"cache"``, ``"call"`` or ``"unknown"``.
    """

    latency_us: float
    reason: str

    def fault(self, latency_us: float) -> str | None:
        """Say in one line that a time is impossible, or None."""
        if latency_us >= self.latency_us:
            return None
        return (
            f"instrument fault: {latency_us:.4g} us is faster than physics allows "
            f"({self.latency_us:.4g} us by {self.reason})"
        )


def floor_of(
    peak: Peak, *, flops: float | None, bytes_moved: float | None, cache: str = "cold"
) -> Floor:
    """Return the floor of a workload.

    Args:
        peak: The device's.
        flops: Of the workload; None where unknown.
        bytes_moved: Least bytes that it reads and writes; None where unknown.
        cache: ``"cold"``: every byte comes from memory. ``"warm"``: only those that cannot fit in
            the cache do.
    """
    work, traffic = flops or 0.0, bytes_moved or 0.0
    resident = min(traffic, peak.cache_bytes) if cache == "warm" else 0.0
    candidates = {
        "arithmetic": work / peak.flops_per_s,
        "memory": (traffic - resident) / peak.memory_bytes_per_s,
        "cache": traffic / peak.cache_bytes_per_s,
        "call": peak.overhead_us * 1e-6,
    }
    reason = max(candidates, key=lambda name: candidates[name])
    seconds = candidates[reason]
    return Floor(latency_us=seconds * 1e6, reason=reason if seconds > 0 else "unknown")


def flops_per_cycle(features: Iterable[str], compute: str = "float32") -> float:
    """Return the most floating-point operations of one core in one cycle."""
    known = set(features)
    float32 = next(
        (rate for needed, rate in _FLOAT32_PER_CYCLE if needed & known), _UNKNOWN_FLOAT32_PER_CYCLE
    )
    if compute == "float64":
        return float32 / 2
    return float32 if compute in {"float32", "int32", "int64"} else float32 * _HALF_PRECISION_GAIN


def highest_clock_hz(cores: Iterable[int], root: Path = Path("/sys/devices/system/cpu")) -> float:
    """Return the highest clock of these cores; ``FASTEST_CLOCK_HZ`` where it is not told."""
    clocks = []
    for core in cores:
        try:
            text = (root / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq").read_text()
            clocks.append(float(text) * 1e3)
        except (OSError, ValueError):
            return FASTEST_CLOCK_HZ
    return max(clocks, default=FASTEST_CLOCK_HZ)


def cpu_peak(
    *,
    cores: int,
    clock_hz: float,
    features: Iterable[str],
    cache_bytes: float,
    sockets: int = 1,
    compute: str = "float32",
) -> Peak:
    """Return figures that these cores cannot exceed."""
    return Peak(
        flops_per_s=cores * clock_hz * flops_per_cycle(features, compute),
        memory_bytes_per_s=min(
            cores * CORE_MEMORY_BYTES_PER_S, max(sockets, 1) * SOCKET_MEMORY_BYTES_PER_S
        ),
        cache_bytes_per_s=cores * clock_hz * _CORE_CACHE_BYTES_PER_CYCLE,
        cache_bytes=cache_bytes,
    )
