"""Reading a SOL-ExecBench ``workload.jsonl`` and whole problem folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelarc.genomes._axes import axis_values, check_outputs
from kernelarc.genomes._blobs import (
    TRACE_ROOT,
    blob_roots,
    check_blob,
    find_blob,
    open_blob,
    stand_in,
)
from kernelarc.genomes._definitions import WHOLE, load_definition, whole_axis
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._ignored import Ignored
from kernelarc.genomes._json_source import Node, parsed, plain, read_text
from kernelarc.genomes._operators import (
    Axis,
    Operator,
    Problem,
    TensorSpec,
    Tolerance,
    Workload,
)

DEFINITION, WORKLOADS = "definition.json", "workload.jsonl"
FILLS = ("random", "scalar", "safetensors", "custom")
_MISSPELT = "required_match_ratio"
_DROPPED = ": it is ignored, as in the harness"


def load_problem(folder: str | Path) -> Problem:
    """Read a problem folder: its ``definition.json`` and its ``workload.jsonl``.

    Raises:
        InputError: One is missing or malformed.
    """
    folder = Path(folder)
    operator = load_definition(folder / DEFINITION)
    workloads = load_workloads(folder / WORKLOADS, operator, blob_roots(folder))
    return Problem(operator=operator, workloads=workloads)


def load_workloads(
    path: str | Path, operator: Operator, roots: Sequence[Path] | None = None
) -> tuple[Workload, ...]:
    """Read a ``workload.jsonl`` of an operator, one workload a line, empty lines aside.

    Args:
        path: The file.
        operator: Whose workloads they are.
        roots: Folders in which files of tensors are looked for; None looks for none.

    Raises:
        InputError: The file is missing or holds none, or a line is no workload of the operator;
            the message says on which line, in which field, and what is allowed there. With
            roots also where a file of tensors is missing that nothing can stand in for, or holds
            something else than the operator's tensor.

    Warns:
        UserWarning: It names inputs or axes that the operator does not have, or spells
            ``required_match_ratio``: the harness ignores these, and so do we.
    """
    path = Path(path)
    found, ignored = [], Ignored()
    # Not splitlines(): it also breaks at characters that JSON allows inside a text.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            node = parsed(line, str(path), number)
            workload = _workload(node, operator, ignored)
            found.append(workload if roots is None else _placed(node, operator, workload, roots))
    if not found:
        raise InputError(f"{path} holds no workloads; one JSON object a line is needed")
    ignored.tell()
    return tuple(found)


def workload_from_json(content: object, operator: Operator, where: str) -> Workload:
    """Turn one workload's JSON object into a Workload of the operator.

    Raises:
        InputError: It binds other axes than the operator's, or a field is malformed.
    """
    ignored = Ignored()
    workload = _workload(plain(content, where), operator, ignored)
    ignored.tell()
    return workload


def _workload(node: Node, operator: Operator, ignored: Ignored) -> Workload:
    node.members("a workload: uuid, axes, inputs")
    section = node.need("axes", "an object with a value for each var axis")
    workload = Workload(
        operator=operator.fingerprint,
        axes=_bound(section, operator, ignored),
        uuid=node.need("uuid", "a text that names the workload").text(),
        inputs=_fills(node, operator, ignored),
        tolerance=_tolerance(node.given("tolerance"), ignored),
    )
    axes = section.checked(lambda: axis_values(operator, workload))
    section.checked(lambda: check_outputs(operator, axes))
    return workload


def _bound(node: Node, operator: Operator, ignored: Ignored) -> dict[str, int]:
    """Return the values that count, as in the harness.

    Those of var axes, of const axes to which the definition gives another value, and of axes that
    only a function for custom inputs can know. An expr axis follows from the others.
    """
    bound, unknown = {}, []
    for name, entry in node.members("a value for each var axis").items():
        value, axis = whole_axis(entry), operator.axes.get(name)
        if axis is None:
            unknown.append(entry)
        if axis is None or (axis.kind != "expr" and axis.value != value):
            bound[name] = value
    free = [name for name in _var(operator.axes) if name not in bound]
    if free and unknown:
        raise unknown[0].refused(
            f"{_no_part(unknown[0], 'axis', operator, free)}, and nothing binds {free[0]!r}"
        )
    if free:
        raise node.refused(f"does not bind the axis {free[0]!r}: {WHOLE}")
    for entry in () if operator.custom_inputs else unknown:
        ignored.add(
            entry, f"{entry.field} {_no_part(entry, 'axis', operator, operator.axes)}{_DROPPED}"
        )
        del bound[str(entry.path[-1])]
    return bound


def _no_part(node: Node, what: str, operator: Operator, known: Iterable[str]) -> str:
    return f"is no {what} of {operator.name!r}{nearest(str(node.path[-1]), known)}"


def _var(axes: Mapping[str, Axis]) -> list[str]:
    return [name for name, axis in axes.items() if axis.kind == "var"]


# Inputs


def _fills(node: Node, operator: Operator, ignored: Ignored) -> dict[str, Mapping[str, Any]]:
    section = node.need("inputs", "an object that says how each input is filled")
    nodes = section.members("how each input is filled, by name")
    fills: dict[str, Mapping[str, Any]] = {
        name: _fill(entry, operator) for name, entry in nodes.items()
    }
    kinds = {fill["type"] for fill in fills.values()}
    if "custom" in kinds and len(kinds) > 1:
        other = next(name for name, fill in fills.items() if fill["type"] != "custom")
        raise nodes[other].refused(
            f"is {fills[other]['type']} while other inputs are custom; all or none can be"
        )
    known = [spec.name for spec in operator.inputs]
    for name in [name for name in fills if name not in known]:
        why = _no_part(nodes[name], "input", operator, known)
        if fills.pop(name)["type"] == "safetensors":  # on which the harness fails
            raise nodes[name].refused(why)
        ignored.add(nodes[name], f"{nodes[name].field} {why}{_DROPPED}")
    return fills


def _fill(node: Node, operator: Operator) -> dict[str, Any]:
    fields = node.members("type, and what it needs")
    kind = _fill_kind(fields)
    if kind == "scalar":
        value = node.need("value", "a number or a boolean")
        if not isinstance(value.value, bool | int | float) or not math.isfinite(value.value):
            raise value.wrong("a number or a boolean")
        return {"type": kind, "value": value.value}
    if kind == "safetensors":
        return {
            "type": kind,
            "path": node.need("path", "path of a safetensors file").text(),
            "tensor_key": node.need("tensor_key", "name of a tensor in it").text(),
        }
    if kind == "custom" and not operator.custom_inputs:
        raise node.refused(
            "is custom, but the definition names no custom_inputs_entrypoint; it can be "
            "random, scalar or safetensors"
        )
    return {"type": kind}


def _fill_kind(fields: Mapping[str, Node]) -> str:
    """Return the kind; where ``type`` is absent the other fields tell, as in the harness."""
    if "type" in fields:
        return fields["type"].chosen(FILLS)
    if "path" in fields and "tensor_key" in fields:
        return "safetensors"
    return "scalar" if "value" in fields else "random"


# Files of tensors


def _placed(node: Node, operator: Operator, workload: Workload, roots: Sequence[Path]) -> Workload:
    """Say of each file where it was found; refuse what is missing and cannot be stood in for."""
    fills = dict(workload.inputs)
    axes = axis_values(operator, workload)
    for spec in operator.inputs:
        fill = fills.get(spec.name)
        if fill is not None and fill["type"] == "safetensors":
            place = node.need("inputs", "").need(spec.name, "")
            found = find_blob(fill["path"], roots)
            if found is not None:
                _check(place, spec, found, axes)
                fills[spec.name] = {**fill, "found_at": str(found)}
            elif stand_in(operator, spec, axes) is None:
                folders = ", ".join(str(root) for root in roots)
                raise place.need("path", "").refused(
                    f"names {fill['path']!r}, which is not there (looked in {folders}; "
                    f"{TRACE_ROOT} names another folder), and the axes do not determine its values"
                )
    return replace(workload, inputs=fills)


def _check(place: Node, spec: TensorSpec, found: Path, axes: Mapping[str, int]) -> None:
    shape = tuple(axes[part] if part in axes else int(part) for part in spec.shape or ())
    key = place.need("tensor_key", "")
    blob = key.checked(lambda: open_blob(found, key.value))
    place.need("path", "").checked(lambda: check_blob(blob, spec, shape))


# Tolerance


def tolerance_from_json(content: object, where: str) -> Tolerance:
    """Read a tolerance; None gives the schema's defaults.

    Warns:
        UserWarning: The file spells ``required_match_ratio``, which the schema ignores.
    """
    if content is None:
        return Tolerance()
    ignored = Ignored()
    tolerance = _tolerance(Node(content, plain(None, where).source, ("tolerance",)), ignored)
    ignored.tell()
    return tolerance


def _tolerance(node: Node | None, ignored: Ignored) -> Tolerance:
    if node is None:
        return Tolerance()
    fields = node.members("max_atol, max_rtol, required_matched_ratio, max_error_cap")
    if _MISSPELT in fields:
        ignored.add(
            fields[_MISSPELT],
            f"{_MISSPELT!r} is ignored; the schema's name is 'required_matched_ratio'",
        )
    cap, infinite = node.get("max_error_cap"), fields.get("allow_negative_inf")
    return Tolerance(
        max_atol=_part(fields, "max_atol", 1e-2),
        max_rtol=_part(fields, "max_rtol", 1e-2),
        required_matched_ratio=_ratio(fields),
        max_error_cap=None if cap is None else cap.number(),
        allow_negative_inf=infinite is not None and infinite.switch(),
    )


def _part(fields: Mapping[str, Node], name: str, default: float) -> float:
    return fields[name].number() if name in fields else default


def _ratio(fields: Mapping[str, Node]) -> float:
    value = _part(fields, "required_matched_ratio", 0.99)
    if value > 1:
        raise fields["required_matched_ratio"].wrong("a number from 0 to 1")
    return value
