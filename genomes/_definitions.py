"""Reading SOL-ExecBench definitions and workloads into Operator and Workload.

Beyond the schema we read, and others ignore: ``flops`` and ``bytes_moved`` of a definition
(arithmetic over axes) and ``optional`` of an input.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.genomes._axes import amount_names, axis_values, checked_axis
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._expressions import compile_expression
from kernelarc.genomes._operators import Axis, Operator, Problem, TensorSpec, Tolerance, Workload

DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float4_e2m1",
    "float4_e2m1fn_x2",
    "int64",
    "int32",
    "int16",
    "int8",
    "bool",
)
FILLS = ("random", "scalar", "safetensors", "custom")


def load_definition(path: str | Path) -> Operator:
    """Read a ``definition.json``.

    Raises:
        InputError: The file is missing, not JSON, or no definition; the message says where.
    """
    path = Path(path)
    return operator_from_json(_json(_text(path), str(path)), str(path))


def load_workloads(path: str | Path, operator: Operator) -> tuple[Workload, ...]:
    """Read a ``workload.jsonl`` of an operator, one workload a line, empty lines aside.

    Raises:
        InputError: The file is missing or holds none, or a line is no workload of the operator.
    """
    path = Path(path)
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            found.append(workload_from_json(_json(line, where), operator, where))
    if not found:
        raise InputError(f"{path} holds no workloads; one JSON object a line is needed")
    return tuple(found)


def load_problem(folder: str | Path) -> Problem:
    """Read a problem folder: its ``definition.json`` and its ``workload.jsonl``.

    Raises:
        InputError: One is missing or malformed.
    """
    folder = Path(folder)
    operator = load_definition(folder / "definition.json")
    return Problem(operator=operator, workloads=load_workloads(folder / "workload.jsonl", operator))


def operator_from_json(content: object, where: str) -> Operator:
    """Turn a definition's JSON object into an Operator; fields it does not know are ignored.

    Raises:
        InputError: A field is missing or malformed; the message starts with ``where``.
    """
    fields = _object(content, where)
    axes = {name: _axis(name, spec, where) for name, spec in _section(fields, "axes", where)}
    operator = Operator(
        name=_required_text(fields, "name", where),
        axes=axes,
        inputs=_tensors(fields, "inputs", axes, where),
        outputs=_tensors(fields, "outputs", axes, where),
        reference=_reference(fields, where),
        flops=_text_or_none(fields, "flops", where),
        bytes_moved=_text_or_none(fields, "bytes_moved", where),
        op_type=_text_or_none(fields, "op_type", where) or "",
        description=_text_or_none(fields, "description", where) or "",
    )
    _check_expressions(operator, where)
    return operator


def workload_from_json(content: object, operator: Operator, where: str) -> Workload:
    """Turn one workload's JSON object into a Workload of the operator.

    Raises:
        InputError: It binds other axes than the operator's, or a field is malformed.
    """
    fields = _object(content, where)
    axes = {
        name: checked_axis(name, value, where)
        for name, value in _section(fields, "axes", where)
        if operator.axes.get(name, Axis(name=name, kind="var")).kind == "var"
    }
    workload = Workload(
        operator=operator.fingerprint,
        axes=axes,
        uuid=_text_or_none(fields, "uuid", where) or "",
        inputs={
            name: _fill(name, spec, operator, where)
            for name, spec in _section(fields, "inputs", where, required=False)
        },
        tolerance=tolerance_from_json(fields.get("tolerance"), where),
    )
    try:
        axis_values(operator, workload)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return workload


def tolerance_from_json(content: object, where: str) -> Tolerance:
    """Read a tolerance; None gives the schema's defaults.

    Warns:
        UserWarning: The file spells ``required_match_ratio``, which the schema ignores.
    """
    if content is None:
        return Tolerance()
    fields = _object(content, f"{where}: tolerance")
    if "required_match_ratio" in fields:
        warnings.warn(
            f"{where}: 'required_match_ratio' is ignored; the schema's name is "
            "'required_matched_ratio'",
            UserWarning,
            stacklevel=2,
        )
    cap = fields.get("max_error_cap")
    return Tolerance(
        max_atol=_number(fields, "max_atol", 1e-2, where),
        max_rtol=_number(fields, "max_rtol", 1e-2, where),
        required_matched_ratio=_number(fields, "required_matched_ratio", 0.99, where),
        max_error_cap=None if cap is None else _number(fields, "max_error_cap", 0.0, where),
        allow_negative_inf=fields.get("allow_negative_inf", False) is True,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a file is needed there") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _json(text: str, where: str) -> object:
    if not text.strip():
        raise InputError(f"{where} is empty; JSON is needed")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None


def _object(content: object, where: str) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{where} must be a JSON object, not {type(content).__name__}")
    return content


def _section(
    fields: Mapping[str, Any], name: str, where: str, *, required: bool = True
) -> list[tuple[str, Any]]:
    if name not in fields:
        if required:
            raise InputError(f"{where} lacks the field {name!r}")
        return []
    return list(_object(fields[name], f"{where}: {name}").items())


def _required_text(fields: Mapping[str, Any], name: str, where: str) -> str:
    text = _text_or_none(fields, name, where)
    if not text:
        raise InputError(f"{where} lacks the field {name!r}")
    return text


def _text_or_none(fields: Mapping[str, Any], name: str, where: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where}: {name!r} must be a text, not {value!r}")
    return value


def _number(fields: Mapping[str, Any], name: str, default: float, where: str) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError(f"{where}: tolerance {name!r} must be a number from 0 on, not {value!r}")
    return float(value)


def _axis(name: str, content: object, where: str) -> Axis:
    fields = _object(content, f"{where}: axis {name!r}")
    kind = fields.get("type")
    if kind not in ("const", "var", "expr"):
        raise InputError(
            f"{where}: axis {name!r} has the type {kind!r}; it can be const, var or expr"
        )
    value = checked_axis(name, fields.get("value"), where) if kind == "const" else None
    expression = _text_or_none(fields, "expression", where) if kind == "expr" else None
    if kind == "expr" and not expression:
        raise InputError(f"{where}: axis {name!r} lacks its expression")
    return Axis(
        name=name,
        kind=kind,
        value=value,
        expression=expression,
        description=_text_or_none(fields, "description", where) or "",
    )


def _tensors(
    fields: Mapping[str, Any], section: str, axes: Mapping[str, Axis], where: str
) -> tuple[TensorSpec, ...]:
    return tuple(
        _tensor(name, spec, axes, f"{where}: {section} {name!r}")
        for name, spec in _section(fields, section, where)
    )


def _tensor(name: str, content: object, axes: Mapping[str, Axis], where: str) -> TensorSpec:
    fields = _object(content, where)
    dtype = _required_text(fields, "dtype", where)
    if dtype not in DTYPES:
        raise InputError(f"{where} has the unknown dtype {dtype!r}{nearest(dtype, DTYPES)}")
    return TensorSpec(
        name=name,
        shape=_shape(fields, axes, where),
        dtype=dtype,
        description=_text_or_none(fields, "description", where) or "",
        optional=fields.get("optional", False) is True,
    )


def _shape(
    fields: Mapping[str, Any], axes: Mapping[str, Axis], where: str
) -> tuple[str, ...] | None:
    if "shape" not in fields:
        raise InputError(f"{where} lacks the field 'shape'")
    shape = fields["shape"]
    if shape is None:
        return None
    if not isinstance(shape, list) or not all(isinstance(d, str | int) for d in shape):
        raise InputError(f"{where}: 'shape' must list axis names, not {shape!r}")
    names = tuple(str(dimension) for dimension in shape)
    for dimension in names:
        if dimension not in axes and not dimension.isdecimal():
            raise InputError(
                f"{where} names the unknown axis {dimension!r}{nearest(dimension, axes)}"
            )
    return names


def _reference(fields: Mapping[str, Any], where: str) -> str:
    source = _required_text(fields, "reference", where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{where}: the reference is no Python ({error})") from None
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    if "run" not in names:
        raise InputError(f"{where}: the reference has no top-level function 'run'")
    return source


def _fill(name: str, content: object, operator: Operator, where: str) -> Mapping[str, Any]:
    known = [spec.name for spec in operator.inputs]
    if name not in known:
        raise InputError(f"{where}: there is no input {name!r}{nearest(name, known)}")
    fields = _object(content, f"{where}: input {name!r}")
    kind = fields.get("type")
    if kind not in FILLS:
        raise InputError(
            f"{where}: input {name!r} has the type {kind!r}; it can be {', '.join(FILLS)}"
        )
    for needed in {"scalar": ("value",), "safetensors": ("path", "tensor_key")}.get(kind, ()):
        if needed not in fields:
            raise InputError(f"{where}: input {name!r} lacks the field {needed!r}")
    return fields


def _check_expressions(operator: Operator, where: str) -> None:
    """Refuse arithmetic that no workload could make sense of, while the file is being read."""
    earlier: list[str] = []
    for axis in operator.axes.values():
        if axis.expression is not None:
            what = f"{where}: axis {axis.name!r} {axis.expression!r}"
            compile_expression(axis.expression, earlier, what=what, logic=False, noun="axis")
        earlier.append(axis.name)
    for name, text in (("flops", operator.flops), ("bytes_moved", operator.bytes_moved)):
        if text is not None:
            what = f"{where}: {name} {text!r}"
            compile_expression(text, amount_names(operator), what=what, logic=False, noun="axis")
