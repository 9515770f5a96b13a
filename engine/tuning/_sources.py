"""Writing a kernel's source down with everything it uses, so that another process can import it.

Works for kernels of files, of ``__main__`` and of notebooks: what counts is what the kernel's
names stand for now, not which file they came from.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from kernelarc.engine.tuning._travel import CannotTravelError
from kernelarc.genomes.triton import jitted

_PLAIN = (bool, int, float, str, type(None))
_HEAD = "import triton\nimport triton.language as tl\n"


def kernel_source(kernel: Any) -> str:
    """Return Python source that defines a jitted function and what it uses, under its own name.

    Raises:
        CannotTravelError: It uses something that cannot be written down; the text names it.
    """
    lines: dict[str, str] = {}
    _add_kernel(jitted(kernel), lines)
    return "\n\n".join([_HEAD, *lines.values()]) + "\n"


def _add_kernel(base: Any, lines: dict[str, str]) -> None:
    name = base.fn.__name__
    text = f"{_decorator(base)}\n{base.src}"
    if name in lines:
        if lines[name] != text:
            raise CannotTravelError(f"two different functions are called {name!r}")
        return
    lines[name] = text
    space = {**base.fn.__globals__, **_closure(base.fn)}
    for used in sorted(_names(base.src)):
        if used == name or (used in {"tl", "triton"} and _is_head(space.get(used))):
            continue
        if used in space:
            _add_value(used, space[used], lines, user=name)
        elif not hasattr(builtins, used):
            raise CannotTravelError(f"kernel {name!r} uses {used!r}, which is not defined")
    lines[name] = lines.pop(name)  # after what it uses


def _is_head(value: object) -> bool:
    return isinstance(value, ModuleType) and value.__name__ in {"triton", "triton.language"}


def _decorator(base: Any) -> str:
    said = {
        "do_not_specialize": base.do_not_specialize,
        "do_not_specialize_on_alignment": base.do_not_specialize_on_alignment,
        "noinline": getattr(base, "noinline", None),
    }
    words = ", ".join(f"{name}={value!r}" for name, value in said.items() if value)
    return f"@triton.jit({words})" if words else "@triton.jit"


def _closure(function: FunctionType) -> Mapping[str, Any]:
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }


def _names(source: str) -> Iterator[str]:
    """Yield the names that a function's source reads and does not bind itself."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    yield from {node.id for node in nodes if isinstance(node.ctx, ast.Load)} - bound


def _add_value(name: str, value: Any, lines: dict[str, str], *, user: str) -> None:
    line = _line_of(name, value)
    if line is None and jitted(value) is not None:
        _add_kernel(jitted(value), lines)
        own = jitted(value).fn.__name__
        line = None if own == name else f"{name} = {own}"
    elif line is None:
        raise CannotTravelError(
            f"kernel {user!r} uses {name!r}, a {type(value).__name__} that cannot be written down"
        )
    if line is not None and lines.setdefault(name, line) != line:
        raise CannotTravelError(f"{name!r} stands for different things in different kernels")


def _line_of(name: str, value: Any) -> str | None:
    """Return the line that binds a name to a value; None where there is none."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}" if _importable(value.__name__) else None
    kind = type(value)
    if kind.__module__.startswith("triton.") and kind.__name__ == "constexpr":
        inner = _literal(value.value)
        return None if inner is None else f"{name} = tl.constexpr({inner})"
    if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
        return f"{name} = tl.dtype({value.name!r})"
    literal = _literal(value)
    if literal is not None:
        return f"{name} = {literal}"
    return _import_of(name, value)


def _literal(value: Any) -> str | None:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list) and all(_literal(part) is not None for part in value):
        return repr(value)
    return None


def _import_of(name: str, value: Any) -> str | None:
    """Return an import for what belongs to a module that every process can import."""
    base = jitted(value)
    owner = getattr(value if base is None else base.fn, "__module__", None) or ""
    own = getattr(value if base is None else base.fn, "__qualname__", "")
    # A jitted function of a program's own module is written down: importing it could start it.
    if not owner or "." in own or (base is not None and not owner.startswith("triton.")):
        return None
    module = sys.modules.get(owner)
    if getattr(module, own, None) is not value or not _importable(owner):
        return None
    return f"from {owner} import {own} as {name}"


def _importable(module: str) -> bool:
    if module == "__main__":
        return False
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
