"""Format ``sol``: a SOL-ExecBench ``solution.json`` whose sources stand alone.

The sources hold what was found for each shape and need nothing of ours. Only what an audit upheld
goes in; a shape without such a genome runs what its baseline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from kernelarc.genomes import LT_ROUTE, InputError, Solution, checked_solution
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._sol_cublaslt import cublaslt_solution
from kernelarc.storage.exports._sol_cuda import cuda_solution
from kernelarc.storage.exports._sol_mixed import mixed_solution
from kernelarc.storage.exports._sol_triton import triton_solution
from kernelarc.storage.exports._subject import Subject

SolutionMaker: TypeAlias = Callable[[Subject], Solution]

MAKERS: Mapping[str, SolutionMaker] = MappingProxyType(
    {LT_ROUTE: cublaslt_solution, "triton": triton_solution, "cuda": cuda_solution}
)
"""By the route of all audited bests."""


def sol_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write the solution.

    Raises:
        InputError: The campaign's operator is no problem in the schema's form, a best is of a
            route without sources, or no best was audited.
    """
    _check_problem(subject)
    routes = _routes(subject)
    make = MAKERS[routes[0]] if len(routes) == 1 else mixed_solution
    text = make(subject).text()
    checked_solution(text, str(path))

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return {path: write}


def _check_problem(subject: Subject) -> None:
    operator = subject.operator
    optional = any(spec.optional for spec in operator.inputs)
    if operator.reference is None or "torch" not in operator.reference or optional:
        raise InputError(
            f"campaign {subject.campaign.id}: format sol is for problems in SOL-ExecBench's form; "
            f"{operator.name!r} has no reference in torch. Run a problem folder, or a packaged "
            f"problem such as gemm_residual"
        )
    for workload in subject.workloads:
        given = [name for name in workload.axes if name in operator.axes]
        fixed = [name for name in given if operator.axes[name].kind == "const"]
        if fixed:
            raise InputError(
                f"campaign {subject.campaign.id}: workload {workload.label!r} gives the const axis "
                f"{fixed[0]!r} another value; format sol tells shapes apart by var axes only"
            )


def _routes(subject: Subject) -> tuple[str, ...]:
    audited = [best for best in subject.bests if best.audited]
    if not audited:
        raise InputError(
            f"campaign {subject.campaign.id}: no best was audited yet, and a solution holds "
            f"nothing else; 'kernelarc resume' or 'kernelarc verify' audits it"
        )
    routes = tuple(sorted({best.evaluation.candidate.genome.route for best in audited}))
    unknown = [route for route in routes if route not in MAKERS]
    if unknown:
        raise InputError(
            f"campaign {subject.campaign.id}: format sol writes the routes {', '.join(MAKERS)}, "
            f"and a best is of {unknown[0]}; run a campaign with --routes {','.join(MAKERS)}"
        )
    return routes
