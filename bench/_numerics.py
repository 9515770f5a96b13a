"""When an output counts as right: shape, dtype, finiteness, tolerance, cap, declared precision.

The comparison is made in float64 against a float64 reference. The schema's rule
``abs(x - y) <= atol + rtol * abs(y)`` is kept but never looser than the reference deserves: the
absolute part shrinks with the reference's root mean square, so that zeros do not agree with a
small reference, and the largest error is capped whether or not the workload asks for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import InputError, Tolerance, nearest

CAP_FACTOR = 8.0
"""Largest error that one element may have, in units of the error at which it stops matching."""

ROUNDING_SLACK = 8.0
"""Honest rounding errors stay this far below the bound: one chain of K additions errs by about
0.15 * sqrt(K) * eps of the root mean square."""

WRONG_SHAPE = "wrong shape"
WRONG_DTYPE = "wrong dtype"
NOT_FINITE = "output not finite"
REFERENCE_NOT_FINITE = "reference not finite"
ZERO_OUTPUT = "output all zero"
CONSTANT_OUTPUT = "output constant"
MISMATCH = "too few elements match"
ERROR_ABOVE_CAP = "error above the cap"
PRECISION_LOWERED = "precision below the declared type"
NOT_EXACT = "canary not exact"

_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tfloat32": 2.0**-10,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float4_e2m1": 2.0**-1,
    "float4_e2m1fn_x2": 2.0**-1,
}
_COARSE = 2.0**-3
_SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24}
"""Largest magnitude that may honestly become zero."""

_NUMPY = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome of comparing one output with its reference.

    Attributes:
        ok: Whether it counts as right.
        failure: Stable failure class, one of this module's names, or None.
        message: One line: which output, what was seen, what would be right.
        max_error: Largest absolute error; infinite when it could not be computed.
        matched_ratio: Share of elements within the tolerance.
        rms_error: Root mean square of the error over that of the reference.
        cap: The cap that the largest error was held against.
    """

    ok: bool
    failure: str | None = None
    message: str = ""
    max_error: float = math.inf
    matched_ratio: float = 0.0
    rms_error: float = math.inf
    cap: float = math.inf


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return NumPy's dtype for a schema dtype name.

    Raises:
        InputError: NumPy has no such type (bfloat16, the 8- and 4-bit floats), or nobody has.
    """
    if name in _NUMPY:
        return np.dtype(name)
    if name in _EPSILON:
        raise InputError(f"dtype {name!r} cannot be held on the cpu: {', '.join(_NUMPY)} can")
    raise InputError(f"there is no dtype {name!r}{nearest(name, (*_NUMPY, *_EPSILON))}")


def epsilon_of(dtype: str) -> float:
    """Return the spacing at 1 of a schema dtype, 0 for whole numbers and bool.

    Raises:
        InputError: There is no such dtype.
    """
    if dtype in _EPSILON:
        return _EPSILON[dtype]
    numpy_dtype(dtype)  # refuses what is no dtype at all
    return 0.0


def root_mean_square(values: NDArray[Any]) -> float:
    """Return the root mean square, without overflow where squares do not fit; 0 of nothing."""
    peak = float(np.max(np.abs(values), initial=0.0))
    if peak == 0.0 or not math.isfinite(peak):
        return peak
    return peak * math.sqrt(float(np.mean(np.square(values / peak))))


def _refused(name: str, failure: str, message: str) -> Comparison:
    return Comparison(ok=False, failure=failure, message=f"{name}: {message}")


def _form(
    name: str, output: NDArray[np.generic], reference: NDArray[np.generic], dtype: str
) -> Comparison | None:
    """Refuse an output of another shape or dtype."""
    if output.shape != reference.shape:
        return _refused(name, WRONG_SHAPE, f"shape {output.shape}, not {reference.shape}")
    if output.dtype != numpy_dtype(dtype):
        return _refused(name, WRONG_DTYPE, f"dtype {output.dtype}, not {dtype}")
    return None


def _finite(
    name: str, x: NDArray[np.float64], y: NDArray[np.float64], allow_negative_inf: bool
) -> tuple[NDArray[np.bool_], Comparison | None]:
    """Return where both are finite, and the refusal if anything else is not as it may be."""
    expected = np.isneginf(y) if allow_negative_inf else np.zeros(y.shape, dtype=np.bool_)
    if not np.all(np.isfinite(y) | expected):
        return expected, _refused(
            name, REFERENCE_NOT_FINITE, "the reference itself is not finite on these inputs"
        )
    right = np.where(expected, np.isneginf(x), np.isfinite(x))
    if not np.all(right):
        wrong = int(np.count_nonzero(~right))
        first = np.unravel_index(int(np.argmin(right)), right.shape) if right.ndim else ()
        place = tuple(int(i) for i in first)
        return expected, _refused(
            name, NOT_FINITE, f"{wrong} of {x.size} elements are not finite, the first at {place}"
        )
    return ~expected, None


def _degenerate(
    name: str, x: NDArray[np.float64], y: NDArray[np.float64], smallest: float, blur: float
) -> Comparison | None:
    """Refuse zeros and constants where the reference is neither, whatever the tolerance."""
    if not np.any(x) and float(np.max(np.abs(y), initial=0.0)) > smallest:
        return _refused(name, ZERO_OUTPUT, "every element is zero, the reference is not")
    if x.size > 1 and np.all(x == x.flat[0]) and float(np.ptp(y)) > blur:
        return _refused(name, CONSTANT_OUTPUT, f"every element is {x.flat[0]:g}")
    return None


def _capped(tolerance: Tolerance, bound: NDArray[np.float64], peak: float) -> NDArray[np.float64]:
    """Cap of each element's error; a workload's own cap holds as long as it caps anything."""
    if tolerance.max_error_cap is None:
        return CAP_FACTOR * bound
    return np.full(bound.shape, min(tolerance.max_error_cap, peak))


def _judged(
    name: str,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    tolerance: Tolerance,
    *,
    atol: float,
    allowed_rms: float,
) -> Comparison:
    """Hold finite values against tolerance, cap and declared precision."""
    rms = root_mean_square(y)
    error = np.abs(x - y)
    bound = atol + tolerance.max_rtol * np.abs(y)
    floor = atol + tolerance.max_rtol * rms
    cap = _capped(tolerance, np.maximum(bound, floor), float(np.max(np.abs(y), initial=0.0)))
    matched = float(np.mean(error <= bound))
    over = error - cap
    worst = int(np.argmax(over))
    relative = root_mean_square(error) / rms if rms else (math.inf if np.any(error) else 0.0)
    failure, message = None, ""
    if over.flat[worst] > 0:
        failure = ERROR_ABOVE_CAP
        message = f"{name}: error {error.flat[worst]:.3g} above the cap {cap.flat[worst]:.3g}"
    elif matched < tolerance.required_matched_ratio:
        failure = MISMATCH
        message = (
            f"{name}: {matched:.4%} of the elements match, "
            f"{tolerance.required_matched_ratio:.4%} must"
        )
    elif relative > allowed_rms:
        failure = PRECISION_LOWERED
        message = (
            f"{name}: relative error {relative:.3g}, the declared type gives {allowed_rms:.3g}"
        )
    return Comparison(
        ok=failure is None,
        failure=failure,
        message=message,
        max_error=float(np.max(error)),
        matched_ratio=matched,
        rms_error=relative,
        cap=float(np.min(cap)),
    )


def rounding_bound(dtype: str, compute: str, depth: int) -> float:
    """Return the largest relative RMS error that honest rounding can give.

    Args:
        dtype: Type of the output: one rounding to it is free, many (of partial sums) are not.
        compute: Declared type of the arithmetic and of the partial sums.
        depth: Longest chain of dependent roundings: K for a matrix product.
    """
    exact = 4.0 * 2.0**-52 * math.sqrt(max(depth, 1))  # the float64 reference rounds as well
    chain = ROUNDING_SLACK * epsilon_of(compute) * math.sqrt(max(depth, 1))
    spacing = epsilon_of(dtype)
    # To the nearest: half the spacing at worst. The 8- and 4-bit types soon run out of exponent,
    # where what is small is rounded more coarsely.
    once = spacing if spacing >= _COARSE else spacing / 2
    return exact + once + chain


def compare(
    output: NDArray[np.generic],
    reference: NDArray[np.generic],
    tolerance: Tolerance,
    *,
    dtype: str,
    compute: str | None = None,
    depth: int = 1,
    usual_rms: float | None = None,
    name: str = "output",
) -> Comparison:
    """Compare one output with its float64 reference.

    Args:
        output: What the candidate wrote.
        reference: Same shape, float64 (or whole numbers, for integer outputs).
        tolerance: The workload's.
        dtype: Schema dtype that the output must have exactly.
        compute: Declared type of the arithmetic; the output's own by default. Only this may
            make the result less precise than the output's type.
        depth: Longest chain of dependent roundings, for the precision bound.
        usual_rms: Root mean square of the reference on the workload's ordinary inputs, for
            which the tolerance was made; where these inputs are a variant of them, the absolute
            tolerance grows or shrinks as the reference does.
        name: Of the output, for the message.

    Raises:
        InputError: Unknown dtype names.
    """
    wrong = _form(name, output, reference, dtype)
    if wrong is not None or output.size == 0:
        return wrong or Comparison(ok=True, max_error=0.0, matched_ratio=1.0, rms_error=0.0)
    x, y = np.asarray(output, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    both, wrong = _finite(name, x, y, tolerance.allow_negative_inf)
    if wrong is not None:
        return wrong
    x, y = x[both], y[both]
    if x.size == 0:
        return Comparison(ok=True, max_error=0.0, matched_ratio=1.0, rms_error=0.0)
    allowed = rounding_bound(dtype, compute or dtype, depth)
    rms = root_mean_square(y)
    wrong = _degenerate(name, x, y, _SMALLEST.get(dtype, 0.0), 4.0 * allowed * rms)
    usual = usual_rms or rms
    scale = min(1.0, usual) * (rms / usual) if usual else 0.0
    return wrong or _judged(
        name, x, y, tolerance, atol=tolerance.max_atol * scale, allowed_rms=allowed
    )


def compare_exact(
    output: NDArray[np.generic],
    expected: NDArray[np.generic],
    *,
    dtype: str,
    name: str = "output",
) -> Comparison:
    """Compare a canary's output, whose every sum is exact: each element must be equal.

    Raises:
        InputError: Unknown dtype name.
    """
    wrong = _form(name, output, expected, dtype)
    if wrong is not None:
        return wrong
    x, y = np.asarray(output, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    same = x == y
    if bool(np.all(same)):
        return Comparison(ok=True, max_error=0.0, matched_ratio=1.0, rms_error=0.0, cap=0.0)
    first = int(np.argmin(same))
    return Comparison(
        ok=False,
        failure=NOT_EXACT,
        message=f"{name}: {x.flat[first]:g} where the sum is exactly {y.flat[first]:g}",
        max_error=float(np.max(np.nan_to_num(np.abs(x - y), nan=math.inf))),
        matched_ratio=float(np.mean(same)),
        cap=0.0,
    )
