"""Reading a SOL-ExecBench ``definition.json`` into an Operator.

Beyond the schema we read, and others ignore: ``flops`` and ``bytes_moved`` of a definition
(arithmetic over axes) and ``optional`` of an input.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from kernelarc.genomes._axes import AXIS_LIMIT, amount_names, check_outputs
from kernelarc.genomes._errors import nearest
from kernelarc.genomes._expressions import Expression, compile_expression
from kernelarc.genomes._json_source import Node, parsed, plain, read_text
from kernelarc.genomes._operators import Axis, Operator, TensorSpec

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
AXIS_KINDS = ("const", "var", "expr")
WHOLE = f"a whole number from 0 to {AXIS_LIMIT}"
_EXTENT = f"a whole number from 1 to {AXIS_LIMIT}"


def load_definition(path: str | Path) -> Operator:
    """Read a ``definition.json``.

    Raises:
        InputError: The file is missing, not JSON, or no definition; the message says on which
            line, in which field, and what is allowed there.
    """
    path = Path(path)
    return _operator(parsed(read_text(path), str(path)))


def operator_from_json(content: object, where: str) -> Operator:
    """Turn a definition's JSON object into an Operator; fields it does not know are ignored.

    Raises:
        InputError: A field is missing or malformed; the message starts with ``where``.
    """
    return _operator(plain(content, where))


def _operator(node: Node) -> Operator:
    node.members("a definition: name, axes, inputs, outputs, reference")
    axes = _axes(node)
    inputs = _tensors(node, "inputs", axes)
    operator = Operator(
        name=node.need("name", "a text").text(),
        axes=axes,
        inputs=inputs,
        outputs=_tensors(node, "outputs", axes),
        reference=_reference(node, [spec.name for spec in inputs]),
        flops=_optional_text(node, "flops") or None,
        bytes_moved=_optional_text(node, "bytes_moved") or None,
        op_type=_optional_text(node, "op_type"),
        description=_about(node),
        custom_inputs=_entrypoint(node),
    )
    _check_names(node, operator)
    _check_outputs(node, operator)
    _optional_text(node, "hf_id")
    _check_amounts(node, operator)
    return operator


def _optional_text(node: Node, name: str) -> str:
    found = node.get(name)
    return "" if found is None else found.text()


def _about(node: Node) -> str:
    """Return the description of something, which may be empty."""
    found = node.get("description")
    return "" if found is None else found.words()


# Axes


def _axes(node: Node) -> dict[str, Axis]:
    section = node.need("axes", "an object of axes by name")
    entries = section.members("axes by name")
    kinds = {name: _axis_kind(entry) for name, entry in entries.items()}
    usable = [name for name, kind in kinds.items() if kind != "expr"]
    axes: dict[str, Axis] = {}
    for name, entry in entries.items():
        axes[name] = _axis(name, entry, kinds[name], usable)
        usable += [name] if kinds[name] == "expr" else []
    return axes


def _axis(name: str, node: Node, kind: str, usable: Sequence[str]) -> Axis:
    value = expression = None
    if kind == "const":
        value = whole_axis(node.need("value", WHOLE))
    if kind == "expr":
        text = node.need("expression", "arithmetic over other axes")
        expression = text.text("arithmetic over other axes: + - * / // % ** and parentheses")
        text.checked(partial(_compiled, expression, usable, "the expression"))
    return Axis(
        name=name,
        kind=kind,
        value=value,
        expression=expression,
        description=_about(node),
    )


def _compiled(text: str, known: Sequence[str], what: str) -> Expression:
    return compile_expression(text, known, what=what, logic=False, noun="axis")


def _axis_kind(node: Node) -> str:
    """Return the kind; where ``type`` is absent the other fields tell, as in the harness."""
    fields = node.members("type, and value or expression")
    if "type" in fields:
        return fields["type"].chosen(AXIS_KINDS)
    return "const" if "value" in fields else "expr" if "expression" in fields else "var"


def whole_axis(node: Node) -> int:
    """Return the value of an axis; 4.0 is 4, as in the harness.

    Zero is a value: of a cache that is empty still, of a window that reaches nowhere.

    Raises:
        InputError: It is not a whole number from 0 to ``AXIS_LIMIT``.
    """
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.wrong(WHOLE)
    if not 0 <= value <= AXIS_LIMIT or value != int(value):
        raise node.wrong(WHOLE)
    return int(value)


# Tensors


def _tensors(node: Node, section: str, axes: Mapping[str, Axis]) -> tuple[TensorSpec, ...]:
    found = node.need(section, "an object of tensors by name").members("tensors by name")
    if section == "outputs" and not found:
        raise node.need(section, "").wrong("an object with at least one output")
    return tuple(_tensor(name, entry, axes) for name, entry in found.items())


def _tensor(name: str, node: Node, axes: Mapping[str, Axis]) -> TensorSpec:
    node.members("shape and dtype")
    optional = node.get("optional")
    return TensorSpec(
        name=name,
        shape=_shape(node.need("shape", "a list of axis names, [] or null"), axes),
        dtype=node.need("dtype", f"one of {', '.join(DTYPES)}").chosen(DTYPES),
        description=_about(node),
        optional=optional is not None and optional.switch(),
    )


def _shape(node: Node, axes: Mapping[str, Axis]) -> tuple[str, ...] | None:
    if node.value is None:
        return None
    names = []
    for part in node.items("axis names and digit strings, or null for a Python scalar"):
        name = part.text("an axis name, or digits in quotes")
        if name not in axes and not name.isdecimal():
            raise part.refused(f"names the unknown axis {name!r}{nearest(name, axes)}")
        if name not in axes and not 1 <= int(name) <= AXIS_LIMIT:
            raise part.wrong(f"an axis name, or {_EXTENT} in quotes")
        names.append(name)
    return tuple(names)


def _check_names(node: Node, operator: Operator) -> None:
    """Refuse names that stand for two things."""
    inputs = {spec.name for spec in operator.inputs}
    for spec in operator.outputs:
        if spec.name in inputs:
            raise _entry(node, "outputs", spec.name).refused(
                "is the name of an input too; an output needs a name of its own"
            )
    for spec in operator.inputs:
        if spec.name in operator.axes:
            raise _entry(node, "inputs", spec.name).refused(
                "is the name of an axis too; an input needs a name of its own"
            )


def _check_outputs(node: Node, operator: Operator) -> None:
    """Refuse an output of which a const axis says already that it is empty."""
    consts = {name: axis.value for name, axis in operator.axes.items() if axis.value is not None}
    for name, value in consts.items():
        entry = _entry(node, "axes", name).need("value", "")
        entry.checked(partial(check_outputs, operator, {name: value}))


def _entry(node: Node, section: str, name: str) -> Node:
    return node.need(section, "").need(name, "")


# The reference


def _reference(node: Node, inputs: list[str]) -> str:
    entry = node.need("reference", "Python source with a top-level function 'run'")
    source = entry.text("Python source with a top-level function 'run'")
    run = _functions(entry, source).get("run")
    if run is None:
        raise entry.refused("has no top-level function 'run'; the schema asks for one")
    taken = [argument.arg for argument in (*run.args.posonlyargs, *run.args.args)]
    if taken != inputs:
        raise entry.refused(
            f"has a 'run' that takes ({', '.join(taken)}); its parameters must be the inputs in "
            f"order: ({', '.join(inputs)})"
        )
    return source


def _functions(entry: Node, source: str) -> dict[str, ast.FunctionDef]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(source).body
    except SyntaxError as error:
        line = "" if error.lineno is None else f" in line {error.lineno} of the source"
        raise entry.refused(f"is no Python: {error.msg}{line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise entry.refused(f"is no Python: {error or 'nested too deeply'}") from None
    return {part.name: part for part in body if isinstance(part, ast.FunctionDef)}


def _entrypoint(node: Node) -> str:
    entry = node.get("custom_inputs_entrypoint")
    if entry is None:
        return ""
    name = entry.text("the name of a function in the reference")
    functions = _functions(node.need("reference", ""), node.value["reference"])
    if name not in functions:
        raise entry.refused(
            f"names {name!r}, which is no top-level function of the reference"
            f"{nearest(name, functions)}"
        )
    return name


def _check_amounts(node: Node, operator: Operator) -> None:
    """Refuse arithmetic that no workload could make sense of, while the file is being read."""
    for name, text in (("flops", operator.flops), ("bytes_moved", operator.bytes_moved)):
        if text is not None:
            names = amount_names(operator)
            node.need(name, "").checked(partial(_compiled, text, names, "the arithmetic"))
