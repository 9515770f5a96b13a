"""CudaRoute: what the routes of packaged CUDA C++ sources share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    Build,
    DeviceLimits,
    KernelRoute,
    Launch,
    LaunchPlan,
    Scratch,
    Step,
    code_hash,
)
from kernelarc.genomes.routes._cuda_source import configured, sources_hash
from kernelarc.genomes.routes._nvrtc import compile_cuda, nvrtc_missing, nvrtc_version

CUDA_ROUTE = "cuda"
_GROUP = 16.5  # multiprocessors of a group: 16 or 18 on Hopper
ALIGNMENT_BYTES = 1024
"""Swizzled tiles start on such addresses; dynamic shared memory may start anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that is known of a genome before it is compiled.

    Attributes:
        source: CUDA C++ without its macros.
        macros: By name.
        steps: In order; launches are of a binary that has no name yet.
        scratch: Buffers beside the tensors.
        aliases: Outputs that are written into an input's buffer.
    """

    source: str
    macros: Mapping[str, str]
    steps: tuple[Step, ...]
    scratch: tuple[Scratch, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole source: macros, then the rest."""
        return configured(self.source, self.macros)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    def named(self, binary: str) -> tuple[Step, ...]:
        """Return the steps with their launches of a binary."""
        return tuple(
            replace(step, binary=binary) if isinstance(step, Launch) else step
            for step in self.steps
        )


class CudaRoute(KernelRoute):
    """A route whose kernels are packaged CUDA C++ sources with genes as macros.

    Args:
        operator: What it implements.
    """

    name = CUDA_ROUTE
    files: ClassVar[tuple[str, ...]] = ()

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    @abstractmethod
    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return a genome's source and launches. Compiles nothing and needs no compiler."""

    def options(self) -> tuple[str, ...]:
        """Return NVRTC's options beside the architecture and the language."""
        return ()

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile a genome's source for an architecture.

        Raises:
            BuildError: It does not compile.
        """
        ready = self.prepared(workload, genome, arch)
        code = compile_cuda(ready.text, arch, self.options())
        binary = code_hash(code.cubin)
        steps = ready.named(binary)
        return Build(
            plan=LaunchPlan(steps=steps, scratch=ready.scratch, aliases=dict(ready.aliases)),
            binaries={binary: code.cubin},
            kernels=tuple(
                code.report(
                    launch.symbol, threads=launch.block[0], shared_bytes=launch.shared_bytes
                )
                for launch in ready.launches
            ),
            arch=arch,
            source=ready.text,
        )

    def missing(self) -> str | None:
        """Say that NVRTC is not there, or None."""
        return nvrtc_missing()

    def identity(self) -> Mapping[str, str]:
        """Return NVRTC's version and the hashes of the sources."""
        return {"nvrtc": nvrtc_version(), **self.hashes()}

    def hashes(self) -> Mapping[str, str]:
        """Return the part of the identity that the sources make."""
        return {"sources": sources_hash(*self.files)}

    def is_as_measured(self, identity: Mapping[str, str]) -> bool:
        """Tell whether the sources are those of an identity that was recorded."""
        return all(identity.get(name) == value for name, value in self.hashes().items())


def whole_gene(genome: Genome, name: str) -> int:
    """Return the whole number (or 0 and 1 for a truth) at a gene.

    Raises:
        InputError: Something else stands there.
    """
    value = genome[name]
    if not isinstance(value, int):
        raise InputError(f"gene {name!r} is a whole number, not {value!r}")
    return int(value)


def started(space: Space, starts: Sequence[Mapping[str, Allele]]) -> tuple[Proposal, ...]:
    """Return the legal genomes among some starts, each once.

    A gene that a start does not name, or that does not have its allele here, holds its first one.
    """
    found: dict[str, Proposal] = {}
    for start in starts:
        alleles = placed_start(space, start)
        if space.violation(alleles) is None:
            genome = space.genome(alleles)
            found[genome.fingerprint] = Proposal(genome=genome, mutation="default")
    return tuple(found.values())


def placed_start(space: Space, start: Mapping[str, Allele]) -> dict[str, Allele]:
    """Return an allele for every gene of a space: the start's where it has one, else the first."""
    return {
        gene.name: start[gene.name]
        if gene.name in start and gene.contains(start[gene.name])
        else gene.at(0)
        for gene in space.genes
    }


def register_genes(caps: tuple[int, ...], blocks: tuple[int, ...]) -> tuple[Gene, ...]:
    """Return the genes that bound a thread's registers: a cap, or how many blocks must fit.

    Args:
        caps: Alleles of the cap; 0 is none.
        blocks: Alleles of the blocks that a multiprocessor must hold at once.
    """
    return (
        Choice(
            name="max_registers",
            options=(0, *caps),
            strategy=Strategy.SCHEDULING,
            description="Most registers of a thread; 0: as min_blocks says.",
        ),
        Choice(
            name="min_blocks",
            options=blocks,
            strategy=Strategy.SCHEDULING,
            when=When("max_registers", (0,)),
            description="Blocks that a multiprocessor must hold at once: bounds the registers.",
        ),
    )


def products_gene(device: DeviceLimits) -> Gene:
    """Return the gene that chooses how tensor cores are fed."""
    hopper = device.compute_capability[0] == 9
    return Choice(
        name="products",
        options=("warpgroup", "warp") if hopper else ("warp",),
        strategy=Strategy.TENSOR_CORE,
        description="Products of warpgroups from shared memory, or of warps from registers.",
    )


def producer_gene(registers: tuple[int, ...]) -> Gene:
    """Return the gene that leaves a producer's thread so many registers."""
    return Choice(
        name="producer_registers",
        options=registers,
        strategy=Strategy.SCHEDULING,
        description="Registers that a producer's thread keeps; consumers get the others.",
    )


def successor_gene() -> Gene:
    """Return the gene that lets kernels follow each other without a gap."""
    return Boolean(
        name="pdl",
        strategy=Strategy.SCHEDULING,
        description="The kernel after this one may start before it ends.",
    )


def resident_clusters(multiprocessors: int, cluster: int) -> int:
    """Return how many clusters of one-block-a-multiprocessor run at once, at least 1.

    A cluster stays within a group of some 16 multiprocessors; what is left of a group is idle.
    """
    groups = max(1, round(multiprocessors / _GROUP))
    if cluster <= 2:  # groups have even numbers of multiprocessors
        return max(1, multiprocessors // cluster)
    return max(1, groups * (multiprocessors // groups // cluster))
