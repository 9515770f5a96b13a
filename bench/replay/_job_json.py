"""Operators and workloads as JSON, both ways: all that their fingerprints cover, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kernelarc.genomes import Axis, Operator, TensorSpec, Tolerance, Workload


def operator_to_json(operator: Operator) -> dict[str, Any]:
    """Return the JSON object of an operator."""
    return asdict(operator)


def operator_from_json(entry: Mapping[str, Any]) -> Operator:
    """Rebuild an operator with an equal fingerprint.

    Raises:
        KeyError, TypeError, ValueError: The entry is malformed.
    """
    parts: dict[str, Any] = {
        "axes": {str(name): Axis(**axis) for name, axis in entry["axes"].items()},
        "inputs": tuple(_tensor(tensor) for tensor in entry["inputs"]),
        "outputs": tuple(_tensor(tensor) for tensor in entry["outputs"]),
    }
    return Operator(**{**entry, **parts})


def _tensor(entry: Mapping[str, Any]) -> TensorSpec:
    shape = entry.get("shape")
    return TensorSpec(**{**entry, "shape": None if shape is None else tuple(shape)})


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Return the JSON object of a workload."""
    return asdict(workload)


def workload_from_json(entry: Mapping[str, Any]) -> Workload:
    """Rebuild a workload with an equal fingerprint.

    Raises:
        KeyError, TypeError, ValueError: The entry is malformed.
    """
    return Workload(**{**entry, "tolerance": Tolerance(**entry.get("tolerance", {}))})
