"""Refusing problems that cannot fit into this machine's memory, before anything is written."""

from __future__ import annotations

import os

from kernelarc.genomes import InputError, Operator, Problem, TensorSpec, Workload, axis_values

# Inputs, outputs, the reference's own copies and a float64 reference of the outputs.
_COPIES = 3
_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}


def refuse_absurd(problem: Problem) -> None:
    """Check that every workload's tensors fit into memory, copies for checking included.

    Raises:
        InputError: One does not; the message says how much it needs and how much there is.
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for workload in problem.workloads:
        needed = _COPIES * tensor_bytes(problem.operator, workload)
        if needed > there:
            raise InputError(
                f"{problem.operator.name} {workload.label}: checking a candidate takes about "
                f"{_shown(needed)} of memory, this machine has {_shown(there)}; "
                f"choose smaller axes"
            )


def tensor_bytes(operator: Operator, workload: Workload) -> int:
    """Return the bytes of all inputs and outputs together, optional ones included."""
    axes = axis_values(operator, workload)
    return sum(_bytes_of(tensor, axes) for tensor in (*operator.inputs, *operator.outputs))


def _bytes_of(tensor: TensorSpec, axes: dict[str, int]) -> int:
    size = next((n for bits, n in _BYTES.items() if bits in tensor.dtype), 4)
    for dimension in tensor.shape or ():
        size *= int(dimension) if dimension.isdigit() else axes[dimension]
    return size


def _shown(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:,.1f} GiB"
