"""SOL-ExecBench's score of a time, between a baseline and the data sheet's limit.

The limit is taken from the vendor's peaks: a lower, measured peak would flatter the score. The
harness divides by zero at twice the limit less the baseline and exceeds 1 below the limit; here a
time below the limit counts as the limit, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

LAUNCH_US = 0.4
"""Least time of a launch that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """A vendor's peaks of one device.

    Attributes:
        name: What the figures are called in reports.
        memory_bytes_per_s: Of device memory.
        flops_per_s: Dense matrix arithmetic by the factors' dtype.
    """

    name: str
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]


def _matrix_rates(bf16: float) -> Mapping[str, float]:
    return MappingProxyType(
        {"float8": 2 * bf16, "bfloat16": bf16, "float16": bf16, "float32": bf16 / 2}
    )


_HOPPER, _BLACKWELL = _matrix_rates(989e12), _matrix_rates(2250e12)
_SHEETS = (
    Datasheet(name="H200", memory_bytes_per_s=4.8e12, flops_per_s=_HOPPER),
    Datasheet(name="H100 80GB HBM3", memory_bytes_per_s=3.35e12, flops_per_s=_HOPPER),
    Datasheet(name="B200", memory_bytes_per_s=8.0e12, flops_per_s=_BLACKWELL),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score with what it is made of.

    Attributes:
        value: 0.5 at the baseline, 1 at the limit; above 0.
        latency_us: The time that is scored.
        baseline_us: The best of what a user would run, measured on the same device.
        limit_us: By the data sheet.
        clamped: Whether the time lies below the limit, or the baseline does: then something is
            wrong with a measurement or with the counts of FLOPs and bytes.
    """

    value: float
    latency_us: float
    baseline_us: float
    limit_us: float
    clamped: bool


def datasheet(device: str) -> Datasheet | None:
    """Return the peaks of a device by the name that its driver gives it, None where unknown."""
    return next((sheet for sheet in _SHEETS if sheet.name in device), None)


def limit_us(
    sheet: Datasheet, *, flops: float | None, bytes_moved: float | None, dtype: str
) -> float | None:
    """Return the least time that the data sheet allows; None where nothing is known of the work.

    Args:
        sheet: The device's.
        flops: Floating-point operations.
        bytes_moved: Least bytes through device memory.
        dtype: Of the matrix factors; a type without a unit of its own counts as bfloat16.
    """
    if flops is None and bytes_moved is None:
        return None
    rates = sheet.flops_per_s
    rate = rates.get("float8" if dtype.startswith("float8") else dtype, rates["bfloat16"])
    seconds = max((bytes_moved or 0.0) / sheet.memory_bytes_per_s, (flops or 0.0) / rate)
    return seconds * 1e6 + LAUNCH_US


def score(latency_us: float, baseline_us: float, least_us: float) -> Score:
    """Return the score of a time.

    Args:
        latency_us: The time that is scored.
        baseline_us: What scores 0.5.
        least_us: The limit, which scores 1.
    """
    held = max(latency_us, least_us)
    span = baseline_us - least_us
    value = 1.0 / (1.0 + (held - least_us) / span) if span > 0 else float(held <= least_us)
    return Score(
        value=value,
        latency_us=latency_us,
        baseline_us=baseline_us,
        limit_us=least_us,
        clamped=latency_us < least_us or span <= 0,
    )
