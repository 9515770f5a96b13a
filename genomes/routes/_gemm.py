"""The route ``cpu`` of gemm: cache blocks around a register tile, genes as macros of gemm.c."""

from __future__ import annotations

from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice, Permutation, PowerOfTwo
from kernelarc.genomes._operators import Workload
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.routes._flags import BASE_FLAGS, FLAGS, flag_genes
from kernelarc.genomes.routes._host import HostShape, threads_gene, vector_gene
from kernelarc.genomes.routes._route import Route
from kernelarc.genomes.routes._source import packaged_source

ROUTE = "cpu"


def _tiles(host: HostShape) -> tuple[Gene, ...]:
    owner = Strategy.TENSOR_CORE
    return (
        Choice(
            name="mr",
            options=(1, 2, 3, 4, 6, 8, 12),
            strategy=owner,
            description="Rows of the register tile.",
        ),
        Choice(
            name="nv",
            options=(1, 2, 3, 4, 6),
            strategy=owner,
            description="Vectors across the register tile.",
        ),
        vector_gene(host),
        Choice(
            name="mc",
            options=(12, 24, 48, 64, 96, 128, 192, 256, 384),
            strategy=owner,
            description="Rows of a cache block of A.",
        ),
        Choice(
            name="nc",
            options=(48, 96, 192, 384, 512, 768, 1024, 1536, 2048, 3072),
            strategy=owner,
            description="Columns of a cache block of B.",
        ),
        PowerOfTwo(
            name="kc", low=16, high=1024, strategy=owner, description="Depth of a cache block."
        ),
    )


def _memory() -> tuple[Gene, ...]:
    owner = Strategy.MEMORY
    return (
        Boolean(name="pack_a", strategy=owner, description="Copy blocks of A into tile order."),
        Boolean(name="pack_b", strategy=owner, description="Copy blocks of B into tile order."),
        Boolean(
            name="pin",
            strategy=owner,
            description="Keep vectors of B in registers instead of folding their loads.",
        ),
        Choice(
            name="prefetch",
            options=(0, 4, 8, 16, 32),
            strategy=owner,
            description="Fetch A and B so many steps of K ahead; 0 is never.",
        ),
        Boolean(
            name="prefetch_c", strategy=owner, description="Fetch a tile of C before it is summed."
        ),
    )


def _reduction(host: HostShape) -> tuple[Gene, ...]:
    owner = Strategy.REDUCTION
    return (
        PowerOfTwo(
            name="unroll",
            low=1,
            high=8,
            strategy=Strategy.SCHEDULING,
            description="Steps of K written out in the inner loop.",
        ),
        PowerOfTwo(
            name="k_chains",
            low=1,
            high=2,
            strategy=owner,
            description="Independent partial sums of each element within a tile.",
        ),
        Choice(
            name="k_split",
            options=tuple(n for n in host.thread_counts() if host.threads % n == 0),
            strategy=owner,
            description="Slices of K that threads sum side by side.",
        ),
    )


def _scheduling(host: HostShape) -> tuple[Gene, ...]:
    owner = Strategy.SCHEDULING
    return (
        Permutation(
            name="loop_order",
            items=("m", "n", "k"),
            strategy=owner,
            description="Order of the loops over cache blocks, outermost first.",
        ),
        Permutation(
            name="tile_order",
            items=("m", "n"),
            strategy=owner,
            description="Order of the loops over tiles within a block.",
        ),
        threads_gene(host),
        Choice(
            name="split",
            options=("m", "n"),
            strategy=owner,
            description="Whether threads share out rows or columns of C.",
        ),
    )


def _fusion(workload: Workload) -> Gene:
    """Without a residual there is nothing to add late: only how C is begun remains."""
    late = ("last", "after") if workload.options.get("residual") else ()
    return Choice(
        name="epilogue",
        options=("first", "before", *late),
        strategy=Strategy.FUSION,
        description="When C is begun and the residual added: with the first block of K, in a "
        "pass before, with the last block, in a pass after.",
    )


def _constraints(host: HostShape, names: tuple[str, ...]) -> tuple[Constraint, ...]:
    registers = host.vector_floats * host.vector_registers
    texts = (
        f"mr * nv * vec * k_chains <= {registers * 3 // 2}",  # half as much again may spill
        "mc % mr == 0",
        "nc % (nv * vec) == 0",
        f"mc * kc * 4 <= {2 * host.l2_bytes}",
        f"nc * kc * 4 <= {16 * host.l2_bytes}",
        "k_chains <= unroll",
        "threads % k_split == 0",
    )
    return tuple(ExpressionConstraint(text, names) for text in texts)


def gemm_space(workload: Workload, host: HostShape) -> Space:
    """Return the space of gemm's route ``cpu`` for a workload on a host."""
    genes = (
        *_tiles(host),
        *_memory(),
        *_reduction(host),
        *_scheduling(host),
        _fusion(workload),
        *flag_genes(),
    )
    return Space(ROUTE, genes, _constraints(host, tuple(gene.name for gene in genes)))


def gemm_route() -> Route:
    """Return gemm's route ``cpu``."""
    return Route(
        name=ROUTE,
        operator="gemm",
        space=gemm_space,
        source=packaged_source("gemm.c"),
        symbol="gemm",
        arguments=("a", "b", "residual", "c", "M", "N", "K"),
        flags=FLAGS,
        base_flags=BASE_FLAGS,
    )
