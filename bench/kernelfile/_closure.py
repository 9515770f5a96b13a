"""The part of a source file that one of its top-level names needs, as text by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def closure_of(source: str, name: str, *, called: str | None = None) -> str:
    """Return the statements of a module that define a name and all that it uses.

    Args:
        source: The whole file.
        name: A top-level function, class or variable.
        called: What the result is called instead.

    Raises:
        LookupError: The file defines no such name at its top level.
    """
    body = ast.parse(source).body
    makers: dict[str, list[int]] = {}
    for place, statement in enumerate(body):
        for made in _defined(statement):
            makers.setdefault(made, []).append(place)
    if name not in makers:
        raise LookupError(f"there is no top-level {name!r}")
    wanted, seen = [name], set[str]()
    kept: set[int] = set()
    while wanted:
        each = wanted.pop()
        seen.add(each)
        for place in makers.get(each, ()):
            kept.add(place)
            wanted += [used for used in _used(body[place]) if used in makers and used not in seen]
    parts = [ast.get_source_segment(source, body[place], padded=False) for place in sorted(kept)]
    decorated = [_with_decorators(source, body[p], text) for p, text in zip(sorted(kept), parts)]  # noqa: B905
    text = "\n\n".join(decorated) + "\n"
    return text if called in {None, name} else f"{text}\n{called} = {name}\n"


def _with_decorators(source: str, statement: ast.stmt, text: str | None) -> str:
    decorators = getattr(statement, "decorator_list", [])
    lines = [f"@{ast.get_source_segment(source, decorator)}" for decorator in decorators]
    return "\n".join([*lines, text or ""])


def _defined(statement: ast.stmt) -> Iterable[str]:
    """Yield the names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(n.asname or n.name).partition(".")[0] for n in statement.names]
    return [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _used(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
