"""The operators that come with kernelarc, and problems made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from kernelarc.genomes._axes import axis_values, checked_axis, evaluate_over_axes
from kernelarc.genomes._definitions import operator_from_json
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._operators import Operator, Problem, Workload
from kernelarc.genomes._workloads import tolerance_from_json

NAMES = ("gemm", "add_rmsnorm")

_NO_AXES: Mapping[str, int] = MappingProxyType({})
_NO_OPTIONS: Mapping[str, bool | int | str] = MappingProxyType({})


@cache
def _content(name: str) -> Mapping[str, Any]:
    if name not in NAMES:
        raise InputError(f"there is no built-in operator {name!r}{nearest(name, NAMES)}")
    text = files("kernelarc.genomes").joinpath("operators", f"{name}.json").read_text("utf-8")
    content: Mapping[str, Any] = json.loads(text)
    return content


@cache
def _operator(name: str) -> Operator:
    return operator_from_json(_content(name), f"built-in operator {name!r}")


def builtin_operators() -> Mapping[str, Operator]:
    """Return the built-in operators by name."""
    return MappingProxyType({name: _operator(name) for name in NAMES})


def builtin_workloads(name: str) -> tuple[Workload, ...]:
    """Return the workloads that come with a built-in operator; the first is the default.

    Raises:
        InputError: There is no such operator; the message says the nearest.
    """
    return tuple(
        _workload(name, item["axes"], _NO_OPTIONS, item["uuid"])
        for item in _content(name)["workloads"]
    )


def builtin_problem(
    name: str,
    axes: Mapping[str, int] = _NO_AXES,
    options: Mapping[str, bool | int | str] = _NO_OPTIONS,
) -> Problem:
    """Return a built-in operator with one workload: the default one, with axes overridden.

    Args:
        name: ``"gemm"`` (axes M, N, K) or ``"add_rmsnorm"`` (axes rows, hidden).
        axes: Replaces axes of the default workload.
        options: ``{"residual": True}`` gives ``gemm`` its residual. An option that is off is the
            same as none.

    Raises:
        InputError: The operator, an axis or an option is unknown, or an axis is no whole number
            from 1 on.
    """
    operator, default = _operator_of(name), builtin_workloads(name)[0]
    for axis in axes:
        if axis not in default.axes:
            raise InputError(f"operator {name!r} has no axis {axis!r}{nearest(axis, default.axes)}")
    bound = {**default.axes, **axes}
    chosen = _options(operator, options)
    if bound == default.axes and not chosen:
        return Problem(operator=operator, workloads=(default,))
    return Problem(operator=operator, workloads=(_workload(name, bound, chosen, ""),))


def _operator_of(name: str) -> Operator:
    _content(name)
    return _operator(name)


def _options(
    operator: Operator, options: Mapping[str, bool | int | str]
) -> dict[str, bool | int | str]:
    """Check options and keep those that are on."""
    known = [spec.name for spec in operator.inputs if spec.optional]
    for name, value in options.items():
        if name not in known:
            raise InputError(
                f"operator {operator.name!r} has no option {name!r}{nearest(name, known)}"
            )
        if not isinstance(value, bool):
            raise InputError(
                f"operator {operator.name!r}: option {name!r} is true or false, not {value!r}"
            )
    return {name: True for name, value in options.items() if value}


def _workload(
    name: str,
    axes: Mapping[str, int],
    options: Mapping[str, bool | int | str],
    uuid: str,
) -> Workload:
    operator, where = _operator_of(name), f"operator {name!r}"
    bound = {axis: checked_axis(axis, value, where) for axis, value in axes.items()}
    present = [s.name for s in operator.inputs if not s.optional or options.get(s.name)]
    workload = Workload(
        operator=operator.fingerprint,
        axes=bound,
        uuid=uuid,
        inputs={key: {"type": "random"} for key in present},
        options=dict(options),
    )
    return _with_tolerance(workload, operator, _content(name)["tolerance"])


def _with_tolerance(workload: Workload, operator: Operator, content: Mapping[str, Any]) -> Workload:
    """Add the tolerance; a text in it is arithmetic over the axes (a longer sum errs more)."""
    axes, where = axis_values(operator, workload), f"operator {operator.name!r}"
    numbers = {
        key: evaluate_over_axes(value, axes, f"{where}: {key}") if isinstance(value, str) else value
        for key, value in content.items()
    }
    return Workload(
        operator=workload.operator,
        axes=workload.axes,
        uuid=workload.uuid,
        inputs=workload.inputs,
        tolerance=tolerance_from_json(numbers, where),
        options=workload.options,
    )
