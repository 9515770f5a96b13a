"""The route ``cuda`` of causal grouped-query attention over a paged cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
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
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_route import (
    ALIGNMENT_BYTES,
    CudaRoute,
    Prepared,
    producer_gene,
    products_gene,
    started,
    successor_gene,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._products import products_source

FILE, SYMBOL, JOIN = "gqa_paged.cu", "gqa_paged", "gqa_join"
_BYTES = 2
_ROWS = 64  # of a consumer
_BARRIERS_BYTES = 8 * 4 * 6
_MOST_SCRATCH_BYTES = 256 << 20
_JOINED = 4  # query heads that a block of the second kernel joins


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedRoles:
    """Which tensor does what.

    Attributes:
        q: Queries, (total, query heads, head).
        k_cache: Keys, (pages, keys of a page, key-value heads, head), or (keys, key-value heads,
            head) where they lie one after another.
        v_cache: Values, as the keys.
        q_starts: Where each sequence's queries begin, one more than there are sequences; None
            where each has one query.
        kv_starts: Where each sequence's pages (or keys) begin.
        kv_pages: Pages of the sequences, or None where there are none.
        last_pages: Keys in each sequence's last page, or None where all are full.
        scale: Python scalar, the factor of the scores.
        out: Mixed values.
        lse: Base-2 logarithm of the sums.
        dtype: Of queries, cache and output.
    """

    q: str
    k_cache: str
    v_cache: str
    q_starts: str | None
    kv_starts: str
    kv_pages: str | None
    last_pages: str | None
    scale: str
    out: str
    lse: str
    dtype: str


def paged_roles(operator: Operator) -> PagedRoles | None:
    """Read the roles out of an operator that is causal attention over a paged or ragged cache.

    Read from ranks, axes and dtypes: queries of rank 3, two caches of rank 4 (pages) or of rank 3
    along another axis, index vectors in int32 of which those with the starts have one length, one
    Python scalar; an output like the queries and a float32 one without their last axis. That it is
    causal, or decodes one query a sequence, only the operator's words can say.
    """
    tensors = _tensors(operator)
    if tensors is None:
        return None
    q, caches, starts, others = tensors
    outputs = {len(t.shape or ()): t for t in operator.outputs}
    scalars = [t.name for t in operator.inputs if t.shape is None]
    fits = (
        len(scalars) == 1
        and set(outputs) == {2, 3}
        and outputs[3].shape == q.shape
        and outputs[2].dtype == "float32"
        and {t.dtype for t in (q, *caches, outputs[3])} in ({"bfloat16"}, {"float16"})
    )
    if not fits:
        return None
    return PagedRoles(
        q=q.name,
        k_cache=caches[0].name,
        v_cache=caches[1].name,
        q_starts=starts[0].name if len(starts) == 2 else None,
        kv_starts=starts[-1].name,
        kv_pages=others[0].name if others else None,
        last_pages=others[1].name if len(others) == 2 else None,
        scale=scalars[0],
        out=outputs[3].name,
        lse=outputs[2].name,
        dtype=q.dtype,
    )


_Tensors: TypeAlias = tuple[TensorSpec, list[TensorSpec], list[TensorSpec], list[TensorSpec]]


def _tensors(operator: Operator) -> _Tensors | None:
    """Return queries, the two caches, the vectors of starts and the other vectors."""
    words = f"{operator.op_type} {operator.name} {operator.description}".lower()
    wide = [t for t in operator.inputs if len(t.shape or ()) in {3, 4}]
    vectors = [t for t in operator.inputs if len(t.shape or ()) == 1 and t.dtype == "int32"]
    if ("attention" not in words and "gqa" not in words) or len(wide) != 3 or not vectors:
        return None
    q, *caches = wide
    paged = len(caches[0].shape or ()) == 4
    length = vectors[0].shape
    starts = [t for t in vectors if t.shape == length]
    others = [t for t in vectors if t.shape != length]
    decoding = len(starts) == 1
    fits = (
        len(q.shape or ()) == 3
        and caches[0].shape == caches[1].shape
        and len(starts) in {1, 2}
        and (1 <= len(others) <= 2 if paged else not others)
        and ("decod" in words if decoding else "causal" in words)
    )
    return (q, caches, starts, others) if fits else None


def cuda_gqa_paged_route(operator: Operator) -> KernelRoute | None:
    """Return the route for causal attention over a paged cache, or None."""
    return None if paged_roles(operator) is None else CudaGqaPagedRoute(operator)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of one workload."""

    total_q: int
    q_heads: int
    kv_heads: int
    head: int
    page: int
    sequences: int
    keys: int

    @property
    def group(self) -> int:
        """Query heads to a key-value head."""
        return self.q_heads // self.kv_heads

    def tiles(self, rows: int) -> int:
        """Return the most tiles of rows that the sequences can come to."""
        if self.total_q == self.sequences:
            return self.sequences * -(-self.group // rows)
        return self.total_q * self.group // rows + self.sequences

    def unsuited(self) -> str | None:
        """Say which size the kernel is not made for, or None."""
        if self.q_heads % self.kv_heads:
            return f"{self.q_heads} query heads do not share {self.kv_heads} key-value heads evenly"
        if self.group > _ROWS:
            return f"{self.group} query heads to a key-value head, at most {_ROWS}"
        return None if self.head in {64, 128} else f"heads of {self.head} features, not 64 or 128"


class CudaGqaPagedRoute(CudaRoute):
    """Causal grouped-query attention over a paged cache.

    Args:
        operator: One that ``paged_roles`` recognises.
    """

    files = (FILE, "attention.cuh")

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        roles = paged_roles(operator)
        if roles is None:
            raise InputError(f"operator {operator.name!r} is no causal attention over pages")
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size the kernel is not made for, or None."""
        return self._sizes(workload).unsuited()

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genomes whose stages and sums fit the device."""
        sizes = self._sizes(workload)
        genes = (*_tiles(device), *_rest(sizes))
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, _constraints(sizes, device, names))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return wide tiles for many queries; for few, keys shared out among blocks."""
        starts = _starts(self._sizes(workload), device.multiprocessors)
        return started(self.space(workload, device), starts)

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return attention, and the joining kernel where blocks share out the keys."""
        sizes, number = self._sizes(workload), partial(whole_gene, genome)
        generated = {
            "products.cuh": products_source(number("tile_kv"), sizes.head, dtype=self.roles.dtype)
        }
        macros = {
            f"DTYPE_{self.roles.dtype}": 1,
            "HEAD": sizes.head,
            "GROUP": sizes.group,
            "KV_HEADS": sizes.kv_heads,
            "PAGE": sizes.page,
            "HAS_LAST_PAGE": int(self.roles.last_pages is not None),
            "RAGGED": int(self.roles.kv_pages is None),
            "DECODING": int(self.roles.q_starts is None),
        }
        return Prepared(
            source=cuda_source(FILE, generated),
            macros=genome_macros(genome, macros),
            steps=self._launches(sizes, genome),
            scratch=_scratch(sizes, number("splits")) if genome["join"] == "kernel" else (),
        )

    def _sizes(self, workload: Workload) -> _Sizes:
        axes = axis_values(self.operator, workload)
        shapes = {t.name: t.shape or () for t in self.operator.inputs}

        def extents(name: str) -> list[int]:
            return [int(axis) if axis.isdigit() else axes[axis] for axis in shapes[name]]

        total_q, q_heads, head = extents(self.roles.q)
        *pages, kv_heads, _ = extents(self.roles.k_cache)
        page = pages[1] if len(pages) == 2 else 1
        return _Sizes(
            total_q=total_q,
            q_heads=q_heads,
            kv_heads=kv_heads,
            head=head,
            page=page,
            sequences=extents(self.roles.kv_starts)[0] - 1,
            keys=page * extents(self.roles.kv_pages)[0] if self.roles.kv_pages else pages[0],
        )

    def _launches(self, sizes: _Sizes, genome: Genome) -> tuple[Launch, ...]:
        number = partial(whole_gene, genome)
        consumers, splits, tile = number("consumers"), number("splits"), number("tile_kv")
        tiles = sizes.tiles(_ROWS * consumers)
        attributes = LaunchAttributes(overlap=bool(genome["pdl"]))
        joins = splits > 1 and genome["join"] == "kernel"
        stages = 2 * number("stages") * tile * sizes.head * _BYTES
        queries = consumers * _ROWS * sizes.head * _BYTES
        whole = Launch(
            binary="",
            symbol=SYMBOL,
            grid=(tiles * sizes.kv_heads, splits, 1),
            block=(128 * (consumers + 1), 1, 1),
            shared_bytes=ALIGNMENT_BYTES + queries + stages + _BARRIERS_BYTES,
            arguments=self._arguments(sizes, tiles, joins=joins),
            attributes=attributes,
        )
        if not joins:
            return (whole,)
        heads = sizes.total_q * sizes.q_heads
        outputs = (TensorArgument(self.roles.out), TensorArgument(self.roles.lse))
        join = Launch(
            binary="",
            symbol=JOIN,
            grid=(-(-heads // _JOINED), 1, 1),
            block=(32 * _JOINED, 1, 1),
            arguments=(*_PARTIAL, *outputs, ScalarArgument(heads, "i32")),
            attributes=attributes,
        )
        return (whole, join)

    def _arguments(self, sizes: _Sizes, tiles: int, *, joins: bool) -> tuple[Argument, ...]:
        roles = self.roles
        starts = roles.q_starts or roles.kv_starts
        pages = roles.kv_pages or roles.kv_starts
        names = (roles.q, roles.k_cache, roles.v_cache, starts, roles.kv_starts, pages)
        outputs = (TensorArgument(roles.out), TensorArgument(roles.lse))
        partial_results = _PARTIAL if joins else outputs
        numbers = tuple(
            ScalarArgument(value, "i32") for value in (sizes.sequences, sizes.total_q, tiles)
        )
        return (
            *(TensorArgument(name) for name in (*names, roles.last_pages or pages)),
            *outputs,
            *partial_results,
            *numbers,
            InputArgument(roles.scale, "f32"),
        )


_PARTIAL = (ScratchArgument("parts"), ScratchArgument("part_sums"))


def _scratch(sizes: _Sizes, splits: int) -> tuple[Scratch, ...]:
    """Return what blocks leave for the joining kernel, float32."""
    if splits == 1:
        return ()
    lines = splits * sizes.total_q * sizes.q_heads
    return (
        Scratch(name="parts", nbytes=4 * lines * sizes.head),
        Scratch(name="part_sums", nbytes=4 * lines),
    )


def _tiles(device: DeviceLimits) -> tuple[Gene, ...]:
    owner = Strategy.TENSOR_CORE
    return (
        products_gene(device),
        Choice(
            name="consumers",
            options=(1, 2, 3),
            strategy=owner,
            description="Warpgroups of 64 rows each; one more gathers keys and values.",
        ),
        Choice(
            name="tile_kv",
            options=(32, 64, 96, 128, 160, 176, 192),
            strategy=owner,
            description="Keys of a step.",
        ),
    )


def _rest(sizes: _Sizes) -> tuple[Gene, ...]:
    line = 4 * sizes.total_q * sizes.q_heads * (sizes.head + 1)
    splits = tuple(n for n in (1, 2, 4, 8, 16, 32) if n == 1 or n * line <= _MOST_SCRATCH_BYTES)
    return (
        Choice(
            name="stages",
            options=(1, 2, 3, 4),
            strategy=Strategy.MEMORY,
            description="Steps of keys and values in shared memory.",
        ),
        Choice(
            name="splits",
            options=splits,
            strategy=Strategy.REDUCTION,
            description="Blocks that share out the keys of a tile.",
        ),
        Choice(
            name="join",
            options=("kernel", "cluster"),
            strategy=Strategy.REDUCTION,
            description="Parts are joined by a second kernel, or by the blocks as one cluster.",
        ),
        Boolean(
            name="overlap",
            strategy=Strategy.FUSION,
            description="The next scores are computed while weights are still being mixed.",
        ),
        Boolean(
            name="turns",
            strategy=Strategy.SCHEDULING,
            description="Consumers take turns on the tensor cores, one while others find weights.",
        ),
        Choice(
            name="blocks",
            options=(1, 2),
            strategy=Strategy.SCHEDULING,
            description="Blocks whose registers fit a multiprocessor at once.",
        ),
        Choice(
            name="order",
            options=("longest", "given"),
            strategy=Strategy.SCHEDULING,
            description="Tiles that see the most keys first, or as the sequences come.",
        ),
        Choice(
            name="heads",
            options=("first", "last"),
            strategy=Strategy.SCHEDULING,
            description="Whether neighbouring blocks differ in their head or in their tile.",
        ),
        producer_gene((24, 40, 56, 72)),
        successor_gene(),
    )


def _constraints(sizes: _Sizes, device: DeviceLimits, names: tuple[str, ...]) -> list[Constraint]:
    room = device.shared_bytes - ALIGNMENT_BYTES - _BARRIERS_BYTES
    reserved = 1024 + ALIGNMENT_BYTES + _BARRIERS_BYTES
    half = device.shared_bytes_multiprocessor // 2 - reserved
    row = sizes.head * _BYTES
    taken = f"(consumers * {_ROWS} + 2 * stages * tile_kv) * {row}"
    # Scores, their narrowed form and the mixed values of a thread, beside some 40 others.
    held = f"tile_kv * 3 // 4 + {sizes.head // 2} + 40"
    texts = [
        f"{taken} <= {room}",
        f"{held} <= 240 or consumers == 1 and {held} <= 255",
        f"consumers < 3 or {held} <= 160",
        "not turns or overlap and consumers > 1 and products == 'warpgroup'",
        f"blocks == 1 or consumers == 1 and {held} <= 208 and {taken} <= {half}",
        # A cluster's rows, in lines of 8 more than their features, lie where keys and values lay.
        "join == 'kernel' or splits > 1 and splits <= 8 and "
        f"consumers * {_ROWS * (sizes.head + 8)} <= stages * tile_kv * {sizes.head}",
    ]
    return [ExpressionConstraint(text, names) for text in texts]


_WIDE: dict[str, Allele] = {
    "products": "warpgroup",
    "consumers": 2,
    "tile_kv": 128,
    "stages": 2,
    "overlap": True,
    "producer_registers": 56,
}
_NARROW = {**_WIDE, "consumers": 1, "tile_kv": 64}
_MANY: tuple[dict[str, Allele], ...] = (
    _WIDE,
    {**_WIDE, "turns": True},
    {**_WIDE, "overlap": False},
    {**_WIDE, "consumers": 3, "tile_kv": 64, "turns": True},
    _NARROW,
    {**_NARROW, "blocks": 2},
    {**_WIDE, "consumers": 3, "tile_kv": 64},
)


def _starts(sizes: _Sizes, multiprocessors: int) -> tuple[dict[str, Allele], ...]:
    """Return what to try first.

    Wide tiles where they give every multiprocessor one; narrow ones whose keys are shared out where
    they do not, into so many parts that every multiprocessor has a block and every part a step.
    """
    if sizes.tiles(2 * _ROWS) * sizes.kv_heads >= multiprocessors:
        return _MANY
    blocks = max(1, sizes.tiles(_ROWS) * sizes.kv_heads)
    steps = -(-sizes.keys // (sizes.sequences * 64)) if sizes.sequences else 1
    wanted = max(1, min(multiprocessors // blocks, steps))
    splits = 1 << (wanted.bit_length() - 1)
    few: list[dict[str, Allele]] = [{**_NARROW, "splits": splits}]
    few += [{**_NARROW, "splits": min(n, 8), "join": "cluster"} for n in (splits, 2 * splits)]
    few += [{**start, "tile_kv": 32, "stages": 3} for start in few]
    return (*few, {**_NARROW, "blocks": 2}, {**_NARROW, "splits": 8, "tile_kv": 128}, *_MANY)
