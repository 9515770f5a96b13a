"""Torch's variants of a problem as solutions, to be timed beside ours.

    python -m kernelarc.bench.experiments.sol_baselines PROBLEM -o FOLDER

PROBLEM is a problem folder or a packaged problem. Writes ``compile.json`` (the reference through
``torch.compile``, default mode) where the reference never waits for the device, and what torch has
for the operator: the very forms that a campaign times as baselines (``torch_forms``), each as it
is, ``NAME.json``, and, where it is one graph, through ``torch.compile``, ``NAME_compile.json``. The
harness times the reference itself beside every solution; ``sol_scores`` takes the fastest of all,
``sol_race`` times all of them in turn.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from kernelarc.bench.experiments.sol_scores import named_problem
from kernelarc.genomes import Operator, Problem, Solution, torch_forms

FILE = "solution.py"
_WAITS = re.compile(r"\.tolist\(\)|\.item\(\)|torch\.where\(\w+ == \w+\)")


def _solution(operator: Operator, kind: str, source: str, function: str = "run") -> Solution:
    compile(source, FILE, "exec")
    return Solution(
        name=f"torch_{kind}_{operator.name}",
        definition=operator.name,
        author="torch",
        languages=("pytorch",),
        entry_point=f"{FILE}::{function}",
        sources={FILE: source},
        hardware=("LOCAL",),
        dependencies=("torch",),
        destination_passing=False,
        description=f"baseline: {kind}",
    )


def compiled(operator: Operator, kind: str, source: str, function: str) -> Solution:
    """Return a function through ``torch.compile``, compiled anew for every shape.

    Args:
        operator: Whose inputs it takes.
        kind: What the solution is called.
        source: Of a module that has the function.
        function: Its name.
    """
    names = ", ".join(spec.name for spec in operator.inputs)
    given = ", ".join(  # torch.compile knows no 4-bit type: such a tensor goes in as bytes
        f"{spec.name}.view(torch.uint8)" if spec.dtype.startswith("float4") else spec.name
        for spec in operator.inputs
    )
    more = (
        "\n\nimport torch._dynamo\n\n"
        "torch._dynamo.config.cache_size_limit = 64\n"
        f"_compiled = torch.compile({function}, dynamic=False)\n\n\n"
        f"def compiled_run({names}):\n    return _compiled({given})\n"
    )
    return _solution(operator, kind, source + more, "compiled_run")


def variants(problem: Problem) -> Mapping[str, Solution]:
    """Return what torch has for a problem beside the reference itself, by name."""
    operator, reference = problem.operator, str(problem.operator.reference)
    made: dict[str, Solution] = {}
    if _WAITS.search(reference) is None:
        made["compile"] = compiled(operator, "compile", reference, "run")
    for form in torch_forms(operator):
        made[form.name] = _solution(operator, form.name, form.source, form.function)
        if form.compiles:
            kind = f"{form.name}_compile"
            made[kind] = compiled(operator, kind, form.source, form.function)
    return made


def main() -> None:
    """Write the solutions into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    for kind, solution in variants(named_problem(given.problem)).items():
        (given.output / f"{kind}.json").write_text(solution.text())
        print(f"wrote {given.output / f'{kind}.json'}")


if __name__ == "__main__":
    main()
