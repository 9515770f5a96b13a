"""What the recorded route could guess without measuring: kept out of files, made from the job."""

from __future__ import annotations

from kernelarc.genomes import (
    LT_ROUTE,
    Environment,
    GridHint,
    Hint,
    InputError,
    Operator,
    Workload,
    axis_values,
    matmul_job,
)


def hint_of(
    route: str, operator: Operator, workload: Workload, environment: Environment
) -> Hint | None:
    """Return the hint that a recorded route has on its device, or None where it has none."""
    multiprocessors = environment.identity.get("multiprocessors", "")
    if route != LT_ROUTE or not multiprocessors.isdigit():
        return None
    try:
        job = matmul_job(operator, workload, axis_values(operator, workload))
    except InputError:
        return None
    return None if job is None else GridHint.of(job, int(multiprocessors))
