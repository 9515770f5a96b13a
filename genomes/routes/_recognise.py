"""Recognising a matrix product in a definition's reference, by what its expression does.

A definition says its job as Python source. What is read here: names, assignments, one return;
``@``, ``matmul``, ``mm``, ``bmm``, ``linear``; transposes of two last axes; sums; casts, which a
library does inside. Anything else is not recognised, and never guessed at.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from kernelarc.genomes._operators import Operator

_PRODUCTS = frozenset({"matmul", "mm", "bmm", "dot"})
_CASTS = frozenset({"to", "float", "bfloat16", "half", "type", "astype", "contiguous"})
COARSE_CASTS = ("int", "bool", "long", "short", "float8")
"""A cast to one of these changes the result: it is part of the job."""

_SUMS = frozenset({"add"})
_SWAPS = frozenset({"transpose", "swapaxes"})
_ACTIVATIONS = {"relu": "relu"}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input, transposed or not; ``flat`` where what was done to it fits two axes only."""

    name: str
    transposed: bool = False
    flat: bool = False


@dataclass(frozen=True, slots=True)
class _Sum:
    """One product and what is added to it, and what is applied last."""

    product: tuple[_Tensor, _Tensor] | None
    added: tuple[str, ...]
    activation: str = "none"


_Term: TypeAlias = "_Tensor | _Sum"


class _UnknownError(Exception):
    """The expression is none that is read here."""


@dataclass(frozen=True, slots=True)
class ReadProduct:
    """What a reference was read to compute: ``activation(left . right + added)``.

    Attributes:
        left: Name of the first factor, and whether its last two axes are exchanged.
        right: The same of the second.
        added: Names of the other inputs, each added once.
        activation: ``"none"`` or ``"relu"``.
    """

    left: tuple[str, bool]
    right: tuple[str, bool]
    added: tuple[str, ...]
    activation: str


def recognised_matmul(operator: Operator) -> Operator | None:
    """Return the operator marked as a matrix product, or None where its reference is no such.

    An operator whose ``op_type`` says it already is returned as it is. The fingerprint stays.
    """
    kind = operator.op_type.partition("_")[0]
    if kind in {"matmul", "gemm"}:
        return operator
    found = read_product(operator)
    if found is None:
        return None
    suffix = "" if found.activation == "none" else f"_{found.activation}"
    return replace(operator, op_type=f"matmul{suffix}")


def read_product(operator: Operator) -> ReadProduct | None:
    """Read an operator's reference as a matrix product, in whatever order its inputs stand.

    Returns:
        None where it computes anything else, or where an input takes no part or two parts.
    """
    if operator.reference is None or len(operator.outputs) != 1:
        return None
    names = tuple(tensor.name for tensor in operator.inputs)
    found = _read(operator.reference, names)
    if found is None or found.product is None:
        return None
    left, right = found.product
    if sorted((left.name, right.name, *found.added)) != sorted(names):
        return None
    shapes = {tensor.name: tensor.shape or () for tensor in operator.inputs}
    if any(t.flat and len(shapes[t.name]) != 2 for t in found.product):
        return None
    rows, columns = (_last_two(shapes[t.name], t.transposed) for t in found.product)
    if not len(rows) == len(columns) == 2 or rows[1] != columns[0]:
        return None
    return ReadProduct(
        left=(left.name, left.transposed),
        right=(right.name, right.transposed),
        added=found.added,
        activation=found.activation,
    )


def _last_two(shape: tuple[str, ...], transposed: bool) -> tuple[str, ...]:
    return shape[-1:-3:-1] if transposed else shape[-2:]


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """A reference as statements.

    Attributes:
        module: All at the top level.
        run: Those of the function ``run``.
        named: From its parameters to the inputs' names.
    """

    module: list[ast.stmt]
    run: list[ast.stmt]
    named: Mapping[str, str]


