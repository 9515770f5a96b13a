"""The source that a genome stands for: what would be compiled, and with which options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelarc.bench.kernelfile import names_kernel_file
from kernelarc.bench.kernelfolder import brings_kernel, own_cuda_route, triton_source
from kernelarc.genomes import Genome, InputError
from kernelarc.genomes.kernels import (
    DeviceLimits,
    Launch,
    LibraryProduct,
    Step,
    kernel_routes,
)
from kernelarc.genomes.routes import cpu_routes
from kernelarc.genomes.routes._cuda_route import CUDA_ROUTE, CudaRoute
from kernelarc.genomes.triton import content_of
from kernelarc.storage import CampaignRow

_CONTENT = "triton.kernel_file"


def source_of(row: CampaignRow, genome: Genome) -> str | None:
    """Return the source of a genome of a campaign with its options and macros written in.

    Returns:
        Text that a C compiler takes as it is, given the options in its first comment, or NVRTC
        for route ``cuda``; for a kernel file its text with the genome in a comment; None where
        the route has no source here (a recorded space), or it has changed since.
    """
    target = str(row.spec.settings.get("target", row.spec.target))
    if names_kernel_file(target):
        return _kernel_file(row, target, genome)
    beside = triton_source(Path(target)) if brings_kernel(Path(target)) else None
    if beside is not None:
        return _kernel_file(row, str(beside), genome)
    problem = row.spec.problem
    if genome.route == CUDA_ROUTE:
        return _cuda(row, target, genome)
    route = cpu_routes(problem.operator).get(genome.route)
    if route is None:
        return None
    macros = route.macros(genome)
    options = [option for option in route.options(genome) if not option.startswith("-D")]
    lines = [
        f"/* {problem.operator.name}, route {genome.route}, genome {genome.fingerprint} */",
        f"/* cc {' '.join(options)} */",
        *(f"#define {name} {text}" for name, text in macros.items()),
        "",
        route.source,
    ]
    return "\n".join(lines)


def _kernel_file(row: CampaignRow, target: str, genome: Genome) -> str | None:
    """Return a kernel file's text, where the file is still the one that was measured."""
    path = Path(target if target.endswith(".py") else target.rpartition(":")[0])
    try:
        if content_of(path) != row.environment.identity.get(_CONTENT):
            return None
    except InputError:
        return None
    alleles = ", ".join(f"{name}={value!r}" for name, value in genome.items())
    return f"# {path}, genome {genome.fingerprint}\n# {alleles}\n\n{path.read_text('utf-8')}"


def _cuda(row: CampaignRow, target: str, genome: Genome) -> str | None:
    """Return a CUDA source for the first workload that the genome fits."""
    problem, device = row.spec.problem, DeviceLimits.of_arch("sm_90a")
    route = _cuda_route(target, row)
    if route is None:
        return None
    for workload in problem.workloads:
        if route.unsuited(workload) is None and route.space(workload, device).contains(genome):
            ready = route.prepared(workload, genome, device.arch)
            what = f"{problem.operator.name}, {workload.label}, genome {genome.fingerprint}"
            return "\n".join([f"// {what}", *_order(ready.steps), "", ready.text])
    return None


def _order(steps: Sequence[Step]) -> list[str]:
    """Return comments that say what runs in which order, where the library has a part in it."""
    if not any(isinstance(step, LibraryProduct) for step in steps):
        return []
    lines = ["//", "// In this order:"]
    for step in steps:
        if isinstance(step, Launch):
            lines.append(f"//   {step.symbol}")
        elif isinstance(step, LibraryProduct):
            lines.append(f"//   {_product(step)}")
    return lines


def _product(step: LibraryProduct) -> str:
    left = step.left.name + ("^T" if step.left_across else "")
    right = step.right.name + ("" if step.right_across else "^T")
    added = "" if step.added is None else f" + {step.added.name}"
    return (
        f"cuBLASLt: {step.out.name} = {left} . {right}{added}, {step.rows} x {step.columns}, "
        f"depth {step.depth}, its choice {step.heuristic} with at most "
        f"{step.workspace_bytes >> 20} MiB of scratch memory"
    )


def _cuda_route(target: str, row: CampaignRow) -> CudaRoute | None:
    """Return the route whose sources are still those that were measured, or None."""
    folder, operator = Path(target), row.spec.problem.operator
    try:
        found = (
            own_cuda_route(folder, operator)
            if brings_kernel(folder)
            else next((r for r in kernel_routes(operator) if isinstance(r, CudaRoute)), None)
        )
    except InputError:
        return None
    known = row.environment.identity.items()
    then = {name.partition(".")[2]: v for name, v in known if name.startswith(f"{CUDA_ROUTE}.")}
    return found if found is not None and found.is_as_measured(then) else None
