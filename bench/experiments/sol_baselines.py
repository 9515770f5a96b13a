"""Torch's variants of a problem as solutions, to be timed beside ours.

    python -m kernelarc.bench.experiments.sol_baselines PROBLEM -o FOLDER

PROBLEM is a problem folder or a packaged problem. Writes ``compile.json`` (the reference through
``torch.compile``, default mode) where the reference never waits for the device, and what torch has
for one operator: ``addmm.json`` for a product with a residual, ``sdpa.json`` and
``sdpa_compile.json`` for a decoder block, ``flash.json`` (a gather, then variable-length flash
attention) for attention over pages, ``grouped.json`` and ``grouped_compile.json`` (grouped products
of all experts at once, and no wait for the device) for a routed layer. The harness times the
reference itself beside every solution; ``sol_scores`` takes the fastest of all, ``sol_race`` times
all of them in turn.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
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
_WAITS = re.compile(r"\.tolist\(\)|\.item\(\)|torch\.where\(\w+ == \w+\)")

_SDPA = '''

def _attended(q, k, v):
    """Causal attention by torch's own kernel."""
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
'''

_FLASH = """import math

import torch


@torch.no_grad()
def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    page, heads = k_cache.shape[1], k_cache.shape[2:]
    pages = kv_indices.long()
    keys, values = (c[pages].reshape(-1, *heads) for c in (k_cache, v_cache))
    starts = kv_indptr * page
    longest = torch.stack((qo_indptr.diff().max(), starts.diff().max())).tolist()
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        q, keys, values, qo_indptr, starts, *longest, 0.0, True, False, scale=sm_scale
    )
    lse = lse.t() / math.log(2)
    return output, torch.where(lse == float("inf"), -lse, lse).contiguous()
"""

_BY_EXPERT = ("def _products(rows, weights, bounds)", "def _sums(left, right, bounds)")
_GROUPED = '''

def _products(rows, weights, bounds):
    """All experts' products at once, by torch's own kernel."""
    if isinstance(bounds, list):  # one expert for all rows
        return torch.matmul(rows, weights[0])
    return torch.nn.functional.grouped_mm(rows, weights, offs=bounds[1:].to(torch.int32))


def _sums(left, right, bounds):
    if isinstance(bounds, list):
        return torch.matmul(left.t(), right)[None]
    return torch.nn.functional.grouped_mm(left.t(), right, offs=bounds[1:].to(torch.int32))
'''


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


def compiled(
    operator: Operator, *, source: str = "", more: str = "", kind: str = "compile"
) -> Solution:
    """Return the reference through ``torch.compile``, compiled anew for every shape.

    Args:
        operator: Whose reference.
        source: What takes the reference's place.
        more: Source that follows the reference's.
        kind: What the solution is called.
    """
    reference = source or str(operator.reference)
    names = ", ".join(spec.name for spec in operator.inputs)
    given = ", ".join(  # torch.compile knows no 4-bit type: such a tensor goes in as bytes
        f"{spec.name}.view(torch.uint8)" if spec.dtype.startswith("float4") else spec.name
        for spec in operator.inputs
    )
    source = (
        f"{reference.replace('def run(', 'def _reference(')}{more}\n\n"
        "import torch._dynamo\n\n"
        "torch._dynamo.config.cache_size_limit = 64\n"
        "_compiled = torch.compile(_reference, dynamic=False)\n\n\n"
        f"def run({names}):\n    return _compiled({given})\n"
    )
    return _solution(operator, kind, source, passing=False)


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


def variants(problem: Problem) -> Mapping[str, Solution]:
    """Return what torch has for a problem beside the reference itself, by name."""
    operator = problem.operator
    reference = str(operator.reference)
    made: dict[str, Solution | None] = {"addmm": fused(problem)}
    if _WAITS.search(reference) is None:
        made["compile"] = compiled(operator)
    if "def _attended(q, k, v)" in reference:
        made["sdpa"] = _solution(operator, "sdpa", reference + _SDPA, passing=False)
        made["sdpa_compile"] = compiled(operator, more=_SDPA, kind="sdpa_compile")
    if all(function in reference for function in _BY_EXPERT):
        grouped = reference.replace(".tolist()", "") + _GROUPED
        made["grouped"] = _solution(operator, "grouped", grouped, passing=False)
        made["grouped_compile"] = compiled(operator, source=grouped, kind="grouped_compile")
    if [spec.name for spec in operator.inputs][3:6] == ["qo_indptr", "kv_indptr", "kv_indices"]:
        made["flash"] = _solution(operator, "flash", _FLASH, passing=False)
    return {kind: solution for kind, solution in made.items() if solution is not None}


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
