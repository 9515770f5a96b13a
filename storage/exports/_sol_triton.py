"""A solution for kernels of a packaged Triton route: their source, and a table of launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from kernelarc.genomes import (
    Genome,
    InputError,
    MissingPartError,
    Operator,
    Solution,
    Workload,
)
from kernelarc.genomes.kernels import InputArgument, Zeroing, kernel_routes
from kernelarc.genomes.triton import Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute
from kernelarc.storage.exports._sol_rows import audited_rows
from kernelarc.storage.exports._sol_words import about, solution_name
from kernelarc.storage.exports._subject import Subject

_FILLED = re.compile(r"# -- names and table: .*?# -- end --\n", re.DOTALL)
FILE, REFERENCE = "solution.py", "reference.py"


def triton_solution(subject: Subject) -> Solution:
    """Return the solution of a campaign whose bests are genomes of a packaged Triton route.

    Raises:
        InputError: The kernels are the user's own, or a genome overwrites an input.
        MissingPartError: Triton is not installed.
    """
    return Solution(
        name=solution_name(subject, "triton"),
        definition=subject.operator.name,
        author="kernelarc",
        languages=("triton",),
        entry_point=f"{FILE}::run",
        sources=triton_sources(subject, FILE),
        dependencies=("torch", "triton"),
        description=about(subject),
    )


def triton_sources(subject: Subject, file: str) -> dict[str, str]:
    """Return the sources that launch the kernels, by path; ``file`` holds table and entry.

    Raises:
        InputError: As ``triton_solution``.
        MissingPartError: Triton is not installed.
    """
    operator, route = subject.operator, _route(subject)
    key = key_of(operator)
    rows = {
        key_values(operator, workload, key): steps_of(route, workload, genome)
        for workload, genome in audited_rows(subject, route)
    }
    template = files("kernelarc.storage.exports.solutions").joinpath("triton_solution.py")
    source = _FILLED.sub(lambda _: filled(route, key, rows), template.read_text("utf-8"))
    source += entry(operator)
    compile(source, file, "exec")
    modules = {f"{name}.py": text for name, text in route.sources().items()}
    return {file: source, **modules, REFERENCE: str(operator.reference)}


def _route(subject: Subject) -> PackagedTritonRoute:
    for route in kernel_routes(subject.operator):
        if isinstance(route, PackagedTritonRoute):
            missing = route.missing()
            if missing is not None:
                raise MissingPartError(f"format sol describes Triton's launches: {missing}")
            return route.on(subject.device("sm_90a"))
    raise InputError(
        f"campaign {subject.campaign.id}: format sol writes kernels that come with kernelarc; for "
        f"a kernel of your own, format triton writes its configurations"
    )


# What tells shapes apart


def key_of(operator: Operator) -> dict[str, tuple[str, int]]:
    """Return for each var axis an input and the dimension that shows the axis.

    Raises:
        InputError: No input has the axis as a dimension.
    """
    found: dict[str, tuple[str, int]] = {}
    for spec in operator.inputs:
        for place, part in enumerate(spec.shape or ()):
            found.setdefault(part, (spec.name, place))
    names = [name for name, axis in operator.axes.items() if axis.kind == "var"]
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"format sol: no input of {operator.name!r} shows the axis {missing[0]!r}")
    return {name: found[name] for name in names}


def key_values(
    operator: Operator, workload: Workload, key: Mapping[str, tuple[str, int]]
) -> tuple[int, ...]:
    """Return a workload's values of the axes of a key."""
    return tuple(workload.axes[name] for name in key)


# Launches as text


def steps_of(route: PackagedTritonRoute, workload: Workload, genome: Genome) -> str:
    """Return the launches of a genome as a Python expression.

    Raises:
        InputError: The genome writes an output into the buffer of an input.
    """
    if route.aliases(workload, genome):
        raise InputError(
            f"workload {workload.label!r}: its genome overwrites an input; run without in_place"
        )
    calls = route.calls(workload, genome, "sm_90a")
    scratch = {
        each.name: (each.nbytes, each.zeroing is not Zeroing.NEVER)
        for call in calls
        for each in call.scratch
    }
    steps = "".join(f"            {_step(call)},\n" for call in calls)
    return f'{{\n        "scratch": {scratch!r},\n        "steps": [\n{steps}        ],\n    }}'


def _step(call: TritonCall) -> str:
    given = {name: _argument(value) for name, value in call.arguments.items()}
    constants = ", ".join(f"{n!r}: {_constant(v)}" for n, v in call.constants.items())
    options = {name: value for name, value in call.options.items() if value is not None}
    clears = [(c.target.name, c.target.offset_bytes, c.nbytes) for c in call.clears]
    order = tuple(parameter.name for parameter in call.function.params)
    return (
        f'{{"kernel": {_kernel_name(call)!r}, "grid": {call.grid!r}, '
        f'"clears": {clears!r}, "order": {order!r}, "arguments": {given!r}, '
        f'"constants": {{{constants}}}, "options": {options!r}}}'
    )


def _kernel_name(call: TritonCall) -> str:
    """Return ``module.kernel``."""
    function = call.function.fn
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def _argument(value: Any) -> object:
    if isinstance(value, Pointer):
        return ("pointer", value.target.name, value.target.offset_bytes, value.dtype)
    if isinstance(value, InputArgument):
        return ("number", value.name, 0, value.kind)
    if isinstance(value, Descriptor):
        padding = "nan" if value.nan_fill else "zero"
        form = (value.shape, value.strides, value.block, padding)
        return ("descriptor", value.target.name, value.target.offset_bytes, value.dtype, *form)
    return value


def _constant(value: Any) -> str:
    """Return a constant as Python text; a type of Triton by its name there."""
    if type(value).__name__ == "dtype":
        names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
        return f"tl.{names.get(str(value), str(value))}"
    return repr(value)


def filled(
    route: PackagedTritonRoute,
    key: Mapping[str, tuple[str, int]],
    rows: Mapping[tuple[int, ...], str],
) -> str:
    """Return what takes the place of a template's names and table."""
    operator, modules = route.operator, list(route.sources())
    lines = [
        *(f"import {name}  # noqa: E402" for name in modules),
        "",
        f"MODULES: dict[str, Any] = {{{', '.join(f'{name!r}: {name}' for name in modules)}}}",
        f"INPUTS: tuple[str, ...] = {tuple(spec.name for spec in operator.inputs)!r}",
        f"OUTPUTS: tuple[str, ...] = {tuple(spec.name for spec in operator.outputs)!r}",
        f"KEY: tuple[tuple[str, int], ...] = {tuple(key.values())!r}  # {', '.join(key)}",
        "TABLE: dict[tuple[int, ...], dict[str, Any]] = {",
        *(f"    {values!r}: {steps}," for values, steps in rows.items()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def entry(operator: Operator) -> str:
    """Return the source of ``run``: inputs in order, then outputs."""
    names = [spec.name for spec in (*operator.inputs, *operator.outputs)]
    pairs = ", ".join(f'"{name}": {name}' for name in names)
    return (
        f"\n\ndef run({', '.join(names)}):\n"
        f'    """Write the outputs; the inputs stay as they are."""\n'
        f"    launch({{{pairs}}})\n"
    )
