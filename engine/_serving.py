"""Which routes of which device serve an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernelarc.bench.kernelfolder import brings_kernel
from kernelarc.genomes import (
    LT_ROUTE,
    InputError,
    Operator,
    Workload,
    axis_values,
    matmul_job,
    recognised,
)
from kernelarc.genomes.kernels import kernel_routes
from kernelarc.genomes.routes import cpu_routes

_GPU, _OWN = "cuda:N", "kernel.toml"

Serving = Mapping[str, Sequence[str]]
"""Names of routes by device; a device without any is not in it."""


def serving(
    operator: Operator, workloads: Iterable[Workload], folder: Path | None = None
) -> Serving:
    """Return what serves an operator, whether or not its parts are installed here.

    Args:
        operator: Of a named target, or of a problem folder.
        workloads: A library's matrix products must take all of them.
        folder: The problem folder; such run on a GPU, and by their own kernel where they bring one.
    """
    if folder is not None and brings_kernel(folder):
        return {_GPU: (_OWN,)}
    known = recognised(operator)
    library = (LT_ROUTE,) if _is_product(known, list(workloads)) else ()
    found = {
        "cpu": tuple(cpu_routes(operator)) if folder is None else (),
        _GPU: (*library, *(route.name for route in kernel_routes(known))),
    }
    return {device: routes for device, routes in found.items() if routes}


def serving_text(found: Serving) -> str:
    """Return it in words: ``cpu, cuda:N (triton, cuda)``."""
    return ", ".join(
        device if routes == (device,) else f"{device} ({', '.join(routes)})"
        for device, routes in found.items()
    )


def _is_product(operator: Operator, workloads: Sequence[Workload]) -> bool:
    try:
        jobs = [matmul_job(operator, w, axis_values(operator, w)) for w in workloads]
    except InputError:  # a product that no library is given
        return False
    return bool(jobs) and None not in jobs
