"""Records that are stored as JSON text: those that are few, or free-form. Order is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernelarc.genomes import (
    Allele,
    Axis,
    Conclusion,
    ConclusionKind,
    Estimate,
    GeneChange,
    Genome,
    Operator,
    TensorSpec,
    Tolerance,
    Workload,
    allele_from_json,
)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# One encoder made once: json.dumps with arguments builds a new one for every call.
dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, default=_plain).encode
load = json.loads


def alleles_from(text: str) -> dict[str, Allele]:
    """Read a mapping of alleles back."""
    parsed: dict[str, Any] = load(text)
    if type(parsed) is not dict:
        raise ValueError(f"{text[:40]!r} is no mapping")
    if "[" in text:  # arrays become tuples; without one there is nothing to convert
        return {name: allele_from_json(value) for name, value in parsed.items()}
    return parsed


def operator_text(operator: Operator) -> str:
    """Write an operator, order of axes and tensors included."""
    axes = [
        [key, a.name, a.kind, a.value, a.expression, a.description]
        for key, a in operator.axes.items()
    ]
    return dump(
        {
            "name": operator.name,
            "axes": axes,
            "inputs": [_tensor(t) for t in operator.inputs],
            "outputs": [_tensor(t) for t in operator.outputs],
            "reference": operator.reference,
            "flops": operator.flops,
            "bytes_moved": operator.bytes_moved,
            "op_type": operator.op_type,
            "description": operator.description,
            **({"custom_inputs": operator.custom_inputs} if operator.custom_inputs else {}),
        }
    )


def _tensor(t: TensorSpec) -> list[object]:
    return [t.name, t.shape, t.dtype, t.description, t.optional]


def _tensor_from(row: list[Any]) -> TensorSpec:
    name, shape, dtype, description, optional = row
    return TensorSpec(
        name=name,
        shape=None if shape is None else tuple(shape),
        dtype=dtype,
        description=description,
        optional=optional,
    )


def operator_from(text: str) -> Operator:
    """Read an operator back."""
    found = load(text)
    axes = {
        key: Axis(name=name, kind=kind, value=value, expression=expression, description=words)
        for key, name, kind, value, expression, words in found["axes"]
    }
    return Operator(
        name=found["name"],
        axes=axes,
        inputs=tuple(_tensor_from(row) for row in found["inputs"]),
        outputs=tuple(_tensor_from(row) for row in found["outputs"]),
        reference=found["reference"],
        flops=found["flops"],
        bytes_moved=found["bytes_moved"],
        op_type=found["op_type"],
        description=found["description"],
        custom_inputs=found.get("custom_inputs", ""),
    )


def workload_text(workload: Workload) -> str:
    """Write a workload, its label included."""
    t = workload.tolerance
    return dump(
        {
            "operator": workload.operator,
            "axes": list(workload.axes.items()),
            "uuid": workload.uuid,
            "inputs": [[name, dict(how)] for name, how in workload.inputs.items()],
            "tolerance": [
                t.max_atol,
                t.max_rtol,
                t.required_matched_ratio,
                t.max_error_cap,
                t.allow_negative_inf,
            ],
            "options": list(workload.options.items()),
        }
    )


def workload_from(text: str) -> Workload:
    """Read a workload back."""
    found = load(text)
    atol, rtol, ratio, cap, infinite = found["tolerance"]
    return Workload(
        operator=found["operator"],
        axes=dict(found["axes"]),
        uuid=found["uuid"],
        inputs=dict(found["inputs"]),
        tolerance=Tolerance(
            max_atol=atol,
            max_rtol=rtol,
            required_matched_ratio=ratio,
            max_error_cap=cap,
            allow_negative_inf=infinite,
        ),
        options=dict(found["options"]),
    )


def estimate_text(estimate: Estimate | None) -> str | None:
    """Write an estimate; floats keep every bit."""
    if estimate is None:
        return None
    e = estimate
    return dump([e.value, e.low, e.high, e.n, e.confidence])


def estimate_from(text: str | None) -> Estimate | None:
    """Read an estimate back."""
    if text is None:
        return None
    value, low, high, n, confidence = load(text)
    return Estimate(value=value, low=low, high=high, n=n, confidence=confidence)


def conclusion_text(conclusion: Conclusion) -> str:
    """Write a conclusion without its fingerprint, which follows from the rest."""
    genome = conclusion.genome
    return dump(
        {
            "kind": conclusion.kind.value,
            "operator": conclusion.operator,
            "workload": conclusion.workload,
            "route": conclusion.route,
            "island": conclusion.island,
            "why": conclusion.why,
            "changes": [[c.gene, c.before, c.after] for c in conclusion.changes],
            "genome": None if genome is None else [genome.route, genome.canonical],
            "region": dict(conclusion.region),
            "failure": conclusion.failure,
            "speedup": estimate_text(conclusion.speedup),
            "evidence": conclusion.evidence,
            "retracts": conclusion.retracts,
            "predicate": conclusion.predicate,
        }
    )


def _allele_or_absent(value: object) -> Allele | None:
    return None if value is None else allele_from_json(value)


def conclusion_from(text: str) -> Conclusion:
    """Read a conclusion back."""
    found = load(text)
    changes = tuple(
        GeneChange(gene=gene, before=_allele_or_absent(before), after=_allele_or_absent(after))
        for gene, before, after in found["changes"]
    )
    genome = found["genome"]
    region: Mapping[str, object] = found["region"]
    return Conclusion(
        kind=ConclusionKind(found["kind"]),
        operator=found["operator"],
        workload=found["workload"],
        route=found["route"],
        island=found["island"],
        why=found["why"],
        changes=changes,
        genome=None if genome is None else Genome.from_canonical(*genome),
        region={name: allele_from_json(value) for name, value in region.items()},
        failure=found["failure"],
        speedup=estimate_from(found["speedup"]),
        evidence=tuple(found["evidence"]),
        retracts=found["retracts"],
        predicate=found["predicate"],
    )
