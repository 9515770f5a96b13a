"""What a half-decided expression still depends on: the values of its decided parts.

With ``a`` and ``b`` decided, ``a + b + c <= 60`` depends on the number ``a + b`` alone, and
``a > 1 or c == 0`` on whether ``a > 1``. Two assignments with equal residues are told apart by no
later allele, so the decision graph can merge them: a sum over thirty genes needs as many states as
it has partial sums, not as there are combinations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_Term: TypeAlias = "tuple[bool, ast.expr]"  # whether it is subtracted, and what

_WHOLE = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor)


@dataclass(frozen=True, slots=True)
class Part:
    """A decided part of an expression.

    Attributes:
        names: The decided names in it, at least one.
        tree: The part itself.
    """

    names: frozenset[str]
    tree: ast.expr

    @property
    def is_name(self) -> bool:
        """Whether it is a single name and no more."""
        return isinstance(self.tree, ast.Name)


def decided_parts(
    tree: ast.expr, decided: frozenset[str], whole: frozenset[str]
) -> tuple[Part, ...]:
    """Return the largest decided parts of an expression that is used as a truth value.

    Args:
        tree: As ``compile_expression`` built it.
        decided: The names whose values are known.
        whole: The names that hold whole numbers only. Sums and products of those are taken
            together whatever stands between them; of others not, because rounding would tell.
    """
    return tuple(_Collector(decided, whole).collect(tree, truth=True))


def _names(node: ast.AST) -> frozenset[str]:
    called = {id(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
    return frozenset(
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and id(inner) not in called
    )


class _Collector:
    def __init__(self, decided: frozenset[str], whole: frozenset[str]) -> None:
        self.decided, self.whole = decided, whole

    def collect(self, node: ast.expr, *, truth: bool) -> Iterator[Part]:
        names = _names(node)
        if names <= self.decided:
            if names:
                yield Part(names, _truth(node) if truth else node)
        elif isinstance(node, ast.BinOp) and self._is_whole(node) and self._terms(node):
            yield from self._chain(node)
        else:
            # The operands of and, or and not count only as true or false if the whole does so.
            inner = truth and isinstance(node, ast.BoolOp)
            negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
            for child in _operands(node):
                yield from self.collect(child, truth=inner or negated)

    def _chain(self, node: ast.BinOp) -> Iterator[Part]:
        """Take the decided terms of a sum, or factors of a product, together."""
        known = [t for t in self._terms(node) if _names(t[1]) <= self.decided]
        if any(_names(term) for _, term in known):
            tree = _joined(known, ast.Mult() if isinstance(node.op, ast.Mult) else None)
            yield Part(_names(tree), tree)
        for _, term in self._terms(node):
            if not _names(term) <= self.decided:
                yield from self.collect(term, truth=False)

    def _terms(
        self, node: ast.expr, minus: bool = False, product: bool | None = None
    ) -> list[_Term]:
        """Flatten a chain of ``+`` and ``-``, or of ``*``; nothing for other operators."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            return [] if product is None else [(minus, node)]
        multiplies = isinstance(node.op, ast.Mult)
        if product is not None and multiplies != product:
            return [(minus, node)]
        turned = minus != isinstance(node.op, ast.Sub)
        return [
            *self._terms(node.left, minus, multiplies),
            *self._terms(node.right, turned, multiplies),
        ]

    def _is_whole(self, node: ast.expr) -> bool:
        """Tell whether an expression gives a whole number, whatever the alleles are."""
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int)
            case ast.Name(id=name):
                return name in self.whole
            case ast.UnaryOp():
                return self._is_whole(node.operand)
            case ast.BinOp(left=left, op=op, right=right):
                return isinstance(op, _WHOLE) and self._is_whole(left) and self._is_whole(right)
            case ast.Compare():
                return True
        return False


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in children:
        if isinstance(child, ast.expr):
            yield child


def _truth(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=node)


def _joined(terms: list[_Term], multiply: ast.operator | None) -> ast.expr:
    tree: ast.expr | None = None
    for minus, term in terms:
        if tree is None:
            tree = ast.UnaryOp(op=ast.USub(), operand=term) if minus else term
        else:
            op = multiply or (ast.Sub() if minus else ast.Add())
            tree = ast.BinOp(left=tree, op=op, right=term)
    assert tree is not None
    return tree
