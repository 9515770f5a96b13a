"""Torch's variants of a problem as solutions, to be timed by the harness beside ours.

    python -m kernelarc.bench.experiments.sol_baselines PROBLEM -o FOLDER

Writes ``compile.json`` (the reference through ``torch.compile``) and, for a product with a
residual, ``addmm.json`` (one call of ``torch.addmm`` into the output). The harness times the
reference itself beside every solution; ``sol_scores`` takes the fastest of all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelarc.bench.experiments.sol_scores import named_problem
from kernelarc.genomes import (
    Operator,
    Problem,
    Solution,
    matmul_roles,
    recognised,
)

FILE = "solution.py"


def _solution(operator: Operator, kind: str, source: str, *, passing: bool) -> Solution:
    compile(source, FILE, "exec")
    return Solution(
        name=f"torch_{kind}_{operator.name}",
        definition=operator.name,
        author="torch",
        languages=("pytorch",),
        entry_point=f"{FILE}::run",
        sources={FILE: source},
        hardware=("LOCAL",),
        dependencies=("torch",),
        destination_passing=passing,
        description=f"baseline: {kind}",
    )


def compiled(operator: Operator) -> Solution:
    """Return the reference through ``torch.compile``, compiled anew for every shape."""
    names = ", ".join(spec.name for spec in operator.inputs)
    source = (
        f"{str(operator.reference).replace('def run(', 'def _reference(')}\n\n"
        "import torch._dynamo\n\n"
        "torch._dynamo.config.cache_size_limit = 64\n"
        "_compiled = torch.compile(_reference, dynamic=False)\n\n\n"
        f"def run({names}):\n    return _compiled({names})\n"
    )
    return _solution(operator, "compile", source, passing=False)


def fused(problem: Problem) -> Solution | None:
    """Return ``torch.addmm`` for a product with a residual and a transposed weight, else None."""
    operator = recognised(problem.operator)
    roles = matmul_roles(operator, problem.workloads[0])
    if roles is None or roles.residual is None or roles.batch or not roles.transpose_b:
        return None
    names = [spec.name for spec in (*operator.inputs, *operator.outputs)]
    out = operator.outputs[0].name
    source = (
        "import torch\n\n\n@torch.no_grad()\n"
        f"def run({', '.join(names)}):\n"
        f"    n, k = {roles.b}.shape\n"
        f"    left, added = {roles.a}.view(-1, k), {roles.residual}.view(-1, n)\n"
        f"    torch.addmm(added, left, {roles.b}.t(), out={out}.view(-1, n))\n"
    )
    return _solution(operator, "addmm", source, passing=True)


def main() -> None:
    """Write the solutions into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    problem = named_problem(given.problem)
    given.output.mkdir(parents=True, exist_ok=True)
    made = {"compile": compiled(problem.operator), "addmm": fused(problem)}
    for kind, solution in made.items():
        if solution is not None:
            (given.output / f"{kind}.json").write_text(solution.text())
            print(f"wrote {given.output / f'{kind}.json'}")


if __name__ == "__main__":
    main()
