"""The route ``cuda`` of RMS normalisation, a residual added or not: a row stays in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    Argument,
    DeviceLimits,
    InputArgument,
    KernelRoute,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_route import (
    CudaRoute,
    Prepared,
    register_genes,
    resident_clusters,
    started,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._recognise_more import norm_epsilon

FILE, SYMBOL = "add_rmsnorm.cu", "add_rmsnorm"
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_LAUNCH_ONLY = ("blocks_per_sm", "carveout")
_MOST_HELD = 64  # elements of a row that a thread holds
_MOST_WARPS = 32
_MOST_CLUSTERED = 8
_LEAST = 17  # more than half of a warp's threads have a feature
_MOST = _MOST_HELD * 32 * _MOST_WARPS * _MOST_CLUSTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRoles:
    """Which tensor does what, and where epsilon comes from.

    Attributes:
        x: What is normalised, or the first summand of it.
        residual: Second summand, or None.
        weight: Scale of each feature.
        y: Normalised rows.
        summed: The sum, or None where it is not asked for.
        epsilon: Name of the scalar input, or the number that the reference names.
        dtype: Of all tensors.
    """

    x: str
    residual: str | None
    weight: str
    y: str
    summed: str | None
    epsilon: str | float
    dtype: str

    @property
    def summands(self) -> int:
        """How many rows are read for one that is normalised."""
        return 1 if self.residual is None else 2


def norm_roles(operator: Operator) -> NormRoles | None:
    """Read the roles out of an operator that says it is an ``rmsnorm``.

    One input of the outputs' shape is normalised, or two that are added; a vector along their last
    axis is the weight. The first output is the normalised rows; after a sum, a second one is the
    sum itself.
    """
    if operator.op_type != "rmsnorm" or not 1 <= len(operator.outputs) <= 2:
        return None
    shape = operator.outputs[0].shape
    tensors = [t for t in operator.inputs if t.shape is not None]
    summands = [t.name for t in tensors if t.shape == shape]
    vectors = [t.name for t in tensors if shape and t.shape == shape[-1:]]
    dtypes = {t.dtype for t in (*tensors, *operator.outputs)}
    epsilon = norm_epsilon(operator)
    fits = (
        len(operator.outputs) <= len(summands) <= 2
        and len(vectors) == 1
        and len(tensors) == len(summands) + 1
        and all(t.shape == shape for t in operator.outputs)
        and len(dtypes) == 1
        and dtypes <= set(_ELEMENT_BYTES)
    )
    if not fits or epsilon is None:
        return None
    names = [t.name for t in operator.outputs]
    return NormRoles(
        x=summands[0],
        residual=summands[1] if len(summands) == 2 else None,
        weight=vectors[0],
        y=names[0],
        summed=names[1] if len(names) == 2 else None,
        epsilon=epsilon,
        dtype=dtypes.pop(),
    )


def cuda_add_rmsnorm_route(operator: Operator) -> KernelRoute | None:
    """Return the route for RMS normalisation, with or without a residual, or None."""
    return None if norm_roles(operator) is None else CudaAddRmsnormRoute(operator)


class CudaAddRmsnormRoute(CudaRoute):
    """RMS normalisation, a residual added or not, one pass over device memory.

    Args:
        operator: One that ``norm_roles`` recognises.
    """

    files = (FILE,)

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        roles = norm_roles(operator)
        if roles is None:
            raise InputError(f"operator {operator.name!r} is no RMS norm")
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say that rows are too short for a warp or too long for a cluster, or None."""
        hidden = self._shape(workload)[1]
        if not _LEAST <= hidden <= _MOST:
            return f"route cuda takes rows of {_LEAST} to {_MOST} features, not {hidden}"
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genomes whose threads can hold a row.

        Raises:
            InputError: No threads can.
        """
        said = self.unsuited(workload)
        if said is not None:
            raise InputError(said)
        _, hidden = self._shape(workload)
        size = _ELEMENT_BYTES[self.roles.dtype]
        genes = (
            *_vectors(hidden, size),
            *_teams(hidden, size),
            *_engine(hidden * size),
            *_rest(self.roles),
        )
        names = tuple(gene.name for gene in genes)
        rows = self.roles.summands
        return Space(self.name, genes, _constraints(hidden, size, rows, device, names))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return genomes whose threads hold one to eight vectors, with and without the engine.

        Fewer rows than half the multiprocessors are spread over clusters; of short rows, several
        are a block's.
        """
        space = self.space(workload, device)
        rows, hidden = self._shape(workload)
        size = _ELEMENT_BYTES[self.roles.dtype]
        widest = _widest(space.gene("vec_bytes").values(), hidden * size)
        vectors = hidden * size // widest
        cluster = 1
        while (
            cluster < _MOST_CLUSTERED
            and 2 * cluster * rows <= device.multiprocessors
            and vectors >= 64 * cluster
        ):
            cluster *= 2
        wide = [
            {
                **start,
                "vec_bytes": widest,
                "cluster": width,
                "warps": _warps(vectors // width, each),
            }
            for width in dict.fromkeys((cluster, 1))
            for each, start in _STARTS
        ]
        short = [
            {**start, "vec_bytes": widest, "warps": warps, "teams": teams}
            for start in (_FORM, _LEFT, _STAYS)
            for warps, teams in _short_rows(rows, vectors, device.multiprocessors)
        ]
        last = {**_FORM, "vec_bytes": widest, "warps": 1, "teams": 4}
        return started(space, [*short, *wide, last])

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return the kernel for one genome; the row's length is compiled in."""
        rows, hidden = self._shape(workload)
        number = partial(whole_gene, genome)
        teams, cluster, each = number("teams"), number("cluster"), number("blocks_per_sm")
        needed = -(-rows // teams)
        resident = each * resident_clusters(self.limits(arch).multiprocessors, cluster)
        part = self.roles.summands * hidden * _ELEMENT_BYTES[self.roles.dtype] // cluster
        carveout = number("carveout")
        launch = Launch(
            binary="",
            symbol=SYMBOL,
            grid=(cluster * (min(needed, resident) if each else needed), 1, 1),
            block=(32 * number("warps") * teams, 1, 1),
            shared_bytes=part * number("stages") if genome["path"] == "engine" else 0,
            arguments=self._arguments(rows),
            attributes=LaunchAttributes(
                overlap=bool(genome["pdl"]), carveout=None if carveout < 0 else carveout
            ),
        )
        macros = {
            f"DTYPE_{self.roles.dtype}": 1,
            "HIDDEN": hidden,
            "ADD_RESIDUAL": int(self.roles.residual is not None),
            "WRITE_SUM": int(self.roles.summed is not None),
        }
        return Prepared(
            source=cuda_source(FILE),
            macros=genome_macros(genome, macros, without=_LAUNCH_ONLY),
            steps=(launch,),
        )

    def _arguments(self, rows: int) -> tuple[Argument, ...]:
        roles = self.roles
        epsilon: Argument = (
            InputArgument(roles.epsilon, "f32")
            if isinstance(roles.epsilon, str)
            else ScalarArgument(roles.epsilon, "f32")
        )
        # What there is none of is passed as another, and the kernel leaves it alone.
        residual, summed = roles.residual or roles.x, roles.summed or roles.y
        tensors = (roles.x, residual, roles.weight, roles.y, summed)
        return (*map(TensorArgument, tensors), ScalarArgument(rows, "i32"), epsilon)

    def _shape(self, workload: Workload) -> tuple[int, int]:
        """Return rows and their length."""
        axes = axis_values(self.operator, workload)
        *before, last = self.operator.outputs[0].shape or ("1",)
        sizes = [int(name) if name.isdigit() else axes[name] for name in (*before, last)]
        return math.prod(sizes[:-1]), sizes[-1]


def _vectors(hidden: int, size: int) -> tuple[Gene, ...]:
    whole = tuple(n for n in (2, 4, 8, 16) if n >= size and hidden * size % n == 0)
    owner = Strategy.MEMORY
    return (
        Choice(
            name="vec_bytes",
            options=whole,
            strategy=owner,
            description="Bytes that a thread loads at once.",
        ),
        Choice(
            name="load",
            options=("plain", "stream", "no_allocate", "leave"),
            strategy=owner,
            description="How the caches treat what is read.",
        ),
        Choice(
            name="store",
            options=("plain", "stream"),
            strategy=owner,
            description="How the caches treat what is written.",
        ),
        Boolean(
            name="weight_early",
            strategy=owner,
            description="Weights are read before the sum is known and stay in registers.",
        ),
        Choice(
            name="carveout",
            options=(-1, 0, 25, 50, 100),
            strategy=owner,
            description="Percentage of the L1 cache preferred as shared memory; -1: as it is.",
        ),
    )


def _teams(hidden: int, size: int) -> tuple[Gene, ...]:
    even = _even_warps(hidden * size // 16) if hidden * size % 16 == 0 else []
    return (
        Choice(
            name="warps",
            options=tuple(sorted({1, 2, 4, 8, 16, _MOST_WARPS, *even})),
            strategy=Strategy.TENSOR_CORE,
            description="Warps of a block that share a row.",
        ),
        PowerOfTwo(
            name="teams",
            low=1,
            high=8,
            strategy=Strategy.SCHEDULING,
            description="Rows that a block works on side by side.",
        ),
        PowerOfTwo(
            name="cluster",
            low=1,
            high=_MOST_CLUSTERED,
            strategy=Strategy.REDUCTION,
            description="Blocks of a cluster that share a row.",
        ),
        Choice(
            name="blocks_per_sm",
            options=(0, 1, 2, 3, 4, 6, 8, 16),
            strategy=Strategy.SCHEDULING,
            description="Blocks that stay and do row after row; 0: a block for every few rows.",
        ),
    )


def _engine(row_bytes: int) -> tuple[Gene, ...]:
    owner = Strategy.MEMORY
    paths = ("registers", "engine") if row_bytes % 16 == 0 else ("registers",)
    genes: tuple[Gene, ...] = (
        Choice(
            name="path",
            options=paths,
            strategy=owner,
            description="Rows are loaded by threads, or come ahead by bulk copies.",
        ),
    )
    if len(paths) == 1:
        return genes
    stages = Choice(
        name="stages",
        options=(1, 2, 3, 4, 6),
        strategy=owner,
        when=When("path", ("engine",)),
        description="Rows of shared memory that go round.",
    )
    return (*genes, stages)


def _rest(roles: NormRoles) -> tuple[Gene, ...]:
    genes: list[Gene] = [
        *register_genes((32, 40, 48, 64, 96, 128), (1, 2, 3, 4, 6, 8)),
        Boolean(
            name="pdl",
            strategy=Strategy.SCHEDULING,
            description="The kernel after this one may start before it ends.",
        ),
    ]
    if roles.dtype != "float32" and roles.residual is not None:
        genes.append(
            Boolean(
                name="rounded",
                strategy=Strategy.PRECISION,
                description="Normalise the sum as it is stored, not as it was added.",
            )
        )
    return tuple(genes)


def _constraints(
    hidden: int, size: int, rows: int, device: DeviceLimits, names: tuple[str, ...]
) -> list[Constraint]:
    texts = [
        f"warps * teams * 32 <= {device.threads_block}",
        "cluster == 1 or teams == 1",
        # No thread idles over the whole row, and none holds more than its registers.
        f"warps * 32 * cluster * vec_bytes < 2 * {hidden * size}",
        f"{hidden} <= {_MOST_HELD} * warps * 32 * cluster",
        f"max_registers == 0 or max_registers * warps * teams * 32 <= "
        f"{device.registers_multiprocessor}",
        f"min_blocks * warps * teams * 32 <= {device.threads_multiprocessor}",
        "blocks_per_sm * warps * teams * 32 <= " + str(device.threads_multiprocessor),
    ]
    if "stages" in names:
        row = hidden * size
        texts += [
            "path == 'registers' or teams == 1 and warps > 1 and load in ('plain', 'leave')",
            f"path == 'registers' or {row} % (16 * cluster) == 0 and "
            f"{row} % (vec_bytes * cluster) == 0",
            f"{rows} * stages * {row} // cluster <= {device.shared_bytes - 2048}",
        ]
    return [ExpressionConstraint(text, names) for text in texts]


_FORM: dict[str, Allele] = {
    "path": "registers",
    "teams": 1,
    "load": "no_allocate",
    "store": "plain",
    "blocks_per_sm": 0,
    "stages": 1,
    "carveout": -1,
}
_LEFT: dict[str, Allele] = {**_FORM, "load": "leave", "store": "stream"}
_ENGINE: dict[str, Allele] = {**_LEFT, "path": "engine"}
_STAYS: dict[str, Allele] = {**_FORM, "blocks_per_sm": 8, "weight_early": True}
# Vectors that a thread holds, and the rest.
_STARTS: tuple[tuple[int, dict[str, Allele]], ...] = (
    (2, _FORM),
    (2, _LEFT),
    (4, _FORM),
    (4, _LEFT),
    (1, _FORM),
    (2, _ENGINE),
    (2, {**_FORM, "load": "plain", "store": "stream"}),
    (4, {**_ENGINE, "load": "plain"}),
    (2, {**_ENGINE, "load": "plain", "store": "plain", "blocks_per_sm": 2, "stages": 2}),
    (2, {**_ENGINE, "blocks_per_sm": 3, "stages": 2}),
    (8, _FORM),
)


_BLOCK_WARPS = 4  # of a block that has several rows


def _widest(widths: Sequence[Allele], row_bytes: int) -> int:
    """Return the widest vector that leaves no thread of a warp without one of the row's.

    Where none does, the narrowest.
    """
    known = [width for width in widths if isinstance(width, int)]
    return max((width for width in known if 32 * width <= row_bytes), default=known[0])


def _short_rows(rows: int, vectors: int, multiprocessors: int) -> list[tuple[int, int]]:
    """Return warps of a row and rows of a block, where rows are short and there are enough.

    A row is short if fewer warps than a block should have hold it, one vector or two a thread;
    there are enough if every multiprocessor gets a block all the same.
    """
    found = []
    for each in (1, 2):
        warps = _warps(vectors, each)
        teams = 1
        while 2 * teams * warps <= _BLOCK_WARPS and 2 * teams * multiprocessors <= rows:
            teams *= 2
        if teams > 1:
            found.append((warps, teams))
    return list(dict.fromkeys(found))


def _warps(vectors: int, each: int) -> int:
    """Return how many warps share a row of so many vectors: those among which it comes out even.

    Args:
        vectors: Of a row.
        each: That a thread is to hold.
    """
    wanted = max(1, min(vectors // (32 * each), _MOST_WARPS))
    even = [n for n in _even_warps(vectors) if n <= 2 * wanted]
    near = min(even, key=lambda n: abs(math.log2(n / wanted)), default=0)
    return near if near * 2 >= wanted else 1 << (wanted.bit_length() - 1)


def _even_warps(vectors: int) -> list[int]:
    """Return the warps among whose threads a row's vectors come out even."""
    return [n for n in range(1, _MOST_WARPS + 1) if vectors % (32 * n) == 0]
