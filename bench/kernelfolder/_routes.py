"""A user's own kernel beside a problem: CUDA C++ or Triton, as ``kernel.toml`` names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.bench.kernelfile import KernelFile, read_kernel_file
from kernelarc.bench.kernelfile._target import chosen, file_route
from kernelarc.bench.kernelfolder._reading import FILE, own_cuda_route, triton_source
from kernelarc.genomes import InputError, Operator, Problem, axis_values
from kernelarc.genomes.kernels import KernelRoute


def own_route(folder: Path, problem: Problem) -> KernelRoute:
    """Return the route of the kernel that a problem's folder brings.

    Args:
        folder: Holds ``kernel.toml`` and the source that it names.
        problem: The folder's: its workloads, reference and tolerance are what counts.

    Raises:
        InputError: Something in the files is not as it must be; one line with file and field.
        MissingPartError: The source is a Triton kernel, and Triton is not installed.
    """
    path = triton_source(folder)
    if path is None:
        return own_cuda_route(folder, problem.operator)
    declared = _axes(read_kernel_file(path))
    tables = [
        {name: value for name, value in axis_values(problem.operator, workload).items()
         if name in declared}
        for workload in problem.workloads
    ]  # fmt: skip
    file = read_kernel_file(path, workloads=tables)
    said = chosen(file, None)
    _check_tensors(path, said, problem.operator)
    return file_route(file, said, problem.operator)


def _axes(file: KernelFile) -> Mapping[str, Any]:
    axes: Mapping[str, Any] = chosen(file, None)["axes"]
    return axes


def _check_tensors(path: Path, said: Mapping[str, Any], operator: Operator) -> None:
    """Refuse a declaration that is not of the definition's tensors."""
    for kind, specs in (("inputs", operator.inputs), ("outputs", operator.outputs)):
        meant = [(s.name, s.dtype, tuple(s.shape)) for s in specs if s.shape is not None]
        found = [(name, dtype, tuple(shape)) for name, dtype, shape in said[kind]]
        if found != meant:
            raise InputError(
                f"{path}: {kind} must be the definition's tensors: {_listed(meant)}; not "
                f"{_listed(found)}"
            )
    if said["in_place"]:
        raise InputError(f"{path}: in_place is not for {FILE}: a problem's inputs stay as they are")


def _listed(tensors: list[tuple[str, str, tuple[str, ...]]]) -> str:
    return ", ".join(f"{name}: {dtype} [{', '.join(shape)}]" for name, dtype, shape in tensors)
