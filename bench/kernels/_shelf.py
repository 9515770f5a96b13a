"""Builds kept on disk by content, shared by campaigns and processes."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelarc.genomes import (
    Genome,
    StoppedError,
    Workload,
    canonical_json,
    fingerprint_of,
)
from kernelarc.genomes.kernels import Build, KernelRoute, code_hash

_FORMAT = 2
_SAFE = ("kernelarc.genomes.kernels.",)


class BuildShelf:
    """Plans by what they were built from, and binaries by what they are.

    Everything on it can be deleted at any time. A file that is damaged, or of another format,
    counts as absent.

    Args:
        folder: Made when something is first put there.

    Attributes:
        compiled: Where compile processes may keep what does not depend on a workload.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "kernels"
        self.compiled = self._folder / "compiled"

    def get(self, key: str) -> Build | None:
        """Return the build of a key, or None."""
        try:
            packed = zlib.decompress(self._plan(key).read_bytes())
            plain: Build = _Reader(io.BytesIO(packed)).load()
            binaries = {name: self._binary(name).read_bytes() for name in plain.binaries}
        except (OSError, zlib.error, pickle.UnpicklingError, EOFError, LookupError):
            return None
        except (AttributeError, TypeError, ValueError):  # a plan of another version
            return None
        if any(code_hash(content) != name for name, content in binaries.items()):
            return None
        return replace(plain, binaries=binaries)

    def put(self, key: str, build: Build) -> None:
        """Keep a build.

        Raises:
            StoppedError: The folder cannot be written.
        """
        try:
            for name, content in build.binaries.items():
                if not self._binary(name).exists():
                    _write(self._binary(name), content)
            bare = replace(build, binaries=dict.fromkeys(build.binaries, b""))
            packed = zlib.compress(pickle.dumps(bare, protocol=pickle.HIGHEST_PROTOCOL), 1)
            _write(self._plan(key), packed)
        except OSError as error:
            raise StoppedError(
                f"cannot write to {self._folder} ({error.strerror}): "
                "make room or give it back its rights, then resume"
            ) from None

    def _plan(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.plan{_FORMAT}"

    def _binary(self, name: str) -> Path:
        return self._folder / name[:2] / f"{name}.cubin"


class _Reader(pickle.Unpickler):
    """Reads plans and nothing else: a file in a shared folder must not run code here."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_SAFE):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a plan holds no {module}.{name}")


def _write(path: Path, content: bytes) -> None:
    """Write so that others see the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def build_key(
    route: KernelRoute, identity: Mapping[str, str], workload: Workload, genome: Genome, arch: str
) -> str:
    """Return the key of a build: everything that its machine code and plan depend on."""
    return fingerprint_of(
        canonical_json(
            {
                "format": _FORMAT,
                "route": route.name,
                "identity": dict(identity),
                "operator": route.operator.fingerprint,
                "axes": dict(workload.axes),
                "options": dict(workload.options),
                "inputs": {name: dict(rule) for name, rule in workload.inputs.items()},
                "genome": genome.fingerprint,
                "arch": arch,
            }
        )
    )
