"""Axes bound by a workload, and what can be computed from them: expr axes, FLOPs, bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._expressions import Expression, compile_expression
from kernelarc.genomes._operators import Axis, Operator, Workload

AXIS_LIMIT = 2**31 - 1
ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "float64": 8,
        "float32": 4,
        "float16": 2,
        "bfloat16": 2,
        "float8_e4m3fn": 1,
        "float8_e5m2": 1,
        "float4_e2m1": 1,  # the schema counts bytes: two values in each
        "float4_e2m1fn_x2": 1,
        "int64": 8,
        "int32": 4,
        "int16": 2,
        "int8": 1,
        "bool": 1,
    }
)


def checked_axis(name: str, value: object, where: str, *, least: int = 1) -> int:
    """Return an axis value.

    Raises:
        InputError: It is not a whole number from ``least`` to ``AXIS_LIMIT``.
    """
    if type(value) is not int or not least <= value <= AXIS_LIMIT:
        raise InputError(
            f"{where}: axis {name!r} must be a whole number from {least} to {AXIS_LIMIT}, "
            f"not {value!r}"
        )
    return value


def axis_values(operator: Operator, workload: Workload) -> dict[str, int]:
    """Return every axis of the operator by name, const and expr axes included, in file order.

    A value that the workload gives for a const axis counts, as in the harness, and so does one
    for an axis that the operator does not have: the reference may make its inputs by it. Those
    come last.

    Raises:
        InputError: A var axis is not bound, or a value is no whole number from 0 on.
    """
    where = f"operator {operator.name!r}"
    values: dict[str, int] = {}
    for last in (False, True):  # an expr axis may name any other axis, and earlier expr axes
        for name, axis in operator.axes.items():
            if (axis.kind == "expr") is last:
                values[name] = _value(axis, operator, workload, values, where)
    others = {
        name: checked_axis(name, value, where, least=0)
        for name, value in workload.axes.items()
        if name not in operator.axes
    }
    return {**{name: values[name] for name in operator.axes}, **others}


def _value(
    axis: Axis, operator: Operator, workload: Workload, earlier: Mapping[str, int], where: str
) -> int:
    if axis.kind == "expr":
        number = _evaluate(axis.expression or "", earlier, f"{where}: axis {axis.name!r}")
        whole = int(number) if float(number).is_integer() else number
        return checked_axis(axis.name, whole, where, least=0)
    value = workload.axes.get(axis.name, axis.value)
    if value is None:
        for name in workload.axes:  # rather a name that is misspelt than one that is missing
            if name not in operator.axes:
                raise InputError(f"{where} has no axis {name!r}{nearest(name, operator.axes)}")
        raise InputError(f"{where}: the workload does not bind the axis {axis.name!r}")
    return checked_axis(axis.name, value, where, least=0)


def check_outputs(operator: Operator, axes: Mapping[str, int]) -> None:
    """Refuse a workload of which nothing would come: an output without elements.

    Inputs may be empty: a cache at the first token is.

    Raises:
        InputError: Says which axis is zero, and of which output.
    """
    for spec in operator.outputs:
        for part in spec.shape or ():
            if axes.get(part) == 0:
                raise InputError(
                    f"operator {operator.name!r}: axis {part!r} is 0, which leaves the output "
                    f"{spec.name!r} empty; a whole number from 1 to {AXIS_LIMIT} is needed there"
                )


def flops_of(operator: Operator, workload: Workload) -> float | None:
    """Return the operator's floating-point operations on a workload, or None where unknown."""
    return _amount(operator, workload, operator.flops, "flops")


def bytes_of(operator: Operator, workload: Workload) -> float | None:
    """Return the least bytes that must move through memory, or None where unknown."""
    return _amount(operator, workload, operator.bytes_moved, "bytes_moved")


def tensor_bytes(operator: Operator, workload: Workload) -> float:
    """Return the bytes of all inputs and outputs that take part: each passes through memory once.

    A tensor of which a kernel needs to read only a part counts whole.
    """
    axes = axis_values(operator, workload)
    present = [s for s in operator.inputs if not s.optional or workload.options.get(s.name)]
    total = 0.0
    for spec in (*present, *operator.outputs):
        if spec.shape is not None:
            extents = (axes[part] if part in axes else int(part) for part in spec.shape)
            total += math.prod(extents) * ELEMENT_BYTES[spec.dtype]
    return total


def amount_names(operator: Operator) -> tuple[str, ...]:
    """Return what FLOPs and bytes may be expressed in: axes, and optional inputs as 0 or 1."""
    return (*operator.axes, *(spec.name for spec in operator.inputs if spec.optional))


def _amount(operator: Operator, workload: Workload, text: str | None, what: str) -> float | None:
    if text is None:
        return None
    values = axis_values(operator, workload)
    for spec in operator.inputs:
        if spec.optional:
            values[spec.name] = int(bool(workload.options.get(spec.name, False)))
    return float(_evaluate(text, values, f"operator {operator.name!r}: {what}"))


def evaluate_over_axes(text: str, axes: Mapping[str, int], what: str) -> float:
    """Evaluate arithmetic text over axes: ``+ - * / // % **`` and parentheses.

    Raises:
        InputError: The text is no such arithmetic, names an unknown axis, or divides by zero.
    """
    return float(_evaluate(text, axes, what))


def _evaluate(text: str, axes: Mapping[str, int], what: str) -> int | float:
    compiled = _compiled(text, tuple(axes), what)
    try:
        result = compiled.function(*(axes[name] for name in compiled.names))
    except ZeroDivisionError:
        raise InputError(f"{what} {text!r} divides by zero") from None
    except (ArithmeticError, ValueError) as error:
        raise InputError(f"{what} {text!r} cannot be computed ({error})") from None
    assert isinstance(result, int | float)
    return result


@lru_cache(maxsize=512)
def _compiled(text: str, names: tuple[str, ...], what: str) -> Expression:
    return compile_expression(text, names, what=f"{what} {text!r}", logic=False, noun="axis")
