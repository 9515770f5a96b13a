"""Reading a reference as a formula over its inputs, in one form however it is written.

Casts disappear; sums and products are flat and sorted; powers are products; ``x / sqrt(y)`` is
``x * rsqrt(y)``; numbers are folded. What is not read here makes the whole reference unread: it
is never guessed at.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from kernelarc.genomes.routes._recognise import COARSE_CASTS, parsed_run

Formula: TypeAlias = "tuple[Any, ...]"
"""``("input", name, turned)``, ``("number", x)``, ``("sum", ...)``, ``("times", ...)``,
``("matmul", a, b)``, ``("mean", x)`` along the last axis, or ``(function, x)``."""

_CASTS = frozenset({"to", "float", "bfloat16", "half", "double", "type", "contiguous", "type_as"})
_FUNCTIONS = frozenset({"rsqrt", "sqrt", "tanh", "sigmoid", "exp"})
_PRODUCTS = frozenset({"matmul", "mm", "dot"})
_MOST_POWER = 4


class UnreadError(Exception):
    """Something stands in the reference that is not read here."""


@lru_cache(maxsize=64)
def formula_of(source: str, inputs: tuple[str, ...]) -> Formula | None:
    """Return what a reference computes, or None where it is not read.

    Args:
        source: With a top-level ``run`` that returns one value.
        inputs: Names in the order of its parameters.
    """
    parsed = parsed_run(source, inputs)
    if parsed is None:
        return None
    known: dict[str, Formula | None] = {
        parameter: ("input", name, False) for parameter, name in parsed.named.items()
    }
    try:
        for statement in parsed.module:
            if isinstance(statement, ast.Assign):
                _assigned(statement, known)
        return _returned(parsed.run, known)
    except (UnreadError, RecursionError):
        return None


def _returned(body: list[ast.stmt], known: dict[str, Formula | None]) -> Formula | None:
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Assert):
            continue  # it changes nothing: a reference that fails is said where it runs
        if isinstance(statement, ast.Return) and statement.value is not None:
            return _read(statement.value, known)
        if not isinstance(statement, ast.Assign):
            return None
        _assigned(statement, known)
    return None


def _assigned(statement: ast.Assign, known: dict[str, Formula | None]) -> None:
    """Read an assignment; what it cannot read is only a fault where it is used."""
    if len(statement.targets) != 1:
        raise UnreadError
    target = statement.targets[0]
    if isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts):
        # Several names at once are extents of a shape; what else they may be is not read.
        known.update({part.id: None for part in target.elts if isinstance(part, ast.Name)})
        return
    if not isinstance(target, ast.Name):
        raise UnreadError
    try:
        known[target.id] = _read(statement.value, known)
    except UnreadError:
        known[target.id] = None


# Building one form


def number(value: float) -> Formula:
    """Return a number."""
    return ("number", float(value))


def total(*terms: Formula) -> Formula:
    """Return a sum."""
    return _flat("sum", terms, 0.0, lambda a, b: a + b)


def times(*factors: Formula) -> Formula:
    """Return a product of elements."""
    return _flat("times", factors, 1.0, lambda a, b: a * b)


def _flat(
    kind: str, parts: tuple[Formula, ...], empty: float, fold: Callable[[float, float], float]
) -> Formula:
    held = empty
    rest: list[Formula] = []
    for part in parts:
        for inner in part[1:] if part[0] == kind else (part,):
            if inner[0] == "number":
                held = fold(held, inner[1])
            else:
                rest.append(inner)
    if not rest:
        return number(held)
    if held != empty:
        rest.append(number(float(f"{held:.9g}")))
    return rest[0] if len(rest) == 1 else (kind, *sorted(rest, key=repr))


def power(base: Formula, exponent: float) -> Formula:
    """Return a power: a product of equals, or a root."""
    if exponent == 0.5:
        return ("sqrt", base)
    if exponent == -0.5:
        return ("rsqrt", base)
    if exponent == int(exponent) and 1 <= exponent <= _MOST_POWER:
        return times(*[base] * int(exponent))
    raise UnreadError


def inverse(value: Formula) -> Formula:
    """Return one over a number or a root."""
    if value[0] == "number" and value[1]:
        return number(1.0 / value[1])
    if value[0] == "sqrt":
        return ("rsqrt", value[1])
    if value[0] == "sum" and number(1.0) in value:
        rest = [part for part in value[1:] if part != number(1.0)]
        if len(rest) == 1 and rest[0][0] == "exp":
            return ("sigmoid", times(number(-1.0), rest[0][1]))
    raise UnreadError


# Reading


def _read(node: ast.expr, known: Mapping[str, Formula | None]) -> Formula:
    match node:
        case ast.Constant(value=value) if isinstance(value, int | float):
            return number(value)
        case ast.Name(id=name):
            found = known.get(name)
            if found is None:
                raise UnreadError
            return found
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return times(number(-1.0), _read(operand, known))
        case ast.BinOp():
            return _binary(node, known)
        case ast.Attribute(value=value, attr=attr):
            return _attribute(value, attr, known)
        case ast.Call():
            return _called(node, known)
    raise UnreadError


def _binary(node: ast.BinOp, known: Mapping[str, Formula | None]) -> Formula:
    left, right = _read(node.left, known), _read(node.right, known)
    match node.op:
        case ast.Add():
            return total(left, right)
        case ast.Sub():
            return total(left, times(number(-1.0), right))
        case ast.Mult():
            return times(left, right)
        case ast.Div():
            return times(left, inverse(right))
        case ast.MatMult():
            return ("matmul", left, right)
        case ast.Pow() if right[0] == "number":
            return power(left, right[1])
    raise UnreadError


def _attribute(value: ast.expr, attr: str, known: Mapping[str, Formula | None]) -> Formula:
    if isinstance(value, ast.Name) and value.id == "math" and "math" not in known:
        if attr in {"pi", "e"}:
            return number(getattr(math, attr))
        raise UnreadError
    if attr in {"T", "mT"}:
        return _turned(_read(value, known))
    raise UnreadError


def _turned(value: Formula) -> Formula:
    if value[0] != "input":
        raise UnreadError
    return ("input", value[1], not value[2])


def _called(node: ast.Call, known: Mapping[str, Formula | None]) -> Formula:
    if not isinstance(node.func, ast.Attribute):
        raise UnreadError
    name, owner = node.func.attr, node.func.value
    options = {k.arg: k.value for k in node.keywords}
    if not _is_module(owner, known):
        subject = _read(owner, known)
        if name in _CASTS:
            given = " ".join(ast.unparse(a) for a in (*node.args, *node.keywords))
            if any(word in given for word in COARSE_CASTS):
                raise UnreadError
            return subject
        return _applied(name, [subject], list(node.args), options, known)
    if not node.args:
        raise UnreadError
    first = _read(node.args[0], known)
    return _applied(name, [first], list(node.args[1:]), options, known)


def _is_module(owner: ast.expr, known: Mapping[str, Formula | None]) -> bool:
    if isinstance(owner, ast.Attribute):
        return owner.attr not in {"T", "mT"} and _is_module(owner.value, known)
    return isinstance(owner, ast.Name) and owner.id not in known


def _applied(
    name: str,
    subject: list[Formula],
    rest: list[ast.expr],
    options: Mapping[str | None, ast.expr],
    known: Mapping[str, Formula | None],
) -> Formula:
    """Return a function of one tensor, with the arguments that follow it."""
    x = subject[0]
    if name == "mean" and _along_last(rest, options):
        return ("mean", x)
    if name == "gelu" and not rest and _text(options.get("approximate")) == "tanh":
        return gelu(x)
    if name in {"t", "transpose", "swapaxes"} and not options and _last_two(rest, name):
        return _turned(x)
    if options:
        raise UnreadError
    more = [_read(argument, known) for argument in rest]
    if not more:
        return _of_one(name, x)
    if len(more) != 1:
        raise UnreadError
    return _of_two(name, x, more[0])


def _of_one(name: str, x: Formula) -> Formula:
    if name == "sqrt" and x[0] == "number":
        return number(math.sqrt(x[1]))
    if name in _FUNCTIONS:
        return (name, x)
    if name == "square":
        return power(x, 2)
    if name == "silu":
        return times(x, ("sigmoid", x))
    raise UnreadError


def _of_two(name: str, x: Formula, y: Formula) -> Formula:
    if name in _PRODUCTS:
        return ("matmul", x, y)
    if name == "linear":
        return ("matmul", x, _turned(y))
    if name == "pow" and y[0] == "number":
        return power(x, y[1])
    if name in {"mul", "multiply"}:
        return times(x, y)
    if name == "add":
        return total(x, y)
    raise UnreadError


def gelu(x: Formula) -> Formula:
    """Return the tanh form of GELU."""
    cube = times(number(0.044715), x, x, x)
    inner = times(number(math.sqrt(2.0 / math.pi)), total(x, cube))
    return times(number(0.5), x, total(number(1.0), ("tanh", inner)))


def _along_last(rest: list[ast.expr], options: Mapping[str | None, ast.expr]) -> bool:
    given = [*rest, *(options[name] for name in ("dim", "axis") if name in options)]
    keeps = options.get("keepdim", options.get("keepdims"))
    try:
        places = [ast.literal_eval(argument) for argument in given]
        kept = keeps is not None and ast.literal_eval(keeps) is True
    except (TypeError, ValueError):
        return False
    return kept and places in ([-1], [[-1]], [(-1,)])


def _last_two(rest: list[ast.expr], name: str) -> bool:
    if name == "t":
        return not rest
    try:
        return sorted(ast.literal_eval(argument) for argument in rest) in ([-2, -1], [0, 1])
    except (TypeError, ValueError):
        return False


def _text(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
