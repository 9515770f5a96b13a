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

from kernelarc.bench._numerics import Comparison, compare, numpy_dtype, rounding_bound
from kernelarc.bench.cpu._references import Reference
from kernelarc.genomes import Tolerance

_PIECE_ELEMENTS = 1 << 14
_SAMPLED_PIECES = 128
_WEIGHED_ONE_IN = 8
"""How many pieces tell the reference's size: it only scales the bounds."""


def compare_by_rows(
    output: NDArray[np.generic],
    reference: Reference,
    tolerance: Tolerance,
    *,
    dtype: str,
    depth: int,
    name: str,
    rows_of: np.random.Generator | None = None,
) -> Comparison:
    """Compare an output with its reference; the arguments are those of ``compare``.

    Args:
        output: What the candidate wrote.
        reference: What it must be.
        tolerance: The workload's.
        dtype: As in ``compare``.
        depth: As in ``compare``.
        name: Of the output.
        rows_of: Where given, only about two million elements are compared, in rows it chooses.
    """
    right_form = output.ndim and output.size and output.dtype == numpy_dtype(dtype)
    if right_form and np.issubdtype(output.dtype, np.floating):
        allowed_rms = rounding_bound(dtype, dtype, depth)
        screened = _screened(output, reference, tolerance, allowed_rms, name=name, rows_of=rows_of)
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
    *,
    name: str,
    rows_of: np.random.Generator | None,
) -> Comparison | None:
    step = max(1, _PIECE_ELEMENTS * output.shape[0] // output.size)
    starts = list(range(0, output.shape[0], step))
    if rows_of is not None and len(starts) > _SAMPLED_PIECES:
        starts = [int(s) for s in rows_of.choice(starts, _SAMPLED_PIECES, replace=False)]
    worst_square = squares = error_squares = 0.0
    seen = weighed = 0
    for number, start in enumerate(starts):
        expected: NDArray[Any] = reference.rows(name, start, start + step)
        if expected.shape != output[start : start + step].shape:
            return None
        seen += expected.size
        error = np.subtract(output[start : start + step], expected, dtype=np.float64)
        np.multiply(error, error, out=error)
        worst_square = max(worst_square, float(error.max()))
        error_squares += float(error.sum())
        if not math.isfinite(error_squares):
            return None
        if number % _WEIGHED_ONE_IN == 0:
            squares += float(np.multiply(expected, expected, out=error).sum())
            weighed += expected.size
    worst = math.sqrt(worst_square)
    rms, rms_error = math.sqrt(squares / weighed), math.sqrt(error_squares / seen)
    bound = tolerance.max_atol * min(1.0, rms)
    cap = tolerance.max_error_cap
    allowed = allowed_rms * rms
    if rms == 0.0 or worst > min(bound, math.inf if cap is None else cap) or rms_error > allowed:
        return None
    return Comparison(
        ok=True, max_error=worst, matched_ratio=1.0, rms_error=rms_error / rms, cap=bound
    )
