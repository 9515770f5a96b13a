"""KernelRoute: one way to implement an operator by kernels that are compiled for a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Self

from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels._build import Build
from kernelarc.genomes.kernels._limits import DeviceLimits, resource_fault


class KernelRoute(ABC):
    """A route of one operator on a GPU.

    An object holds only what can be pickled: it is sent to compile processes, which import its
    class by name. Compilers are imported inside ``build`` and ``identity``, never before.

    Attributes:
        name: The genomes' first gene, unique among the routes of an operator: ``"triton"``.
        operator: What it implements.
    """

    name: str
    operator: Operator
    _device: DeviceLimits | None = None

    def on(self, device: DeviceLimits) -> Self:
        """Return this route as it builds for one device.

        Kernels whose blocks stay and take work in turn are launched with as many as its
        multiprocessors hold; otherwise with as many as the architecture's usual device holds.
        """
        bound = copy(self)
        object.__setattr__(bound, "_device", device)  # a route may be frozen
        return bound

    def limits(self, arch: str) -> DeviceLimits:
        """Return the device that ``build`` counts on: the one bound by ``on``, or the usual one.

        Raises:
            InputError: The architecture is not known.
        """
        bound = self._device
        return bound if bound is not None and bound.arch == arch else DeviceLimits.of_arch(arch)

    @abstractmethod
    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return all genomes worth compiling for a workload on a device.

        Constraints are estimates of shared memory, registers and threads: they keep out what
        surely does not fit. Genes may be left without a strategy: one is given by rule, or by
        the user.
        """

    @abstractmethod
    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile a genome. Runs in a compile process; there may be no GPU.

        Args:
            workload: One of the operator's, every axis bound.
            genome: One of ``space``.
            arch: ``"sm_90a"`` or ``"sm_100a"``.

        Raises:
            BuildError: The genome does not compile; names the failure class.
        """

    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Return what a measurement depends on: the compiler's version, the sources' hash."""

    def missing(self) -> str | None:
        """Say what must be installed before ``build`` can work, or None. Imports nothing."""
        return None

    def unsuited(self, workload: Workload) -> str | None:
        """Say why this workload is not served though the operator is, or None."""
        return None

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return genomes worth trying first, a user's own default foremost."""
        return ()

    def fault(self, build: Build, device: DeviceLimits) -> tuple[str, str] | None:
        """Judge a build by its resource report before any launch: failure class and one line."""
        return resource_fault(build, device)
