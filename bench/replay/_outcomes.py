"""What a recorded row says happened: every spelling of a failure becomes a status and a class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernelarc.bench.replay._answers import Answer
from kernelarc.genomes import Status

# Old files write a failure as a huge time; no kernel takes 10^17 seconds.
_SENTINEL = 1e20

_NAMED: Mapping[str, tuple[Status, str]] = {
    "compilationfailedconfig": (Status.COMPILE_ERROR, "does not compile"),
    "compile": (Status.COMPILE_ERROR, "does not compile"),
    "runtimefailedconfig": (Status.LAUNCH_ERROR, "does not launch"),
    "runtime": (Status.LAUNCH_ERROR, "does not launch"),
    "errorconfig": (Status.LAUNCH_ERROR, "failed, cause not recorded"),
    "invalidconfig": (Status.REJECTED, "illegal on the recorded device"),
    "constraints": (Status.REJECTED, "illegal on the recorded device"),
    "timeout": (Status.TIMEOUT, "took too long"),
    "timeoutconfig": (Status.TIMEOUT, "took too long"),
    "correctness": (Status.WRONG_RESULT, "wrong result"),
    "incorrect": (Status.WRONG_RESULT, "wrong result"),
}
_UNMEASURED = (Status.LAUNCH_ERROR, "no valid measurement")


def failed(word: str, cost_s: float) -> Answer:
    """Return the answer of a row that names its failure; unknown names are kept as message."""
    status, failure = _NAMED.get(word.strip().lower(), _UNMEASURED)
    return Answer(status=status, cost_s=cost_s, failure=failure, message=f"recorded as {word}")


def measured(value: object, cost_s: float, samples: object = None, *, name: str = "time") -> Answer:
    """Return the answer of a row with an objective, whatever stands there.

    What is not a finite, positive number is a failure: text, NaN, infinity, zero, negative
    numbers, and the huge constants that old files write for failures.
    """
    if isinstance(value, str):
        return failed(value, cost_s)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _unmeasured(f"{name} is {value!r}", cost_s)
    if not 0.0 < value < _SENTINEL:
        return _unmeasured(f"{name} is {value}", cost_s)
    return Answer(
        status=Status.OK, objective=float(value), cost_s=cost_s, samples=_numbers(samples)
    )


def seconds(row: Mapping[str, Any], names: tuple[str, ...], unit_s: float) -> float:
    """Add up the recorded costs among ``names``; what is absent or no number counts nothing."""
    total = 0.0
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and 0.0 < value < math.inf:
            total += value
    return total * unit_s


def _unmeasured(message: str, cost_s: float) -> Answer:
    status, failure = _UNMEASURED
    return Answer(status=status, cost_s=cost_s, failure=failure, message=message)


def _numbers(samples: object) -> tuple[float, ...]:
    if not isinstance(samples, list):
        return ()
    good = [s for s in samples if isinstance(s, int | float) and 0.0 < s < math.inf]
    return tuple(map(float, good)) if len(good) == len(samples) else ()
