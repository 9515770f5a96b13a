"""The route of a kernel file: a user's Triton kernel with its launch function and its genes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import IllegalGenomeError, InputError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategy_rules import assign_strategies
from kernelarc.genomes.kernels import Build, BuildError, Clear, DeviceLimits, KernelRoute
from kernelarc.genomes.triton._compile import build_of, triton_identity, triton_missing
from kernelarc.genomes.triton._declaration import TritonKernel
from kernelarc.genomes.triton._module import imported, the_declaration
from kernelarc.genomes.triton._tracing import StandIn, dense_strides, element_bytes, traced

ROUTE = "triton"
_WARP = 32


@dataclass(frozen=True, kw_only=True)
class TritonFileRoute(KernelRoute):
    """A kernel of a user's file.

    Attributes:
        path: The file. It is imported again in every compile process.
        content: ``content_of`` the file when it was read; a build of a changed file is refused.
        declaration: Name of the ``TritonKernel`` in it.
        kernel: Name under which the file holds the kernel with the genes.
        genes: What there is to choose.
        constraints: Between them.
        first: Genomes to try first, what the user runs today foremost.
        strategies: Strategy by gene, from the user.
        pruned: For workloads with these axes, what the kernel's own pruning leaves.
    """

    path: Path
    content: str
    declaration: str
    kernel: str
    operator: Operator
    genes: tuple[Gene, ...]
    constraints: tuple[Constraint, ...] = ()
    first: tuple[Mapping[str, Allele], ...] = ()
    strategies: Mapping[str, str] = field(default_factory=dict)
    pruned: tuple[tuple[Mapping[str, int], Constraint], ...] = ()
    name: str = ROUTE

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the file's genes under its constraints and the device's."""
        limits = device_constraints(self.genes, self.operator, device)
        bound = axis_values(self.operator, workload)
        own = [table for axes, table in self.pruned if axes.items() <= bound.items()]
        space = Space(self.name, self.genes, (*self.constraints, *own, *limits))
        return assign_strategies(space, self.strategies)

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile what the launch function launches for a genome."""
        module, said = self.opened()
        clears: list[Clear] = []
        calls = traced(
            module,
            said.launch,
            vars(module)[self.kernel],
            values=launch_values(said, self.operator, workload, clears),
            genes=genome.alleles(),
            clears=clears,
        )
        return build_of(calls, arch, aliases=said.in_place)

    def opened(self) -> tuple[ModuleType, TritonKernel]:
        """Import the file, once a process; return it and its declaration.

        Raises:
            BuildError: The file has changed since it was read, or raises.
        """
        module = _module(self.path, self.content)
        return module, the_declaration(module, self.declaration)

    def identity(self) -> Mapping[str, str]:
        """Return Triton's version and the file's content."""
        return {**triton_identity(), "kernel_file": self.content}

    def missing(self) -> str | None:
        """Say that Triton is missing, or None."""
        return triton_missing()

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return the file's own genomes that are legal on the device, in their order."""
        space, found = self.space(workload, device), []
        for alleles in self.first:
            try:
                found.append(Proposal(genome=space.genome(alleles), mutation="own"))
            except IllegalGenomeError:
                continue
        return tuple(found)


def content_of(path: Path) -> str:
    """Return a hash of a file's content.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _module(path: Path, content: str) -> ModuleType:
    """Import the file, once a process.

    Raises:
        BuildError: It has changed since it was read, or raises.
    """
    if content_of(path) != content:
        raise BuildError(f"{path} has changed since the campaign began", "kernel file changed")
    try:
        return imported(path, f"kernelarc_kernel_file_{content}")
    except Exception as error:
        raise BuildError(f"{path}: {type(error).__name__}: {error}", "import failed") from None


def launch_values(
    said: TritonKernel, operator: Operator, workload: Workload, clears: list[Clear]
) -> dict[str, Any]:
    """Return what a launch function can ask for by name, genes aside: tensors, axes, options.

    Args:
        said: The declaration.
        operator: With its axes.
        workload: Binds them.
        clears: The list into which stand-ins record.
    """
    axes = axis_values(operator, workload)
    specs = (*said.specs("inputs"), *said.specs("outputs"))
    return {
        **workload.options,
        **axes,
        **{spec.name: _stand_in(spec, axes, clears) for spec in specs},
    }


def _stand_in(spec: TensorSpec, axes: Mapping[str, int], clears: list[Clear]) -> StandIn:
    shape = tuple(int(part) if part.isdigit() else axes[part] for part in spec.shape or ())
    return StandIn(spec.name, spec.dtype, shape, dense_strides(shape), clears)


# What surely does not fit


def device_constraints(
    genes: Sequence[Gene], operator: Operator, device: DeviceLimits
) -> tuple[Constraint, ...]:
    """Return constraints that a device sets on genes, read by their names.

    Threads of a block for any kernel; for one with tiles called m and n, the registers that hold
    one in float32, which a compiler could only spill (and takes minutes to); with k as well, the
    shared memory that pipelined operands surely need.
    """
    names = [gene.name for gene in genes]
    found: list[Constraint] = []
    if "num_warps" in names:
        text = f"num_warps * {_WARP} <= {device.threads_block}"
        found.append(ExpressionConstraint(text, names))
    tiles = {name.lower().rpartition("_")[2]: name for name in names if _is_tile(name)}
    if {"m", "n"} <= set(tiles) and "num_warps" in names:
        held = f"{tiles['m']} * {tiles['n']} <= {_WARP} * num_warps"
        found.append(ExpressionConstraint(f"{held} * {device.registers_thread + 1}", names))
        if "maxnreg" in names:
            found.append(ExpressionConstraint(f"maxnreg == 0 or {held} * maxnreg", names))
    if {"m", "n", "k"} <= set(tiles) and "num_stages" in names:
        least = min(element_bytes(spec.dtype) for spec in operator.inputs)
        m, n, k = (tiles[letter] for letter in "mnk")
        # One stage fewer than asked for: a compiler may keep the last in registers.
        text = f"({m} + {n}) * {k} * {least} * (num_stages - 1) <= {device.shared_bytes}"
        found.append(ExpressionConstraint(text, names))
    return tuple(found)


def _is_tile(name: str) -> bool:
    return name.lower().startswith(("block_", "tile_")) and name.lower()[-1] in "mnk"
