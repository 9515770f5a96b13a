"""Exported Triton solutions of small operators, run by Triton's interpreter on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from kernelarc.genomes import Axis, Operator, TensorSpec, Workload, packaged_problem
from kernelarc.storage.exports._sol_triton import _FILLED, entry, filled, key_of

# Triton 3.6's interpreter turns arrays of one element into numbers, which NumPy 2.4 refuses.
_ONE_ELEMENT = """
import numpy
from triton.runtime import interpreter

class Numbers(numpy.ndarray):
    def __int__(self):
        return int(self.item())

checked = interpreter.TensorHandle.__post_init__

def made(handle):
    checked(handle)
    if isinstance(handle.data, numpy.ndarray) and handle.data.size == 1:
        handle.data = handle.data.view(Numbers)

interpreter.TensorHandle.__post_init__ = made
"""


def small_operator(
    name: str, sizes: Mapping[str, int], dtype: str = "float16"
) -> tuple[Operator, Workload]:
    """Return a packaged operator with small axes and another 16-bit type."""
    operator = packaged_problem(name).operator
    axes = {
        axis: Axis(name=axis, kind="const", value=sizes[axis]) if held.kind == "const" else held
        for axis, held in operator.axes.items()
    }

    def typed(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(s, dtype=dtype) if s.dtype == "bfloat16" else s for s in specs)

    made = replace(
        operator, axes=axes, inputs=typed(operator.inputs), outputs=typed(operator.outputs)
    )
    free = {axis: sizes[axis] for axis, held in operator.axes.items() if held.kind == "var"}
    return made, Workload(operator=made.fingerprint, axes=free)


def write_solution(
    folder: Path, route: Any, operator: Operator, rows: Mapping[tuple[int, ...], str]
) -> None:
    """Write a solution's sources, table of launches and entry, and the reference beside it."""
    template = files("kernelarc.storage.exports.solutions").joinpath("triton_solution.py")
    key = key_of(operator)
    source = _FILLED.sub(lambda _: filled(route, key, dict(rows)), template.read_text("utf-8"))
    (folder / "solution.py").write_text(source + entry(operator))
    for module, text in route.sources().items():
        (folder / f"{module}.py").write_text(text)
    (folder / "reference.py").write_text(str(operator.reference))


def assert_right(folder: Path, operator: Operator, sizes: Mapping[str, int], check: str) -> None:
    """Run a program that says whether the solution is right, in a process of its own.

    It is given the folder, and a JSON file of sizes and of the tensors' names, shapes and types.
    """
    tensors = {
        part: [[spec.name, spec.shape, spec.dtype] for spec in specs]
        for part, specs in (("inputs", operator.inputs), ("outputs", operator.outputs))
    }
    (folder / "given.json").write_text(json.dumps({"sizes": dict(sizes), **tensors}))
    (folder / "check.py").write_text(_ONE_ELEMENT + check)
    outcome = subprocess.run(
        [sys.executable, str(folder / "check.py"), str(folder), str(folder / "given.json")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert outcome.stdout.strip() == "right", outcome.stderr[-2000:]
