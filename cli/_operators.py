"""``kernelarc operators``: what can be searched for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kernelarc import engine, genomes
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._text import print_json, table

_LONGEST_LINE = 80
_DEFINITION, _WORKLOADS = "definition.json", "workload.jsonl"


@click.command("operators")
@click.argument("folder", metavar="[DIR]", required=False)
@AS_JSON
def command(folder: str | None, as_json: bool) -> None:
    """List the operators that can be searched for.

    Each with the devices it runs on and, of a GPU, the routes that serve it there.
    Without DIR, those that come with kernelarc, with the workloads that come with each. With DIR,
    the operators of the problem folders below it (definition.json, workload.jsonl).
    """
    found = _below(Path(folder)) if folder is not None else _builtin()
    served = {
        name: engine.serving(*entry, None if folder is None else Path(name))
        for name, entry in found.items()
    }
    if as_json:
        shown = [{**_json(name, *entry), "routes": served[name]} for name, entry in found.items()]
        print_json({"schema": 1, "operators": shown})
        return
    rows = [
        (
            name,
            engine.serving_text(served[name]) or "nothing",
            " ".join(operator.axes),
            _dtypes(operator),
            str(len(workloads)),
            _line(operator),
        )
        for name, (operator, workloads) in found.items()
    ]
    headings = ("operator", "runs on", "axes", "dtypes", "workloads", "what it computes")
    click.echo(table(headings, rows))


def _builtin() -> dict[str, tuple[genomes.Operator, tuple[genomes.Workload, ...]]]:
    return {
        **{
            name: (op, genomes.builtin_workloads(name))
            for name, op in genomes.builtin_operators().items()
        },
        genomes.MATMUL: (
            genomes.matmul_operator(genomes.MatmulForm()),
            genomes.matmul_target([], {}).workloads,
        ),
        **{name: _whole(genomes.packaged_problem(name)) for name in genomes.packaged_problems()},
    }


def _whole(problem: genomes.Problem) -> tuple[genomes.Operator, tuple[genomes.Workload, ...]]:
    return problem.operator, problem.workloads


def _below(folder: Path) -> dict[str, tuple[genomes.Operator, tuple[genomes.Workload, ...]]]:
    if not folder.is_dir():
        raise genomes.InputError(f"{folder}: not a folder")
    found = {}
    for path in sorted(folder.rglob(_DEFINITION)):
        operator, beside = genomes.load_definition(path), path.with_name(_WORKLOADS)
        workloads = genomes.load_workloads(beside, operator) if beside.exists() else ()
        found[str(path.parent)] = (operator, workloads)
    if not found:
        raise genomes.InputError(f"{folder}: no {_DEFINITION} in it or below it")
    return found


def _dtypes(operator: genomes.Operator) -> str:
    tensors = (*operator.inputs, *operator.outputs)
    return " ".join(dict.fromkeys(tensor.dtype for tensor in tensors))


def _line(operator: genomes.Operator) -> str:
    """Return the first sentence of what an operator says of itself, not too long for a table."""
    told = (operator.description or operator.op_type or operator.name).split("\n")[0]
    first = re.split(r"[.;:]\s", told)[0].removesuffix(".")
    return first if len(first) <= _LONGEST_LINE else f"{first[: _LONGEST_LINE - 3]}..."


def _json(
    name: str, operator: genomes.Operator, workloads: tuple[genomes.Workload, ...]
) -> Mapping[str, Any]:
    return {
        "target": name,
        "name": operator.name,
        "fingerprint": operator.fingerprint,
        "axes": {axis.name: axis.kind for axis in operator.axes.values()},
        "inputs": {t.name: t.dtype for t in operator.inputs},
        "outputs": {t.name: t.dtype for t in operator.outputs},
        "workloads": [
            {"label": w.label, "axes": dict(w.axes), "fingerprint": w.fingerprint}
            for w in workloads
        ],
    }
