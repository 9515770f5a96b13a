"""The route of a user's CUDA source: genes and axes as macros, launches as arithmetic over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._errors import IllegalGenomeError, InputError
from kernelarc.genomes._expressions import compile_expression
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategy_rules import assign_strategies
from kernelarc.genomes.kernels import (
    Argument,
    BuildError,
    DeviceLimits,
    InputArgument,
    Launch,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorArgument,
    Zeroing,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared
from kernelarc.genomes.routes._cuda_source import genome_macros, text_hash

BAD_LAUNCH = "launch does not compute"
Triple: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A number that is passed by value: arithmetic over axes and genes, and its type."""

    text: str
    kind: str


OwnArgument: TypeAlias = TensorArgument | ScratchArgument | InputArgument | Computed


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLaunch:
    """One launch; every number is arithmetic over axes and genes.

    Attributes:
        symbol: Of an ``extern "C"`` kernel.
        grid: Blocks along x, y, z.
        block: Threads along x, y, z.
        cluster: Blocks of a cluster along x, y, z.
        shared_bytes: Dynamic shared memory.
        arguments: In the order of the kernel's parameters.
    """

    symbol: str
    grid: Triple
    block: Triple
    cluster: Triple = ("1", "1", "1")
    shared_bytes: str = "0"
    arguments: tuple[OwnArgument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnScratch:
    """Device memory beside the tensors; its size is arithmetic over axes and genes."""

    name: str
    nbytes: str
    zeroing: Zeroing


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSource:
    """A CUDA source with what there is to choose in it.

    Attributes:
        text: CUDA C++; a gene ``rows`` is the macro ``ROWS``, an axis ``hidden`` is
            ``AXIS_HIDDEN``.
        genes: At least one.
        constraints: Between them.
        launches: In order.
        scratch: Buffers beside the tensors.
        seeds: Genomes to try first, what the user runs today foremost.
        include_paths: Folders in which NVRTC finds headers.
    """

    text: str
    genes: tuple[Gene, ...]
    launches: tuple[OwnLaunch, ...]
    constraints: tuple[Constraint, ...] = ()
    scratch: tuple[OwnScratch, ...] = ()
    seeds: tuple[Mapping[str, Allele], ...] = ()
    include_paths: tuple[str, ...] = field(default=())


class OwnCudaRoute(CudaRoute):
    """A user's CUDA kernels for one operator.

    Args:
        operator: What they implement.
        own: The source.

    Raises:
        InputError: An expression does not parse, or names what is neither axis nor gene.
    """

    def __init__(self, operator: Operator, own: OwnSource) -> None:
        super().__init__(operator)
        self.own = own
        for text, what in _texts(own):
            compile_expression(text, self._names(), what=what, noun="axis or gene")

    def _names(self) -> tuple[str, ...]:
        return (*self.operator.axes, *(gene.name for gene in self.own.genes))

    def hashes(self) -> Mapping[str, str]:
        """Return the source's hash."""
        return {"kernel_source": text_hash(self.own.text)}

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes under their constraints; strategies are given by rule."""
        return assign_strategies(Space(self.name, self.own.genes, self.own.constraints))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return the user's own genomes that are legal, in their order."""
        space, found = self.space(workload, device), []
        for alleles in self.own.seeds:
            try:
                found.append(Proposal(genome=space.genome(alleles), mutation="own"))
            except IllegalGenomeError:
                continue
        return tuple(found)

    def options(self) -> tuple[str, ...]:
        """Return where NVRTC finds headers."""
        return tuple(f"--include-path={path}" for path in self.own.include_paths)

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return the source with its macros, and the launches with their numbers.

        Raises:
            BuildError: A number does not compute, or is none that a launch can have.
        """
        axes = axis_values(self.operator, workload)
        numbers = {**axes, **genome.alleles()}
        own = self.own
        launches = tuple(self._launch(launch, numbers) for launch in own.launches)
        scratch = tuple(
            Scratch(
                name=part.name,
                nbytes=self._count(part.nbytes, f"scratch {part.name!r}", numbers, least=1),
                zeroing=part.zeroing,
            )
            for part in own.scratch
        )
        macros = genome_macros(genome, {f"AXIS_{name.upper()}": n for name, n in axes.items()})
        return Prepared(source=own.text, macros=macros, steps=launches, scratch=scratch)

    def _launch(self, launch: OwnLaunch, numbers: Mapping[str, Allele]) -> Launch:
        def triple(texts: Triple, what: str) -> tuple[int, int, int]:
            place = f"{launch.symbol}: {what}"
            x, y, z = (self._count(text, place, numbers, least=1) for text in texts)
            return x, y, z

        return Launch(
            binary="",
            symbol=launch.symbol,
            grid=triple(launch.grid, "grid"),
            block=triple(launch.block, "block"),
            cluster=triple(launch.cluster, "cluster"),
            shared_bytes=self._count(launch.shared_bytes, f"{launch.symbol}: shared", numbers),
            arguments=tuple(self._argument(each, numbers) for each in launch.arguments),
        )

    def _argument(self, given: OwnArgument, numbers: Mapping[str, Allele]) -> Argument:
        if not isinstance(given, Computed):
            return given
        value = self._value(given.text, f"argument {given.text!r}", numbers)
        whole = not given.kind.startswith("f")
        return ScalarArgument(int(value) if whole else float(value), given.kind)

    def _value(self, text: str, what: str, numbers: Mapping[str, Allele]) -> float:
        found = compile_expression(text, self._names(), what=what, noun="axis or gene")
        try:
            value = found.function(*(numbers[name] for name in found.names))
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise BuildError(f"{what}: {text!r}: {type(error).__name__}", BAD_LAUNCH) from None
        if not isinstance(value, int | float):
            raise BuildError(f"{what}: {text!r} gives {value!r}, no number", BAD_LAUNCH)
        return value

    def _count(self, text: str, what: str, numbers: Mapping[str, Allele], *, least: int = 0) -> int:
        value = self._value(text, what, numbers)
        if value != int(value) or value < least:
            raise BuildError(
                f"{what}: {text!r} gives {value}, not a whole number from {least}", BAD_LAUNCH
            )
        return int(value)


def _texts(own: OwnSource) -> list[tuple[str, str]]:
    """Return every expression of a source with how messages call it."""
    found = [(part.nbytes, f"scratch {part.name!r}") for part in own.scratch]
    for launch in own.launches:
        numbers = (*launch.grid, *launch.block, *launch.cluster, launch.shared_bytes)
        found += [(text, f"launch of {launch.symbol!r}: {text!r}") for text in numbers]
        computed = [a.text for a in launch.arguments if isinstance(a, Computed)]
        found += [(text, f"launch of {launch.symbol!r}: argument {text!r}") for text in computed]
    if not own.genes:
        raise InputError("a kernel needs at least one gene")
    return found
