"""The target ``matmul``: a problem from what a person says about a matrix product.

Options fall in two: those of the form (types, layout, what is fused) make the operator, those of
the job (scratch memory, aliasing, cache state) go with each workload and fit any operator that is
a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from kernelarc.genomes._axes import checked_axis
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._operators import Problem, Workload
from kernelarc.genomes.routes._matmul import (
    ACTIVATIONS,
    LAYOUTS,
    MOST_WORKSPACE_MIB,
    TF32_TOLERANCE,
    MatmulForm,
    matmul_operator,
    matmul_problem,
)

MATMUL = "matmul"
MATMUL_AXES: Mapping[str, int] = MappingProxyType({"M": 4096, "N": 4096, "K": 4096})
"""Axes of the target with their defaults; a batch ``B`` is there only where it is set."""

Option: TypeAlias = "bool | int | str"
_Reader: TypeAlias = Callable[[str, Option], Option]

_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "tf32": "float32",
    "fp8": "float8_e4m3fn",
}


def _switch(name: str, value: Option) -> Option:
    if not isinstance(value, bool):
        raise InputError(f"option {name} is true or false, not {value!r}")
    return value


def _one_of(*known: str) -> _Reader:
    def read(name: str, value: Option) -> Option:
        if value not in known:
            raise InputError(f"option {name} cannot be {value!r}{nearest(str(value), known)}")
        return value

    return read


def _mebibytes(name: str, value: Option) -> Option:
    if type(value) is not int or not 0 <= value <= MOST_WORKSPACE_MIB:
        most = MOST_WORKSPACE_MIB
        raise InputError(f"option {name} is a whole number from 0 to {most}, not {value!r}")
    return value


_FORM: Mapping[str, _Reader] = {
    "dtype": _one_of(*_DTYPES, *dict.fromkeys(_DTYPES.values())),
    "layout": _one_of(*LAYOUTS),
    "residual": _switch,
    "bias": _switch,
    "epilogue": _one_of(*ACTIVATIONS),
}
_JOB: Mapping[str, _Reader] = {
    "workspace_mib": _mebibytes,
    "in_place": _switch,
    "tf32": _switch,
    "fast_accum": _switch,
    "cache": _one_of("cold", "warm"),
    "deterministic": _switch,
    "warp_specialize": _switch,
}

# Options of which a job of other types knows nothing.
_FOR_TYPES: Mapping[str, str] = {"tf32": "float32", "fast_accum": "float8"}


def job_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return those options that belong to the job and not to the operator."""
    return {name: value for name, value in options.items() if name in _JOB}


def matmul_target(workloads: Sequence[Mapping[str, int]], options: Mapping[str, Option]) -> Problem:
    """Return the problem of the target ``matmul``.

    Args:
        workloads: Axes out of ``B M N K``, one mapping a workload; absent ones take the default.
        options: Of form and job. A residual lies in the output's buffer unless ``in_place`` is
            false: what a library then needs not write twice.

    Raises:
        InputError: An axis or option is unknown, its value is not what it must be, or an option has
            nothing to act on.
    """
    known = {**_FORM, **_JOB}
    for name, value in options.items():
        if name not in known:
            raise InputError(f"matmul has no option {name!r}{nearest(name, known)}")
        known[name](name, value)
    batched = any("B" in axes for axes in workloads)
    shapes = [_shape(axes, batched=batched) for axes in workloads or [{}]]
    given = job_options(options)
    if given.get("in_place") is True and options.get("residual") is not True:
        raise InputError("option in_place is for a residual: give residual=true, too")
    if options.get("residual") is True:
        given = {"in_place": True, **given}
    if options.get("dtype") == "tf32":
        given = {"tf32": True, **given}
    problem = matmul_problem(matmul_operator(_form(options, batched=batched)), shapes)
    return with_job_options(problem, given)


def _form(options: Mapping[str, Option], *, batched: bool) -> MatmulForm:
    dtype = str(options.get("dtype", "bf16"))
    return MatmulForm(
        dtype=_DTYPES.get(dtype, dtype),
        layout=str(options.get("layout", "TN")),
        residual=options.get("residual") is True,
        bias=options.get("bias") is True,
        activation=str(options.get("epilogue", "none")),
        batched=batched,
    )


def _shape(axes: Mapping[str, int], *, batched: bool) -> dict[str, int]:
    known = {**({"B": 1} if batched else {}), **MATMUL_AXES}
    for name in axes:
        if name not in known:
            raise InputError(f"matmul has no axis {name!r}{nearest(name, ('B', *MATMUL_AXES))}")
    bound = {**known, **axes}
    return {name: checked_axis(name, value, "matmul") for name, value in bound.items()}


def with_job_options(problem: Problem, options: Mapping[str, Option]) -> Problem:
    """Return a problem whose workloads carry options of the job; those that are off say nothing.

    Raises:
        InputError: An option is unknown, its value is not what it must be, or it has nothing to act
            on. A library would refuse it; routes that do not look at it would run, and say nothing.
    """
    for name, value in options.items():
        if name not in _JOB:
            raise InputError(
                f"operator {problem.operator.name!r} has no option {name!r}{nearest(name, _JOB)}"
            )
        _JOB[name](name, value)
        kind = _FOR_TYPES.get(name)
        matrices = (spec for spec in problem.operator.inputs if len(spec.shape or ()) > 1)
        found = dict.fromkeys(spec.dtype for spec in matrices)
        if kind is not None and value is True and not any(t.startswith(kind) for t in found):
            raise InputError(f"option {name} is for {kind} factors, not {', '.join(found)}")
    workloads = tuple(_with(workload, options) for workload in problem.workloads)
    return Problem(operator=problem.operator, workloads=workloads)


def _with(workload: Workload, options: Mapping[str, Option]) -> Workload:
    merged = {
        name: value for name, value in {**workload.options, **options}.items() if value is not False
    }
    tolerance = TF32_TOLERANCE if merged.get("tf32") else workload.tolerance
    return replace(workload, options=merged, tolerance=tolerance)
