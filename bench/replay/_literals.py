"""Domains written as Python text in T1 files: parsed node by node, nothing is evaluated.

Known: literals, lists, tuples, ``range``, ``list(...)`` of one of them, arithmetic between
numbers, ``+`` between lists, and one-variable comprehensions such as ``[2**i for i in range(5)]``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelarc.genomes import InputError

_LENGTH_LIMIT = 1_000_000
_POWER_LIMIT = 256

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_Names = Mapping[str, object]


def values_from_text(text: str) -> list[object]:
    """Return the values that a text such as ``"[16, 32]"`` or ``"range(1, 9)"`` lists.

    Raises:
        InputError: The text does not parse, or says more than a list of values.
    """
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, {})
    except (SyntaxError, ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"values {text!r} are no list of values: {error}") from error
    return list(found) if isinstance(found, list | tuple | range) else [found]


def _value(node: ast.expr, names: _Names) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        listed = [_value(item, names) for item in node.elts]
        return tuple(listed) if isinstance(node, ast.Tuple) else listed
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    return _computed(node, names)


def _computed(node: ast.expr, names: _Names) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(_value(node.operand, names))
    if isinstance(node, ast.BinOp):
        return _binary(node.op, _value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call):
        return _call(node, names)
    if isinstance(node, ast.ListComp):
        return _comprehension(node, names)
    raise ValueError(f"{ast.unparse(node)!r} is not allowed there")


def _number(value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


def _binary(op: ast.operator, left: object, right: object) -> Any:
    if isinstance(left, list) and isinstance(right, list) and isinstance(op, ast.Add):
        return _short(left + right)
    numbers = _number(left), _number(right)
    if isinstance(op, ast.Pow):
        if abs(numbers[1]) > _POWER_LIMIT or abs(numbers[0]) > _POWER_LIMIT:
            raise ValueError("the power is too large")
        return numbers[0] ** numbers[1]
    if type(op) not in _BINARY:
        raise ValueError(f"{type(op).__name__} is not allowed there")
    return _BINARY[type(op)](*numbers)


def _call(node: ast.Call, names: _Names) -> Any:
    arguments = [_value(argument, names) for argument in node.args]
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name == "range" and not node.keywords and all(type(a) is int for a in arguments):
        return _short(range(*arguments))
    if name == "list" and len(arguments) == 1 and isinstance(arguments[0], list | tuple | range):
        return list(arguments[0])
    raise ValueError(f"{ast.unparse(node)!r} is not allowed there")


def _comprehension(node: ast.ListComp, names: _Names) -> list[object]:
    loop = node.generators[0]
    if len(node.generators) > 1 or loop.ifs or not isinstance(loop.target, ast.Name):
        raise ValueError(f"{ast.unparse(node)!r} is not allowed there")
    over: Iterable[object] = _value(loop.iter, names)
    if not isinstance(over, list | tuple | range):
        raise TypeError(f"{over!r} is no list")
    return [_value(node.elt, {**names, loop.target.id: item}) for item in over]


def _short(values: Any) -> Any:
    if len(values) > _LENGTH_LIMIT:
        raise ValueError(f"more than {_LENGTH_LIMIT} values")
    return values
