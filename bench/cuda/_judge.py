"""What one comparison on the device says: the same rules as on the host, from sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kernelarc.bench._numerics import (
    CAP_FACTOR,
    CONSTANT_OUTPUT,
    ERROR_ABOVE_CAP,
    MISMATCH,
    NOT_EXACT,
    NOT_FINITE,
    PRECISION_LOWERED,
    ZERO_OUTPUT,
    epsilon_of,
    rounding_bound,
)
from kernelarc.bench.cuda._kernels import EXACT, Bounds
from kernelarc.genomes import MatmulJob, Tolerance

OUT_OF_BOUNDS = "written outside its buffers"
INPUT_CHANGED = "input changed"
NOT_REPEATABLE = "differs between two runs"
ESCAPED_CLOCK = "work outside the clock"
TOO_FAST = "faster than physics"


class Slot(IntEnum):
    """Which report of an evaluation is which."""

    FIRST = 0
    CANARY = 1
    REPEAT = 2
    BEFORE = 3
    AFTER = 4
    LAST = 5
    BANDS = 6
    SCRATCH_BAND = 7


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure class and one line about it."""

    failure: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruler:
    """What outputs of one job are held against.

    Attributes:
        tolerance: The workload's.
        allowed_rms: Largest relative error that honest rounding gives.
        blur: Spread of outputs, over the root mean square, below which they count as constant.
    """

    tolerance: Tolerance
    allowed_rms: float
    exact: Bounds

    @classmethod
    def of(cls, job: MatmulJob, tolerance: Tolerance) -> Ruler:
        """Make the ruler of a job."""
        allowed = rounding_bound(job.out_dtype, job.compute, job.k)
        if job.scaled and job.fast_accum:
            allowed += 2.0**-8
        return cls(tolerance=tolerance, allowed_rms=allowed, exact=_exact_bounds(job))

    def bounds(self, rms: float) -> Bounds:
        """Return the bounds for a reference with this root mean square."""
        held = self.tolerance
        atol = held.max_atol * min(1.0, rms)
        capped = held.max_error_cap is not None
        return Bounds(
            atol=atol,
            rtol=held.max_rtol,
            floor=atol + held.max_rtol * rms,
            cap_factor=1e30 if capped else CAP_FACTOR,
            cap_limit=held.max_error_cap if held.max_error_cap is not None else math.inf,
        )

    def judge(self, report: Any, count: int, rms: float, what: str) -> Finding | None:
        """Judge a comparison with a float64 reference."""
        broken = self._degenerate(report, count, rms, what)
        if broken is not None:
            return broken
        relative = relative_error(report, count, rms)
        needed = self.tolerance.required_matched_ratio
        if report["over_cap"]:
            return Finding(
                ERROR_ABOVE_CAP,
                f"{what}: error {float(report['max_error']):.3g} is above the cap",
            )
        matched = 1.0 - int(report["mismatched"]) / count
        if matched < needed:
            return Finding(MISMATCH, f"{what}: {matched:.4%} of the elements match")
        if relative > self.allowed_rms:
            return Finding(
                PRECISION_LOWERED,
                f"{what}: relative error {relative:.3g}, the declared type gives "
                f"{self.allowed_rms:.3g}",
            )
        return None

    def _degenerate(self, report: Any, count: int, rms: float, what: str) -> Finding | None:
        if report["not_finite"]:
            return Finding(NOT_FINITE, f"{what}: {int(report['not_finite'])} outputs not finite")
        if not report["nonzero"] and rms > 0:
            return Finding(ZERO_OUTPUT, f"{what}: every output is zero")
        if count > 1 and float(report["max_spread"]) == 0.0 and rms > 0 and count > 64:
            return Finding(CONSTANT_OUTPUT, f"{what}: every output is the same")
        return None

    def judge_exact(self, report: Any, what: str) -> Finding | None:
        """Judge a canary, whose sums are exact."""
        wrong = int(report["mismatched"]) + int(report["not_finite"])
        if wrong:
            return Finding(
                NOT_EXACT,
                f"{what}: {wrong} outputs differ from exact sums, by up to "
                f"{float(report['max_error']):.3g}",
            )
        return None


def relative_error(report: Any, count: int, rms: float) -> float:
    """Return the root mean square of the error over that of the reference."""
    error = math.sqrt(float(report["sum_square_error"]) / count)
    return error / rms if rms else (math.inf if error else 0.0)


def _exact_bounds(job: MatmulJob) -> Bounds:
    """Exact, but for an activation that the library approximates."""
    if job.activation != "gelu":
        return EXACT
    step = 2.0 * epsilon_of(job.out_dtype) + 2.0**-11
    return Bounds(atol=2.0**-11, rtol=step, floor=0.0, cap_factor=1e30, cap_limit=math.inf)
