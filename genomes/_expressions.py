"""Arithmetic and logic written as text: checked node by node, then compiled. Nothing is eval'ed.

The text is parsed to a syntax tree; a *new* tree is built from the node kinds listed here, names
become positional parameters, and only that tree is compiled. Calls, attributes, subscripts,
lambdas, comprehensions and assignments have no counterpart and are refused.
"""

from __future__ import annotations

import ast
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelarc.genomes._errors import InputError, nearest

Function: TypeAlias = Callable[..., Any]

TEXT_LIMIT = 10_000
POWER_BITS_LIMIT = 4096

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.RShift)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_UNARY = (ast.USub, ast.UAdd, ast.Not, ast.Invert)
_GUARDED = {ast.Pow: "power", ast.LShift: "shift"}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled text.

    Attributes:
        text: As it was written.
        names: The names it uses, in the order of their first use.
        function: Takes one positional argument per name.
        tree: The checked tree, in which the n-th name is called ``a<n>``.
    """

    text: str
    names: tuple[str, ...]
    function: Function
    tree: ast.expr


def compile_expression(
    text: str, known: Iterable[str], *, what: str, logic: bool = True, noun: str = "gene"
) -> Expression:
    """Check and compile a text over known names.

    Args:
        text: For example ``"a * b <= 1024 or c == 0"``.
        known: The names that may appear.
        what: How error messages call it, for example ``"constraint 'a > 1'"``.
        logic: Whether strings, comparisons, ``and``/``or``/``not`` and ``in`` are allowed.
        noun: How error messages call a name.

    Raises:
        InputError: The text does not parse, uses something else, or an unknown name.
    """
    builder = _Builder(frozenset(known), what, logic, noun)
    body = builder.build(_parse(text, what))
    return Expression(text, tuple(builder.used), function_of(body, len(builder.used), what), body)


def function_of(body: ast.expr, count: int, what: str) -> Function:
    """Compile a checked tree (or a part of one) to a function of ``a0``, ``a1``, ...

    Args:
        body: Made of what ``compile_expression`` builds.
        count: How many positional arguments the function takes.
        what: How error messages call it.
    """
    arguments = ast.arguments(
        posonlyargs=[ast.arg(arg=f"a{place}") for place in range(count)],
        args=[],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(args=arguments, body=body)))
    return _function(tree, what)


def _parse(text: object, what: str) -> ast.expr:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{what} is empty or no text")
    if len(text) > TEXT_LIMIT:
        raise InputError(f"{what[:80]}... is longer than {TEXT_LIMIT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(f"{what} does not parse: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise InputError(f"{what} does not parse: it is too deeply nested or malformed") from None


def _function(tree: ast.Expression, what: str) -> Function:
    try:
        outer = compile(tree, "<expression>", "eval")
    except (RecursionError, MemoryError, ValueError):
        raise InputError(f"{what} is too deeply nested") from None
    code = next(c for c in outer.co_consts if isinstance(c, types.CodeType))
    return types.FunctionType(code, {"__builtins__": {}, "power": _power, "shift": _shift})


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent > 0
    if whole and base.bit_length() * exponent > POWER_BITS_LIMIT:
        raise OverflowError("the power is too large")
    if base < 0 and not float(exponent).is_integer():
        raise ArithmeticError("the power is not a real number")
    return base**exponent


def _shift(base: int, places: int) -> int:
    if places > POWER_BITS_LIMIT:
        raise OverflowError("the shift is too large")
    return base << places


class _Builder:
    """Builds the checked tree; remembers which names it met."""

    def __init__(self, known: frozenset[str], what: str, logic: bool, noun: str) -> None:
        self.known, self.what, self.logic, self.noun = known, what, logic, noun
        self.used: dict[str, str] = {}

    def build(self, node: ast.expr) -> ast.expr:
        try:
            return self._build(node)
        except RecursionError:
            raise InputError(f"{self.what} is too deeply nested") from None

    def _build(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand) if isinstance(op, self._unary()):
                return ast.UnaryOp(op=op, operand=self._build(operand))
            case ast.BinOp():
                return self._binary(node)
        return self._logical(node)

    def _logical(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.BoolOp(op=op, values=values) if self.logic:
                return ast.BoolOp(op=op, values=[self._build(value) for value in values])
            case ast.Compare() if self.logic:
                return self._compare(node)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items) if self.logic:
                return ast.Tuple(elts=[self._build(item) for item in items], ctx=ast.Load())
        raise InputError(f"{self.what} {_refusal(node)}; only arithmetic and comparisons may stand")

    def _unary(self) -> tuple[type[ast.unaryop], ...]:
        return _UNARY if self.logic else (ast.USub, ast.UAdd)

    def _constant(self, node: ast.Constant) -> ast.expr:
        allowed = (bool, int, float, str) if self.logic else (int, float)
        if type(node.value) not in allowed:
            raise InputError(f"{self.what} holds {node.value!r}, which is not allowed there")
        return ast.Constant(node.value)

    def _name(self, name: str) -> ast.expr:
        if name not in self.known:
            raise InputError(
                f"{self.what} names the unknown {self.noun} {name!r}{nearest(name, self.known)}"
            )
        place = self.used.setdefault(name, f"a{len(self.used)}")
        return ast.Name(id=place, ctx=ast.Load())

    def _binary(self, node: ast.BinOp) -> ast.expr:
        for side in (node.left, node.right):
            # A string or tuple times a number could fill the memory, "%" could format.
            if isinstance(side, ast.Tuple | ast.List | ast.Set) or (
                isinstance(side, ast.Constant) and isinstance(side.value, str)
            ):
                raise InputError(f"{self.what} computes with a text or tuple; use numbers there")
        left, right = self._build(node.left), self._build(node.right)
        guard = _GUARDED.get(type(node.op))
        if guard is not None and (self.logic or guard == "power"):
            return ast.Call(func=ast.Name(guard, ast.Load()), args=[left, right], keywords=[])
        if isinstance(node.op, _ARITHMETIC) or (self.logic and isinstance(node.op, _BITWISE)):
            return ast.BinOp(left=left, op=node.op, right=right)
        raise InputError(f"{self.what} uses the operator {type(node.op).__name__}")

    def _compare(self, node: ast.Compare) -> ast.expr:
        for op in node.ops:
            if not isinstance(op, _COMPARISONS):
                raise InputError(f"{self.what} compares by identity; use == or !=")
        return ast.Compare(
            left=self._build(node.left),
            ops=node.ops,
            comparators=[self._build(value) for value in node.comparators],
        )


def _refusal(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else "something"
        return f"calls a function ({called})"
    words = {ast.Attribute: "reads an attribute", ast.Subscript: "uses an index"}
    return words.get(type(node), f"uses {type(node).__name__}")
