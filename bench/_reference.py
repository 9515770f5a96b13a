"""Run an operator's reference in float64, on copies of the inputs that the candidate had.

The reference is the operator's own source: a top-level ``run`` whose parameters are the inputs
in order. An absent optional input is passed as None. It runs in this process with this process's
rights, as any program does that its user starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelarc.bench._inputs import Value
from kernelarc.genomes import InputError, MissingPartError, Operator

_Run: TypeAlias = "Callable[..., Any]"


@lru_cache(maxsize=64)
def _compiled(name: str, source: str) -> _Run:
    """Return the reference's ``run``."""
    space: dict[str, Any] = {"__name__": f"reference of {name}"}
    try:
        exec(compile(source, f"<reference of {name}>", "exec"), space)
    except SyntaxError as error:
        raise InputError(
            f"the reference of {name!r} is no Python: {error.msg} in line {error.lineno}"
        ) from None
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"the reference of {name!r} needs {error.name}: install it"
        ) from None
    except Exception as error:
        raise InputError(f"the reference of {name!r} fails: {_said(error)}") from None
    run = space.get("run")
    if not callable(run):
        raise InputError(f"the reference of {name!r} has no top-level function 'run'")
    return run  # type: ignore[no-any-return]


def _said(error: Exception) -> str:
    """Return an exception as one line."""
    first = str(error).strip().splitlines()[:1]
    return type(error).__name__ + (f": {first[0]}" if first else "")


def _run_of(operator: Operator) -> _Run:
    if operator.reference is None:
        raise InputError(f"operator {operator.name!r} has no reference to check against")
    run = _compiled(operator.name, operator.reference)
    taken = len(inspect.signature(run).parameters)
    if taken != len(operator.inputs):
        raise InputError(
            f"the reference of {operator.name!r} takes {taken} parameters, "
            f"the operator has {len(operator.inputs)} inputs"
        )
    return run


def _copied(value: Value | None, real: DTypeLike) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    wide = real if np.issubdtype(value.dtype, np.floating) else value.dtype
    return np.array(value, dtype=wide, copy=True, order="C")


def _by_name(operator: Operator, result: Any) -> dict[str, NDArray[np.generic]]:
    """Return the reference's result as arrays by output name."""
    names = [spec.name for spec in operator.outputs]
    if isinstance(result, Mapping):
        missing = [name for name in names if name not in result]
        if missing:
            raise InputError(f"the reference of {operator.name!r} gives no {missing[0]!r}")
        return {name: np.asarray(result[name]) for name in names}
    parts: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    if len(parts) != len(names):
        raise InputError(
            f"the reference of {operator.name!r} gives {len(parts)} outputs, not {len(names)}"
        )
    return {name: np.asarray(part) for name, part in zip(names, parts, strict=True)}


def _answers(operator: Operator, inputs: Mapping[str, Value], real: DTypeLike) -> dict[str, Any]:
    run = _run_of(operator)
    own = [_copied(inputs.get(spec.name), real) for spec in operator.inputs]
    try:
        with np.errstate(all="ignore"):
            result = run(*own)
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"the reference of {operator.name!r} needs {error.name}: install it"
        ) from None
    except Exception as error:
        raise InputError(f"the reference of {operator.name!r} fails: {_said(error)}") from None
    return _by_name(operator, result)


def run_reference(
    operator: Operator, inputs: Mapping[str, Value]
) -> dict[str, NDArray[np.generic]]:
    """Return the reference's outputs by name, computed in float64.

    Args:
        operator: With a reference.
        inputs: By name, as the candidate saw them. They are copied, never changed.

    Raises:
        InputError: There is no reference, it is no Python, it fails, or it gives another number
            of outputs than the operator has.
        MissingPartError: It imports what is not installed.
    """
    return {
        name: answer.astype(np.float64) if np.issubdtype(answer.dtype, np.floating) else answer
        for name, answer in _answers(operator, inputs, np.float64).items()
    }


def exact_reference(
    operator: Operator, inputs: Mapping[str, Value], exact_below: float = 2.0**24
) -> dict[str, NDArray[np.generic]] | None:
    """Return what a canary must give exactly, or None where rounding is part of the job.

    The reference runs on whole numbers. Where all that comes out is whole numbers again, the
    operator only adds and multiplies, and every floating-point result must equal them: partial
    sums of numbers that are not negative never exceed the whole.

    Args:
        operator: With a reference.
        inputs: Of a canary: whole and not negative.
        exact_below: Up to where the type of the arithmetic holds every whole number.

    Raises:
        MissingPartError: As ``run_reference``.
    """
    try:
        answers = _answers(operator, inputs, np.int64)
    except InputError:  # it does what whole numbers cannot do
        return None
    for answer in answers.values():
        whole = np.issubdtype(answer.dtype, np.integer)
        if not whole or np.max(np.abs(answer), initial=0) > exact_below:
            return None
    return answers
