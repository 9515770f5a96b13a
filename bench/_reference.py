"""Run an operator's reference in float64, on copies of the inputs that the candidate had.

The reference is the operator's own source: a top-level ``run`` whose parameters are the inputs
in order. An absent optional input is passed as None. It runs in this process with this process's
rights, as any program does that its user starts.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelarc.bench._inputs import (
    Value,
    Variant,
    make_inputs,
    present_inputs,
    ragged_workload,
    shape_of,
)
from kernelarc.bench._numerics import epsilon_of
from kernelarc.genomes import InputError, MissingPartError, Operator, Workload, axis_values

_Run: TypeAlias = "Callable[..., Any]"


@lru_cache(maxsize=64)
def _compiled(name: str, source: str) -> _Run:
    """Return the reference's ``run``."""
    module = _module(source)
    try:
        exec(compile(source, f"<reference of {name}>", "exec"), module.__dict__)
    except SyntaxError as error:
        raise InputError(
            f"the reference of {name!r} is no Python: {error.msg} in line {error.lineno}"
        ) from None
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"the reference of {name!r} needs {error.name}: install it"
        ) from None
    except Exception as error:
        raise InputError(f"the reference of {name!r} fails: {said(error)}") from None
    run = getattr(module, "run", None)
    if not callable(run):
        raise InputError(f"the reference of {name!r} has no top-level function 'run'")
    return run  # type: ignore[no-any-return]


def function_of(source: str, name: str) -> Callable[..., Any]:
    """Return a function of a source that is ours or was checked, in a module of its own."""
    module = _module(source)
    if not hasattr(module, name):
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    found: Callable[..., Any] = getattr(module, name)
    return found


def _module(source: str) -> ModuleType:
    """Return an empty module for a reference, known to the interpreter by its name.

    ``torch.compile`` imports the module of what it compiles by that name.
    """
    name = f"kernelarc_reference_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    return sys.modules.setdefault(name, ModuleType(name))


def said(error: Exception) -> str:
    """Return an exception as one line."""
    first = str(error).strip().splitlines()[:1]
    return type(error).__name__ + (f": {first[0]}" if first else "")


def reference_of(operator: Operator) -> Callable[..., Any]:
    """Return the reference's ``run``.

    Raises:
        InputError: There is none, or it takes other parameters than the operator has inputs.
        MissingPartError: It imports what is not installed.
    """
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
    run = reference_of(operator)
    own = [_copied(inputs.get(spec.name), real) for spec in operator.inputs]
    try:
        with np.errstate(all="ignore"):
            result = run(*own)
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"the reference of {operator.name!r} needs {error.name}: install it"
        ) from None
    except Exception as error:
        raise InputError(f"the reference of {operator.name!r} fails: {said(error)}") from None
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


def sums_exactly(operator: Operator) -> bool:
    """Tell whether a canary's output must be exact: the operator only adds and multiplies.

    The reference is tried on a few whole numbers. Where all that comes out is whole numbers
    again, the float64 reference of whole inputs is exact, and so must the candidate's output be
    as long as no value exceeds ``exact_below``: partial sums of numbers that are not negative
    never exceed the whole. Ask once per problem: it runs the reference.

    Raises:
        InputError: The operator has no reference or its axes cannot be bound.
        MissingPartError: As ``run_reference``.
    """
    reference_of(operator)
    rng = np.random.default_rng(0)
    job = ragged_workload(operator, Workload(operator=operator.fingerprint), rng)
    try:
        answers = _answers(operator, make_inputs(operator, job, rng, Variant.ZERO_ONE), np.int64)
    except InputError:  # it does what whole numbers cannot do
        return False
    return all(np.issubdtype(answer.dtype, np.integer) for answer in answers.values())


def exact_below(dtype: str) -> float:
    """Return up to where a floating-point type holds every whole number."""
    return 2.0 / epsilon_of(dtype) if epsilon_of(dtype) else 2.0**53


def depth_of(operator: Operator, workload: Workload) -> int:
    """Return the longest chain of dependent roundings that an honest kernel may have.

    It is what is summed over: the axes of one input that no output has, of the input with the
    longest such sum, or else the longest last axis of an input (a normalisation sums along its
    rows). Sums that follow one another do not multiply.
    """
    axes = axis_values(operator, workload)
    kept = {part for spec in operator.outputs for part in spec.shape or ()}
    shapes = [spec.shape or () for spec in present_inputs(operator, workload)]
    gone = [[axes[part] for part in set(shape) - kept if part in axes] for shape in shapes]
    if any(gone):
        return max(math.prod(sizes) for sizes in gone)
    return max((shape_of(spec, axes)[-1] for spec in operator.inputs if spec.shape), default=1)
