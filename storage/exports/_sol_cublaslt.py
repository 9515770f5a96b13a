"""A solution for a matrix product: its sources call cuBLASLt with what was found for each shape."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelarc.genomes import (
    InputError,
    MatmulJob,
    MatmulRoles,
    Solution,
    axis_values,
    matmul_job,
    matmul_roles,
)
from kernelarc.storage.exports._cublaslt import ALGORITHM, Choice, choices, recorded
from kernelarc.storage.exports._sol_library import packaged_source
from kernelarc.storage.exports._sol_words import about, solution_name
from kernelarc.storage.exports._subject import Subject

_FILLED = re.compile(r"# -- form and table: .*?# -- end --\n", re.DOTALL)
_TORCH = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}
FILE = "solution.py"


def cublaslt_solution(subject: Subject) -> Solution:
    """Return the solution of a campaign whose bests are algorithms of cuBLASLt.

    Raises:
        InputError: No best was audited, or the product has 8-bit factors.
    """
    source, in_place = cublaslt_source(subject)
    return Solution(
        name=solution_name(subject, "cublaslt"),
        definition=subject.operator.name,
        author="kernelarc",
        languages=("pytorch",),
        entry_point=f"{FILE}::run",
        sources={FILE: source},
        dependencies=("torch",),
        destination_passing=not in_place,
        description=about(subject),
    )


def cublaslt_source(subject: Subject) -> tuple[str, bool]:
    """Return the source that calls the library, and whether it overwrites the residual.

    Raises:
        InputError: As ``cublaslt_solution``.
    """
    chosen = choices(subject)
    jobs = [_job(subject, place) for place in range(len(subject.workloads))]
    roles = matmul_roles(subject.operator, subject.workloads[0])
    if roles is None or jobs[0].dtype not in _TORCH:
        raise InputError(
            f"campaign {subject.campaign.id}: format sol writes products of "
            f"{', '.join(_TORCH)}, not of {jobs[0].dtype}"
        )
    in_place = any(_aliased(choice) for choice in chosen)
    source = _FILLED.sub(lambda _: _form(jobs, chosen), packaged_source("cublaslt_solution.py"))
    source += _run(subject, roles, in_place=in_place)
    compile(source, FILE, "exec")
    return source, in_place


def _job(subject: Subject, place: int) -> MatmulJob:
    workload = subject.workloads[place]
    job = matmul_job(subject.operator, workload, axis_values(subject.operator, workload))
    if job is None:
        raise InputError(f"workload {workload.label!r} is no matrix product")
    return job


def _aliased(choice: Choice) -> bool:
    if choice.use != ALGORITHM or choice.evaluation is None:
        return False
    return bool(choice.evaluation.candidate.genome.get("aliased", False))


def _form(jobs: list[MatmulJob], chosen: list[Choice]) -> str:
    job = jobs[0]
    rows: Mapping[tuple[int, ...], str] = {
        (each.batch, each.m, each.n, each.k): _row(choice)
        for each, choice in zip(jobs, chosen, strict=True)
    }
    lines = [
        f"DTYPE, OUT_DTYPE = torch.{_TORCH[job.dtype]}, torch.{_TORCH[job.out_dtype]}",
        f"TRANSPOSE_A, TRANSPOSE_B = {job.transpose_a}, {job.transpose_b}",
        f'ACTIVATION = "{job.activation}"',
        f"TF32 = {job.tf32}",
        f"WORKSPACE_BYTES = {max(each.workspace_bytes for each in jobs)}",
        "# (batch, m, n, k): algorithm, tile, split-K, reduction, swizzle, custom, stages, inner, "
        "cluster",
        "TABLE: dict[tuple[int, int, int, int], tuple[int, ...]] = {",
        *(f"    {key}: {row}" for key, row in rows.items() if not row.startswith("#")),
        *(f"    # {key}{row[1:]}" for key, row in rows.items() if row.startswith("#")),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _row(choice: Choice) -> str:
    """Return a row of the table, or a comment that says why there is none."""
    if choice.use != ALGORITHM or choice.evaluation is None:
        return f"#: {choice.why}; the library's first heuristic runs"
    attributes, _ = recorded(choice.evaluation)
    found = choice.best.speedup if choice.best is not None else None
    gain = "" if found is None else f"  # {found.value:.4f} [{found.low:.4f}, {found.high:.4f}]"
    return f"{tuple(attributes)},{gain}"


def _run(subject: Subject, roles: MatmulRoles, *, in_place: bool) -> str:
    inputs = [spec.name for spec in subject.operator.inputs]
    out = subject.operator.outputs[0].name
    extra = ""
    for role, name in (("residual", roles.residual), ("bias", roles.bias)):
        extra += "" if name is None else f", {role}={name}"
    if in_place:
        return (
            f"\n\ndef run({', '.join(inputs)}):\n"
            f'    """Overwrite the residual: what the search was allowed to do."""\n'
            f"    multiply({roles.a}, {roles.b}, {roles.residual}{extra})\n"
            f"    return {roles.residual}\n"
        )
    return (
        f"\n\ndef run({', '.join((*inputs, out))}):\n"
        f'    """Write the output; the inputs stay as they are."""\n'
        f"    multiply({roles.a}, {roles.b}, {out}{extra})\n"
    )
