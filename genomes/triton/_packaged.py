"""What the packaged Triton routes share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar

from kernelarc.genomes._operators import Operator
from kernelarc.genomes.kernels import KernelRoute
from kernelarc.genomes.triton._compile import triton_identity, triton_missing

_FOLDER = "kernelarc.genomes.routes"


class PackagedTritonRoute(KernelRoute):
    """A route whose kernels stand in a module of this package.

    Attributes:
        module: The module's name in the folder of routes.
    """

    module: ClassVar[str]

    def __init__(self, operator: Operator) -> None:
        self.name, self.operator = "triton", operator

    def missing(self) -> str | None:
        """Say that Triton is not installed, or None."""
        return triton_missing()

    def identity(self) -> Mapping[str, str]:
        """Return Triton's version and the hash of the kernels' source."""
        source = files(_FOLDER).joinpath(f"{self.module}.py").read_bytes()
        return {**triton_identity(), "source": hashlib.blake2b(source, digest_size=8).hexdigest()}

    def kernel(self, name: str) -> Any:
        """Return a kernel of the module. Imports Triton."""
        return getattr(import_module(f"{_FOLDER}.{self.module}"), name)
