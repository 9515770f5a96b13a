"""What the packaged Triton routes share."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar

from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes.kernels import Build, KernelRoute
from kernelarc.genomes.triton._call import TritonCall
from kernelarc.genomes.triton._compile import build_of, triton_identity, triton_missing

_FOLDER = "kernelarc.genomes.routes"


class PackagedTritonRoute(KernelRoute):
    """A route whose kernels stand in a module of this package.

    Attributes:
        module: The module's name in the folder of routes.
        others: Modules whose kernels it launches as well.
    """

    module: ClassVar[str]
    others: ClassVar[tuple[str, ...]] = ()

    def __init__(self, operator: Operator) -> None:
        self.name, self.operator = "triton", operator

    def missing(self) -> str | None:
        """Say that Triton is not installed, or None."""
        return triton_missing()

    def identity(self) -> Mapping[str, str]:
        """Return Triton's version and the hash of the kernels' sources."""
        text = "\n".join(self.sources().values()).encode()
        return {**triton_identity(), "source": hashlib.blake2b(text, digest_size=8).hexdigest()}

    @abstractmethod
    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the launches of a genome, in order. Imports Triton."""

    def aliases(self, workload: Workload, genome: Genome) -> dict[str, str]:
        """Return which outputs a genome writes into the buffer of which input."""
        return {}

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile the launches of a genome."""
        aliases = self.aliases(workload, genome)
        return build_of(self.calls(workload, genome, arch), arch, aliases)

    def sources(self) -> dict[str, str]:
        """Return the text of the modules that hold the kernels, by name."""
        folder = files(_FOLDER)
        return {
            name: folder.joinpath(f"{name}.py").read_text("utf-8")
            for name in (self.module, *self.others)
        }

    def kernel(self, name: str) -> Any:
        """Return a kernel of the module, or ``module.kernel`` of another. Imports Triton."""
        module, _, function = name.rpartition(".")
        return getattr(import_module(f"{_FOLDER}.{module or self.module}"), function)
