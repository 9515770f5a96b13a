"""The problems that come with kernelarc for a GPU: folders as SOL-ExecBench has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from kernelarc.genomes._axes import axis_values, checked_axis
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._operators import Problem, Workload
from kernelarc.genomes._workloads import load_problem

PROBLEMS = (
    "gemm_residual",
    "moe_swiglu_backward",
    "moe_swiglu_saved_backward",
    "moe_layer_backward",
    "moe_layer_backward_wide",
    "add_rmsnorm_bf16",
    "rmsnorm",
    "swiglu",
    "geglu",
    "decoder_block",
    "nvfp4_gqa",
    "gqa_paged_prefill",
    "gqa_paged_decode",
    "gqa_ragged_prefill",
)


def packaged_problems() -> tuple[str, ...]:
    """Return the names of the packaged problems."""
    return PROBLEMS


@cache
def _whole(name: str) -> Problem:
    if name not in PROBLEMS:
        raise InputError(f"there is no packaged problem {name!r}{nearest(name, PROBLEMS)}")
    with as_file(files("kernelarc.genomes").joinpath("operators", name)) as folder:
        return load_problem(Path(folder))


def packaged_problem(name: str, shapes: Sequence[Mapping[str, int]] = ()) -> Problem:
    """Return a packaged problem, with its own workloads or with shapes that are given.

    Args:
        name: One of ``packaged_problems()``.
        shapes: Axes of each workload; an absent axis takes the first workload's value. None
            gives the problem's own workloads. The tolerance is that of the packaged workload
            whose axes are nearest.

    Raises:
        InputError: The problem or an axis is unknown, or a value is no axis.
    """
    whole = _whole(name)
    if not shapes:
        return whole
    workloads = tuple(_shaped(whole, shape) for shape in shapes)
    return Problem(operator=whole.operator, workloads=workloads)


def _shaped(whole: Problem, shape: Mapping[str, int]) -> Workload:
    operator, first = whole.operator, whole.workloads[0]
    for axis in shape:
        if axis not in first.axes:
            raise InputError(
                f"problem {operator.name!r} has no axis {axis!r}{nearest(axis, first.axes)}"
            )
    axes = {**first.axes, **shape}
    axes = {axis: checked_axis(axis, value, operator.name) for axis, value in axes.items()}
    for workload in whole.workloads:
        if workload.axes == axes:
            return workload
    like = min(whole.workloads, key=lambda w: _distance(w.axes, axes))
    made = replace(like, axes=axes, uuid="")
    axis_values(operator, made)
    return made


def _distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Return how far shapes are apart: the factors between them, multiplied."""
    factor = 1.0
    for axis, value in one.items():
        factor *= max(value, other[axis]) / min(value, other[axis])
    return factor
