"""A solution of several routes: each shape runs the route that won there.

A shape that no table holds runs the library's first heuristic where the library takes part, else
the reference.
"""

from __future__ import annotations

from kernelarc.genomes import LT_ROUTE, InputError, Solution
from kernelarc.storage.exports._sol_cublaslt import cublaslt_source
from kernelarc.storage.exports._sol_cuda import FILE as CUDA_FILE
from kernelarc.storage.exports._sol_cuda import (
    algorithms,
    cuda_sources,
    packaged_cuda_route,
)
from kernelarc.storage.exports._sol_rows import audited_rows
from kernelarc.storage.exports._sol_triton import triton_sources
from kernelarc.storage.exports._sol_words import about, solution_name
from kernelarc.storage.exports._subject import Subject

FILE = "solution.py"
LIBRARY, TRITON, CUDA = "library_part", "triton_part", "cuda_part"


def mixed_solution(subject: Subject) -> Solution:
    """Return the solution of a campaign whose audited bests are of several routes.

    Raises:
        InputError: A genome overwrites an input, which only a solution of one route can say.
        MissingPartError: Triton is needed and not installed.
    """
    routes = {b.evaluation.candidate.genome.route for b in subject.bests if b.audited}
    sources: dict[str, str] = {}
    if "triton" in routes:
        sources |= triton_sources(subject, f"{TRITON}.py")
    if "cuda" in routes:
        route = packaged_cuda_route(subject)
        made = cuda_sources(route, audited_rows(subject, route), algorithms(subject))
        sources |= {f"{CUDA}.py" if name == CUDA_FILE else name: t for name, t in made.items()}
    if LT_ROUTE in routes:
        sources |= {f"{LIBRARY}.py": _library(subject)}
    sources |= {FILE: _entry(subject, sources)}
    compile(sources[FILE], FILE, "exec")
    return Solution(
        name=solution_name(subject, "_".join(sorted(routes))),
        definition=subject.operator.name,
        author="kernelarc",
        languages=("triton",) if "triton" in routes else ("pytorch",),
        entry_point=f"{FILE}::run",
        sources=sources,
        dependencies=("torch", "triton") if "triton" in routes else ("torch",),
        description=about(subject),
    )


def _library(subject: Subject) -> str:
    source, in_place = cublaslt_source(subject)
    if in_place:
        raise InputError(
            f"campaign {subject.campaign.id}: format sol writes several routes only where no "
            f"genome overwrites the residual; run without in_place, or with one of --routes"
        )
    return source


def _entry(subject: Subject, sources: dict[str, str]) -> str:
    """Return the source that asks each part's table in turn."""
    names = [spec.name for spec in (*subject.operator.inputs, *subject.operator.outputs)]
    pairs = ", ".join(f'"{name}": {name}' for name in names)
    compiled = [part for part in (TRITON, CUDA) if f"{part}.py" in sources]
    library = f"{LIBRARY}.py" in sources
    parts = [*compiled, *([LIBRARY] if library else [])]
    lines = [
        '"""Each shape runs what was found fastest for it."""',
        "",
        *(f"import {part}" for part in parts),
        "",
        "",
        f"def run({', '.join(names)}):",
        '    """Write the outputs; the inputs stay as they are."""',
        f"    memory = {{{pairs}}}",
    ]
    for part in compiled:
        lines += [
            f"    if tuple(memory[n].shape[d] for n, d in {part}.KEY) in {part}.TABLE:",
            f"        return {part}.launch(memory)",
        ]
    last = f"{LIBRARY}.run({', '.join(names)})" if library else f"{compiled[0]}.launch(memory)"
    return "\n".join([*lines, f"    return {last}"]) + "\n"
