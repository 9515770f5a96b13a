"""Operator, Workload, Problem: the mathematical job, in the SOL-ExecBench definition schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelarc.genomes._alleles import canonical_json, fingerprint_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A named dimension: ``const`` has a value, ``var`` is bound by workloads, ``expr`` follows.

    Attributes:
        kind: ``"const"``, ``"var"`` or ``"expr"``.
        value: The value of a const axis.
        expression: The arithmetic text of an expr axis, over earlier axes.
    """

    name: str
    kind: str
    value: int | None = None
    expression: str | None = None
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output.

    Attributes:
        shape: Axis names or digit strings; ``()`` is 0-D; None is a Python scalar.
        dtype: The schema's dtype name, for example ``"float32"``.
        optional: Whether the operator runs without it (ours, beyond the schema).
    """

    name: str
    shape: tuple[str, ...] | None
    dtype: str
    description: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When an output counts as right. Names and defaults are the schema's.

    An element matches when ``abs(x - y) <= max_atol + max_rtol * abs(y)``, compared in float32
    or wider. ``max_error_cap`` is always set by our guardrails, whatever the file says.
    """

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99
    max_error_cap: float | None = None
    allow_negative_inf: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The mathematical job. A SOL-ExecBench ``definition.json`` *is* one.

    Attributes:
        name: Built-in name (``"gemm"``) or the definition's.
        axes: By name, in file order.
        inputs: In the order of the reference's parameters.
        reference: Python source with a top-level ``run``, or None (a recorded space has none).
        flops: Arithmetic expression over axes, or None where unknown.
        bytes_moved: Least bytes through memory, as an expression over axes, or None.
        custom_inputs: Function of the reference that makes all inputs, ``""`` where none does.
    """

    name: str
    axes: Mapping[str, Axis]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    reference: str | None = None
    flops: str | None = None
    bytes_moved: str | None = None
    op_type: str = ""
    description: str = ""
    custom_inputs: str = ""

    @property
    def fingerprint(self) -> str:
        """Content fingerprint over everything that changes the job (not over descriptions)."""
        content = {
            "name": self.name,
            "axes": {n: [a.kind, a.value, a.expression] for n, a in self.axes.items()},
            "inputs": [[t.name, t.shape, t.dtype] for t in self.inputs],
            "outputs": [[t.name, t.shape, t.dtype] for t in self.outputs],
            "reference": self.reference,
        }
        if self.custom_inputs:
            content["custom_inputs"] = self.custom_inputs
        return fingerprint_of(canonical_json(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An operator with its axes bound: one line of ``workload.jsonl``.

    Attributes:
        operator: Fingerprint of the operator.
        axes: Every var axis by name, all positive.
        inputs: Per input name, how it is filled: ``{"type": "random"}`` and so on. Of a
            safetensors file that was found, ``found_at`` is where; it does not count.
        options: Ours, beyond the schema: for example ``{"residual": True}``.
    """

    operator: str
    axes: Mapping[str, int] = field(default_factory=dict)
    uuid: str = ""
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tolerance: Tolerance = Tolerance()
    options: Mapping[str, bool | int | str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Content fingerprint; the uuid is a label and does not count."""
        tolerance = self.tolerance
        return fingerprint_of(
            canonical_json(
                {
                    "operator": self.operator,
                    "axes": dict(self.axes),
                    "inputs": {k: _without_place(v) for k, v in self.inputs.items()},
                    "tolerance": [
                        tolerance.max_atol,
                        tolerance.max_rtol,
                        tolerance.required_matched_ratio,
                        tolerance.max_error_cap,
                        tolerance.allow_negative_inf,
                    ],
                    "options": dict(self.options),
                }
            )
        )

    @property
    def label(self) -> str:
        """Short text for people: ``M=1024 N=1024 K=1024``."""
        parts = [f"{name}={value}" for name, value in self.axes.items()]
        parts += [f"{name}={value}" for name, value in self.options.items() if value]
        return " ".join(parts) or (self.uuid or "default")


def _without_place(fill: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fill.items() if name != "found_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An operator and its workloads (at least one). A campaign ends with one best for each."""

    operator: Operator
    workloads: tuple[Workload, ...]
