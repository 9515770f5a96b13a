"""The route ``cpu`` of add_rmsnorm: two passes over rows, genes as macros of add_rmsnorm.c."""

from __future__ import annotations

from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._operators import Workload
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.routes._flags import BASE_FLAGS, FLAGS, flag_genes
from kernelarc.genomes.routes._host import HostShape, threads_gene, vector_gene
from kernelarc.genomes.routes._route import Route
from kernelarc.genomes.routes._source import packaged_source

ROUTE = "cpu"


def _memory(host: HostShape) -> tuple[Gene, ...]:
    owner = Strategy.MEMORY
    stream = Choice(
        name="stream",
        options=("none", "y", "both"),
        strategy=owner,
        description="Which outputs are stored past the caches.",
    )
    genes: tuple[Gene, ...] = (
        vector_gene(host),
        Choice(
            name="prefetch",
            options=(0, 64, 256, 1024, 4096),
            strategy=owner,
            description="Fetch so many floats ahead; 0 is never.",
        ),
        Choice(
            name="reread",
            options=("summed", "inputs", "buffer"),
            strategy=owner,
            description="Where the second pass finds the sum: stored, added again, kept aside.",
        ),
    )
    return (*genes, stream) if host.streaming_stores else genes


def _work(host: HostShape) -> tuple[Gene, ...]:
    owner = Strategy.SCHEDULING
    return (
        PowerOfTwo(
            name="block_rows",
            low=1,
            high=64,
            strategy=Strategy.TENSOR_CORE,
            description="Rows that are handed to a thread at a time.",
        ),
        PowerOfTwo(
            name="unroll", low=1, high=8, strategy=owner, description="Vectors written out a step."
        ),
        threads_gene(host),
        Choice(
            name="split",
            options=("contiguous", "interleaved"),
            strategy=owner,
            description="Which blocks a thread gets: neighbours, or every so manieth.",
        ),
        PowerOfTwo(
            name="chains",
            low=1,
            high=4,
            strategy=Strategy.REDUCTION,
            description="Independent partial sums of the squares.",
        ),
        Boolean(
            name="fuse",
            strategy=Strategy.FUSION,
            description="Both passes row by row; otherwise block by block.",
        ),
    )


def _precision() -> tuple[Gene, ...]:
    owner = Strategy.PRECISION
    return (
        Choice(
            name="accumulate",
            options=("float", "double"),
            strategy=owner,
            description="Type of the sum of squares and of its root.",
        ),
        Boolean(
            name="divide",
            strategy=owner,
            description="Divide by the root; otherwise multiply with its reciprocal.",
        ),
        *flag_genes(),
    )


def _constraints(names: tuple[str, ...]) -> tuple[Constraint, ...]:
    texts = ("chains <= unroll", "reread != 'buffer' or block_rows <= 32")
    return tuple(ExpressionConstraint(text, names) for text in texts)


def add_rmsnorm_space(workload: Workload, host: HostShape) -> Space:
    """Return the space of add_rmsnorm's route ``cpu``, the same for every workload."""
    genes = (*_memory(host), *_work(host), *_precision())
    return Space(ROUTE, genes, _constraints(tuple(gene.name for gene in genes)))


def add_rmsnorm_route() -> Route:
    """Return add_rmsnorm's route ``cpu``."""
    return Route(
        name=ROUTE,
        operator="add_rmsnorm",
        space=add_rmsnorm_space,
        source=packaged_source("add_rmsnorm.c"),
        symbol="add_rmsnorm",
        arguments=("x", "residual", "norm_weight", "y", "summed", "rows", "hidden"),
        flags=FLAGS,
        base_flags=BASE_FLAGS,
    )
