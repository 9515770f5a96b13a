"""What can take part in one bench: compiled plans, cuBLASLt algorithms."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from kernelarc.bench.cuda._clock import Call
from kernelarc.bench.cuda._library import Algorithm, Matmul, Side
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._library_steps import LibrarySteps, content_of
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._program import Addresses, Loader, Program
from kernelarc.bench.kernels._scratch import ScratchMemory
from kernelarc.genomes import Allele, matmul_roles
from kernelarc.genomes.kernels import Build

REFUSED = "launch refused"


class Launchable(ABC):
    """Something that does the job on a buffer set.

    Attributes:
        aliases: Output to the input in whose buffer it is written.
        checked: Whether its outputs land in the set and are judged.
    """

    aliases: Mapping[str, str]
    checked = True

    @abstractmethod
    def call(self, buffers: TensorSet) -> Call:
        """Return what launches the job on a set; every launch goes to the bench's stream."""

    def land(self, buffers: TensorSet) -> None:
        """Do the job on a set once, outputs included, whether or not its calls leave them there.

        Raises:
            InputError: It gives other outputs than the job has.
        """
        self.call(buffers)()

    def captures(self, buffers: TensorSet) -> bool:
        """Tell whether its calls can be recorded into a graph; a set may be used to find out."""
        return True

    def guard(self) -> None:  # noqa: B027 - what needs no scratch memory has nothing to guard
        """Poison the scratch memory that it may use, and put bands around it."""

    def bands(self) -> Any:
        """Return a device array of the addresses of its own guard bands, or None."""
        return None

    def properties(self) -> dict[str, Allele]:
        """Return what is recorded of it."""
        return {}

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Surround a graph capture of its calls."""
        yield


class PlanLaunchable(Launchable):
    """Compiled kernels.

    Args:
        build: Their plan and binaries.
        loader: The device's.
        stream: Where they are launched.
        scratch: The device's scratch memory.
        library: For the plan's products of the library.

    Raises:
        LaunchRefusedError: The driver refuses a binary.
        NoSuchChoiceError: The library has no algorithm of the number that the plan asks for.
    """

    def __init__(
        self, build: Build, loader: Loader, stream: Any, scratch: ScratchMemory,
        library: LibrarySteps | None = None,
    ) -> None:  # fmt: skip
        self.build, self.aliases = build, dict(build.plan.aliases)
        self._program = Program(loader, build, stream, library)
        self._placed = scratch.place(build.plan.scratch)
        self._calls: dict[int, tuple[TensorSet, Call]] = {}

    def call(self, buffers: TensorSet) -> Call:
        """Return the plan's launches, bound once for each set."""
        known = self._calls.get(id(buffers))
        if known is None or known[0] is not buffers or buffers.scalars:
            addresses = Addresses(
                tensors=buffers.addresses(self.aliases),
                scratch=self._placed.addresses,
                scalars=buffers.scalars,
                maps=self._placed.keep,
            )
            known = self._calls[id(buffers)] = buffers, self._program.bound(addresses)
        once, zeroed = known[1], self._placed.clears

        def call() -> None:
            for clear in zeroed:
                clear()
            once()

        return call if zeroed else once

    @property
    def content(self) -> str:
        """What its launches come to where the library has a part in them, else empty."""
        products = self._program.products
        return content_of(self.build.plan, products) if products else ""

    def guard(self) -> None:
        self._placed.guard()

    def bands(self) -> Any:
        return self._placed.bands

    def properties(self) -> dict[str, Allele]:
        reports = self.build.kernels
        found: dict[str, Allele] = {
            "registers": max(report.registers for report in reports),
            "spill_bytes": max(report.spill_bytes for report in reports),
            "shared_bytes": max(r.static_shared_bytes + r.shared_bytes for r in reports),
            "threads": max(report.threads for report in reports),
        }
        for name in ("wgmma", "tma", "tcgen05", "mma"):
            count = sum(report.instructions.get(name, 0) for report in reports)
            if count:
                found[name] = count
        if self._program.products:  # whoever exports makes these very algorithms again
            found["library"] = tuple(product.attributes for product in self._program.products)
        return found


class LtLaunchable(Launchable):
    """An algorithm of cuBLASLt, as a contender among compiled kernels.

    Args:
        matmul: Descriptors of the job; shared by all algorithms of it.
        algorithm: The library's form of an attribute row.
        job: Whose tensors.
        stream: Where it is launched.
        scratch: The device's scratch memory.
    """

    def __init__(
        self, matmul: Matmul, algorithm: Algorithm, job: BoundJob, stream: Any,
        scratch: ScratchMemory,
    ) -> None:  # fmt: skip
        self._matmul, self._algorithm = matmul, algorithm
        roles = matmul_roles(job.task.operator, job.task.workload)
        assert roles is not None  # or there would be no descriptors
        self._stream, self._roles, self._out = stream, roles, job.outputs[0].name
        aliased = bool(algorithm.row[10]) and roles.residual is not None
        self.aliases = {self._out: str(roles.residual)} if aliased else {}
        self._granted = algorithm.row[9]
        self._placed = scratch.place_bytes(self._granted)

    def call(self, buffers: TensorSet) -> Call:
        """Return a launch on a set."""
        found, roles = buffers.addresses(self.aliases), self._roles
        out = found[self._out]
        third = found[roles.residual] if roles.residual is not None else out
        addresses = (found[roles.a], found[roles.b], third, out)
        workspace = self._placed.addresses[_WORKSPACE], self._granted
        side = Side(bias=found[roles.bias]) if roles.bias is not None else None

        def call() -> None:
            if side is not None:
                self._matmul.point(side)
            self._matmul.launch(self._algorithm, addresses, workspace, self._stream.ptr)

        return call

    def guard(self) -> None:
        self._placed.guard()

    def bands(self) -> Any:
        return self._placed.bands

    def properties(self) -> dict[str, Allele]:
        return self._algorithm.properties()


_WORKSPACE = "workspace"
