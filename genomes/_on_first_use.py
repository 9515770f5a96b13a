"""Packages whose names are imported on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: it imports a name's module when the name is asked for.

    Args:
        package: Name of the package.
        homes: The names that each of its modules has for it, by module below the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)  # asked once
        return value

    return found
