"""Compare a large output with its reference piece by piece, as long as it is clearly right.

The screen passes only what every rule of the full comparison passes: all errors within the
absolute tolerance and the root mean square within what the declared type gives. Whatever it does
not pass is compared again, whole, by the full rules, which then say what is wrong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._numerics import Comparison, compare, rounding_bound
from kernelarc.bench.cpu._references import Reference
from kernelarc.genomes import Tolerance

_PIECE_ELEMENTS = 1 << 14


def compare_by_rows(
    output: NDArray[np.generic],
    reference: Reference,
    tolerance: Tolerance,
    *,
    dtype: str,
    depth: int,
    name: str,
) -> Comparison:
    """Compare an output with its reference; the arguments are those of ``compare``."""
    if output.ndim and output.size and np.issubdtype(output.dtype, np.floating):
        allowed_rms = rounding_bound(dtype, dtype, depth)
        screened = _screened(output, reference, tolerance, allowed_rms, name)
        if screened is not None:
            return screened
    extent = output.shape[0] if output.ndim else 0
    whole = reference.rows(name, 0, extent)
    return compare(output, whole, tolerance, dtype=dtype, depth=depth, name=name)


def _screened(
    output: NDArray[np.generic],
    reference: Reference,
    tolerance: Tolerance,
    allowed_rms: float,
    name: str,
) -> Comparison | None:
    step = max(1, _PIECE_ELEMENTS * output.shape[0] // output.size)
    worst = squares = error_squares = 0.0
    for start in range(0, output.shape[0], step):
        expected: NDArray[Any] = reference.rows(name, start, start + step)
        if expected.shape != output[start : start + step].shape:
            return None
        error = np.subtract(output[start : start + step], expected, dtype=np.float64)
        worst = max(worst, float(error.max()), -float(error.min()))
        error_squares += float(np.multiply(error, error, out=error).sum())
        squares += float(np.multiply(expected, expected, out=error).sum())
        if not math.isfinite(error_squares):
            return None
    rms, rms_error = (math.sqrt(total / output.size) for total in (squares, error_squares))
    bound = tolerance.max_atol * min(1.0, rms)
    cap = tolerance.max_error_cap
    allowed = allowed_rms * rms
    if rms == 0.0 or worst > min(bound, math.inf if cap is None else cap) or rms_error > allowed:
        return None
    return Comparison(
        ok=True, max_error=worst, matched_ratio=1.0, rms_error=rms_error / rms, cap=bound
    )
