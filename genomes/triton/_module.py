"""Importing a user's file by its path. Done in reading and compiling processes only."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from kernelarc.genomes._errors import InputError
from kernelarc.genomes.triton._declaration import TritonKernel

MODULE = "kernelarc_kernel_file"


def imported(path: Path, name: str = MODULE) -> ModuleType:
    """Import a file, with its folder first on the module path, as a script has it.

    Whatever the file raises goes through.
    """
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def declarations_of(module: ModuleType) -> dict[str, TritonKernel]:
    """Return the declarations at a file's top level by the name they stand under."""
    found = {n: v for n, v in vars(module).items() if isinstance(v, TritonKernel)}
    kept: dict[int, str] = {}
    for name, value in found.items():
        kept.setdefault(id(value), name)
    return {name: found[name] for name in kept.values()}


def the_declaration(module: ModuleType, name: str) -> TritonKernel:
    """Return one declaration by name.

    Raises:
        InputError: It is not there (any more).
    """
    found = declarations_of(module).get(name)
    if found is None:
        raise InputError(f"{module.__file__}: there is no TritonKernel {name!r} any more")
    return found