def parsed_run(source: str, inputs: tuple[str, ...]) -> ParsedRun | None:
    """Return a reference's statements, or None where ``run`` does not take these inputs."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    run = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "run"), None)
    if run is None or run.args.kwonlyargs or run.args.vararg or run.args.kwarg:
        return None
    parameters = [argument.arg for argument in (*run.args.posonlyargs, *run.args.args)]
    if len(parameters) != len(inputs):
        return None
    return ParsedRun(body, run.body, dict(zip(parameters, inputs, strict=True)))


@lru_cache(maxsize=64)
def _read(source: str, inputs: tuple[str, ...]) -> _Sum | None:
    parsed = parsed_run(source, inputs)
    if parsed is None:
        return None
    known: dict[str, _Term] = {parameter: _Tensor(name) for parameter, name in parsed.named.items()}
    try:
        return _returned(parsed.run, known)
    except _UnknownError:
        return None


def _returned(body: list[ast.stmt], known: dict[str, _Term]) -> _Sum | None:
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                known[target.id] = _term(statement.value, known)
                continue
        if isinstance(statement, ast.Return) and statement.value is not None:
            found = _term(statement.value, known)
            return found if isinstance(found, _Sum) else None
        return None
    return None


def _term(node: ast.expr, known: Mapping[str, _Term]) -> _Term:
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return _product(_term(node.left, known), _term(node.right, known))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _added(_term(node.left, known), _term(node.right, known))
    if isinstance(node, ast.Attribute) and node.attr in {"T", "mT"}:
        return _flipped(_term(node.value, known), flat=node.attr == "T")
    if isinstance(node, ast.Call):
        return _call(node, known)
    raise _UnknownError


def _call(node: ast.Call, known: Mapping[str, _Term]) -> _Term:
    if not isinstance(node.func, ast.Attribute):
        raise _UnknownError
    name, owner = node.func.attr, node.func.value
    if _is_module(owner, known):
        return _function(name, node, known)
    subject = _term(owner, known)
    if name in _CASTS:
        given = " ".join(ast.unparse(a) for a in (*node.args, *node.keywords))
        if any(word in given for word in COARSE_CASTS):
            raise _UnknownError
        return subject
    if name == "t" and not node.args:
        return _flipped(subject, flat=True)
    if name in _SWAPS and (swapped := _swapped(node.args)):
        return _flipped(subject, flat=swapped == [0, 1])
    return _combined(name, [subject, *(_term(argument, known) for argument in node.args)], node)


def _is_module(owner: ast.expr, known: Mapping[str, _Term]) -> bool:
    if isinstance(owner, ast.Attribute):
        return owner.attr not in {"T", "mT"} and _is_module(owner.value, known)
    return isinstance(owner, ast.Name) and owner.id not in known


def _function(name: str, node: ast.Call, known: Mapping[str, _Term]) -> _Term:
    """Read ``torch.matmul(...)`` and the like: a function of a module."""
    if name in _SWAPS and node.args and (swapped := _swapped(node.args[1:])):
        return _flipped(_term(node.args[0], known), flat=swapped == [0, 1])
    return _combined(name, [_term(argument, known) for argument in node.args], node)


def _combined(name: str, terms: list[_Term], node: ast.Call) -> _Term:
    if node.keywords:
        raise _UnknownError
    if name in _PRODUCTS and len(terms) == 2:
        return _product(*terms)
    if name == "linear" and len(terms) in {2, 3}:
        product = _product(terms[0], _flipped(terms[1]))
        return product if len(terms) == 2 else _added(product, terms[2])
    if name in _SUMS and len(terms) == 2:
        return _added(*terms)
    if name in _ACTIVATIONS and len(terms) == 1 and isinstance(terms[0], _Sum):
        return _activated(terms[0], _ACTIVATIONS[name])
    raise _UnknownError


def _product(left: _Term, right: _Term) -> _Sum:
    if not isinstance(left, _Tensor) or not isinstance(right, _Tensor):
        raise _UnknownError
    return _Sum((left, right), ())


def _added(left: _Term, right: _Term) -> _Sum:
    parts = [_as_sum(left), _as_sum(right)]
    products = [part.product for part in parts if part.product is not None]
    if len(products) > 1 or any(part.activation != "none" for part in parts):
        raise _UnknownError
    return _Sum(products[0] if products else None, parts[0].added + parts[1].added)


def _as_sum(term: _Term) -> _Sum:
    if isinstance(term, _Sum):
        return term
    if term.transposed:
        raise _UnknownError
    return _Sum(None, (term.name,))


def _activated(term: _Sum, activation: str) -> _Sum:
    if term.activation != "none":
        raise _UnknownError
    return replace(term, activation=activation)


def _flipped(term: _Term, *, flat: bool = False) -> _Term:
    if not isinstance(term, _Tensor):
        raise _UnknownError
    return _Tensor(term.name, not term.transposed, term.flat or flat)


def _swapped(arguments: list[ast.expr]) -> list[int]:
    """Return the two axes that are exchanged where they are the last two; empty otherwise."""
    try:
        numbers = sorted(ast.literal_eval(argument) for argument in arguments)
    except (TypeError, ValueError):
        return []
    return numbers if numbers in ([-2, -1], [0, 1]) else []
