"""Products inside a composite route that the library may make: genes, and steps of a plan.

A product is made by our kernel or by cuBLASLt, as a gene says; the genes of the one are inactive
where the other makes it. The library adds a residual; whatever else a kernel would do to its sums
is left to a kernel after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    Launch,
    LaunchAttributes,
    LibraryProduct,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_gemm_space import ProductJob
from kernelarc.genomes.routes._cuda_parts import prefixed
from kernelarc.genomes.routes._cuda_route import Prepared, placed_start, whole_gene
from kernelarc.genomes.routes._cuda_source import cuda_source

BY, KERNEL, LIBRARY = "by", "kernel", "library"
FILE = "gating.cu"
FIRST_CHOICE: Mapping[str, Allele] = {
    BY: LIBRARY,
    "heuristic": 0,
    "workspace_mib": 32,
    "gate_warps": 8,
    "gate_vectors": 2,
    "gate_pdl": True,
}
"""What torch runs: the library's first choice with its usual scratch memory on Hopper."""

_CHOICES = 8  # the library named as many at most, for any product on an H200
_WORKSPACE = "library workspace"
_VECTOR = 8  # elements of 16 bytes


def made_by_either(
    prefix: str, space: Space, usual: Mapping[str, Allele]
) -> tuple[tuple[Gene, ...], list[str]]:
    """Return a product's genes, the kernel's and the library's, and its constraints as text.

    Args:
        prefix: Before every name.
        space: The kernel's.
        usual: What its genes hold when a step gives the product from the library to the kernel;
            those that it does not name hold their first allele.
    """
    genes, texts = prefixed(prefix, space)
    begun = {f"{prefix}_{name}": a for name, a in placed_start(space, usual).items()}
    genes = tuple(replace(gene, usual=begun.get(gene.name)) for gene in genes)
    by_kernel = When(f"{prefix}_{BY}", (KERNEL,))
    by_library = When(f"{prefix}_{BY}", (LIBRARY,))
    return (
        Choice(
            name=f"{prefix}_{BY}",
            options=(KERNEL, LIBRARY),
            strategy=Strategy.LIBRARY,
            description="Whether a kernel of ours makes the product, or cuBLASLt.",
            fair=True,  # a kernel has millions of genomes, the library sixteen
        ),
        *(gene if gene.when else replace(gene, when=by_kernel) for gene in genes),
        Choice(
            name=f"{prefix}_heuristic",
            options=tuple(range(_CHOICES)),
            strategy=Strategy.LIBRARY,
            when=by_library,
            usual=FIRST_CHOICE["heuristic"],
            description="Which of the library's own choices runs; 0 is its first.",
        ),
        Choice(
            name=f"{prefix}_workspace_mib",
            options=(0, 32),
            strategy=Strategy.LIBRARY,
            when=by_library,
            usual=FIRST_CHOICE["workspace_mib"],
            description="Scratch memory that the library may choose by.",
        ),
    ), texts


def gating_genes(prefix: str) -> tuple[Gene, ...]:
    """Return the genes of the kernel that gates what the library has made."""
    when = When(f"{prefix}_{BY}", (LIBRARY,))
    return (
        Choice(
            name=f"{prefix}_gate_warps",
            options=(4, 8, 16),
            strategy=Strategy.MEMORY,
            when=when,
            usual=FIRST_CHOICE["gate_warps"],
            description="Warps of a block that gates the library's products.",
        ),
        Choice(
            name=f"{prefix}_gate_vectors",
            options=(1, 2, 4),
            strategy=Strategy.MEMORY,
            when=when,
            usual=FIRST_CHOICE["gate_vectors"],
            description="Vectors of 16 bytes that each of its threads has on their way.",
        ),
        Boolean(
            name=f"{prefix}_gate_pdl",
            strategy=Strategy.SCHEDULING,
            when=when,
            usual=FIRST_CHOICE["gate_pdl"],
            description="The kernel after it may start before it ends.",
        ),
    )


def gating_part(symbol: str, tensors: Sequence[str], job: ProductJob, genome: Genome) -> Prepared:
    """Return the kernel that gates what the library has made.

    Args:
        symbol: ``"gate_rows"`` or ``"gate_rows_back"``.
        tensors: Its arguments in order; each is as large as the job's output.
        job: Of the gate; its output's elements are multiples of 8.
        genome: Of the product, by plain names.
    """
    warps, each = whole_gene(genome, "gate_warps"), whole_gene(genome, "gate_vectors")
    overlaps = whole_gene(genome, "gate_pdl")
    vectors = job.m * job.n // _VECTOR
    launch = Launch(
        binary="",
        symbol=symbol,
        grid=(-(-vectors // (32 * warps * each)), 1, 1),
        block=(32 * warps, 1, 1),
        arguments=(*map(TensorArgument, tensors), ScalarArgument(vectors, "i32")),
        attributes=LaunchAttributes(overlap=bool(overlaps)),
    )
    macros = {"GATE_WARPS": warps, "GATE_VECTORS": each, "PDL": overlaps, f"DTYPE_{job.dtype}": 1}
    return Prepared(
        source=cuda_source(FILE),
        macros={name: str(value) for name, value in macros.items()},
        steps=(launch,),
    )


def is_by_library(genome: Genome) -> bool:
    """Tell whether a product's genome leaves it to the library."""
    return genome.get(BY) == LIBRARY


def library_part(jobs: Sequence[ProductJob], genome: Genome) -> Prepared:
    """Return products of the library, one after the other, all by the same choice.

    A second pair of factors is a second product, added to the first one's result as it is stored.

    Args:
        jobs: Without a gate, a bias or an activation.
        genome: Of the product, by plain names.
    """
    nbytes = whole_gene(genome, "workspace_mib") << 20
    made: list[LibraryProduct] = []
    for job in jobs:
        made.append(_product(job, genome, nbytes))
        if job.second is not None:
            left, right = map(TensorArgument, job.second)
            made.append(replace(made[-1], left=left, right=right, added=made[-1].out))
    scratch = (Scratch(name=_WORKSPACE, nbytes=nbytes),) if nbytes else ()
    return Prepared(source="", macros={}, steps=tuple(made), scratch=scratch)


def _product(job: ProductJob, genome: Genome, nbytes: int) -> LibraryProduct:
    assert not job.bend
    assert job.bias is None
    assert job.activation == "none"
    return LibraryProduct(
        rows=job.m,
        columns=job.n,
        depth=job.k,
        dtype=job.dtype,
        left=TensorArgument(job.left),
        right=TensorArgument(job.right),
        out=TensorArgument(job.out),
        added=None if job.residual is None else TensorArgument(job.residual),
        left_across=job.left_across,
        right_across=job.right_across,
        heuristic=whole_gene(genome, "heuristic"),
        workspace=ScratchArgument(_WORKSPACE) if nbytes else None,
        workspace_bytes=nbytes,
    )
