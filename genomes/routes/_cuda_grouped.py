"""Products of experts in one launch (``grouped.cu``): the genes of one, its sizes, its launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    ScratchArgument,
    TensorArgument,
    TensorMap,
)
from kernelarc.genomes.routes._cuda_gemm_space import BOX, ELEMENT_BYTES
from kernelarc.genomes.routes._cuda_route import (
    ALIGNMENT_BYTES,
    Prepared,
    resident_clusters,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._products import products_source

FILE, SYMBOL = "grouped.cu", "grouped"
Place: TypeAlias = Callable[[str], TensorArgument | ScratchArgument]
"""Where a tensor or buffer of a name lies."""

_WARPGROUP = 128
_BOX_ROWS = 256  # most of a box
_MOST_STAGES = 8
_MOST_SUMS, _SUMS_OF_TWO = 192, 64  # registers of a thread; where two blocks share them
_MOST_CONSUMERS = 3
_BARRIERS_BYTES = 8 * (2 * _MOST_STAGES + _MOST_CONSUMERS)
_RESERVED_BYTES = 1024  # of every block, beside its own
_LAUNCH_ONLY = ("l2_promotion",)
_NOTHING = ScalarArgument(0, "u64")  # no address


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a kind of product does.

    Attributes:
        name: Of its genes' prefix.
        by_weight: Whether rows are the depth and every expert has an output of its own.
        gated: Whether it multiplies with gate and up and ends in the gradients of both.
        paired: Whether two products are added.
        left_across: Whether left is contiguous along its rows.
        right_across: Whether right is contiguous along its columns.
    """

    name: str
    by_weight: bool = False
    gated: bool = False
    paired: bool = False
    left_across: bool = False
    right_across: bool = False

    @property
    def table(self) -> str:
        """What the buffer of its tiles is called, or of the experts' rows."""
        return "spans" if self.by_weight else f"{self.name} tiles"


INNER = Kind(name="inner", right_across=True)
HIDDEN = Kind(name="hidden", gated=True)
TOKEN = Kind(name="token", paired=True, right_across=True)
WEIGHT = Kind(name="weight", by_weight=True, left_across=True, right_across=True)
KINDS = (INNER, HIDDEN, TOKEN, WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedJob:
    """One launch.

    Attributes:
        kind: Of product.
        rows: Of the buffers by row.
        m: Rows of an expert's output where ``by_weight``.
        n: Columns of the output.
        k: Depth, where rows are not.
        experts: How many right factors, or outputs.
        listed: Whether tiles or experts stand in a table; else there is one expert for all rows.
        factors: Names of left and right; of up where gated; of another pair where paired.
        outputs: Names of what is written; three where gated.
        inner: Name of the hidden rows' gradient where gated.
        weighed: Names of the rows' scales and of their gradients' parts, where there are any.
    """

    kind: Kind
    rows: int
    n: int
    factors: tuple[str, ...]
    outputs: tuple[str, ...]
    m: int = 0
    k: int = 0
    experts: int = 1
    listed: bool = False
    inner: str = ""
    weighed: tuple[str, str] | None = None


# Genes


def grouped_genes(kind: Kind) -> tuple[Gene, ...]:
    """Return the genes of a kind of product, with its name before theirs."""
    widths = (64, 96, 128, 160, 192, 256) if kind.gated else (64, 128, 192, 256)

    def choice(
        name: str, options: tuple[int | str, ...], strategy: Strategy, description: str
    ) -> Choice:
        return Choice(
            name=f"{kind.name}_{name}", options=options, strategy=strategy, description=description
        )

    genes: list[Gene] = [
        choice("consumers", (1, 2, 3), Strategy.TENSOR_CORE, "Warpgroups that multiply."),
        choice("wg_rows", (64, 128), Strategy.TENSOR_CORE, "Rows that a warpgroup sums."),
        choice("tile_n", widths, Strategy.TENSOR_CORE, "Columns of a tile."),
        choice("tile_k", (64, 128), Strategy.MEMORY, "Depth of a stage."),
        choice("stages", (2, 3, 4, 5, 6, 7, 8), Strategy.MEMORY, "Stages that go round."),
        choice("keep", ("none", "left", "right", "stream"), Strategy.MEMORY,
               "Which factor the L2 cache should keep; stream: neither."),
        choice("l2_promotion", (0, 128, 256), Strategy.MEMORY,
               "Bytes that a load brings into the L2 cache at least."),
        choice("blocks", (1, 2), Strategy.SCHEDULING, "Blocks that share a multiprocessor."),
        PowerOfTwo(name=f"{kind.name}_group", low=1, high=32, strategy=Strategy.SCHEDULING,
                   description="Tiles of rows that are walked together."),
        choice("share", (1, 2), Strategy.FUSION,
               "Blocks of a cluster that share what they read of a tile's rows."),
        choice("producer_registers", (24, 40), Strategy.SCHEDULING,
               "Registers that a producer's thread keeps; consumers get the others."),
    ]  # fmt: skip
    if kind.by_weight:
        genes.append(
            Boolean(name=f"{kind.name}_in_turn", strategy=Strategy.SCHEDULING,
                    description="Warpgroups multiply in turn, each a tile of its own.")
        )  # fmt: skip
    if not kind.gated:
        buffers = choice("buffers", (1, 2, 4), Strategy.MEMORY,
                         "Buffers of 64 x 64 elements a consumer has on their way out.",
        )  # fmt: skip
        genes += [
            choice("epilogue", ("direct", "engine"), Strategy.FUSION,
                   "Whether registers go straight out or by shared memory and copy engine."),
            replace(buffers, when=When(f"{kind.name}_epilogue", ("engine",))),
        ]  # fmt: skip
    return tuple(genes)


def grouped_constraints(kind: Kind, device: DeviceLimits, depths: tuple[int, ...]) -> list[str]:
    """Return what must hold among a kind's genes.

    Args:
        kind: Of product.
        device: Whose shared memory bounds the stages.
        depths: What stages must not reach beyond: behind it lies another expert's.
    """
    name = kind.name
    sums = f"{name}_wg_rows // 64 * {name}_tile_n // 2"
    high = f"{name}_consumers * {name}_wg_rows"
    if kind.by_weight:
        high = f"{name}_wg_rows * (1 + ({name}_consumers - 1) * (1 - {name}_in_turn))"
    stages = f"{name}_stages * ({high} + {name}_tile_n) * {name}_tile_k * {ELEMENT_BYTES}"
    own = ALIGNMENT_BYTES + _BARRIERS_BYTES
    half = device.shared_bytes_multiprocessor // 2 - _RESERVED_BYTES
    room = f"{device.shared_bytes - own} - {device.shared_bytes - half} * ({name}_blocks == 2)"
    texts = [
        f"{high} <= {_BOX_ROWS}",
        f"{sums} <= {_MOST_SUMS} - {_MOST_SUMS // 2} * ({name}_consumers == 3)",
        f"{name}_blocks == 1 or {name}_consumers == 1 and {sums} <= {_SUMS_OF_TWO}",
        f"{stages} <= {room}",
        f"{name}_share == 1 or {name}_blocks == 1",
    ]
    if kind.by_weight:
        texts.append(f"{name}_in_turn <= {name}_consumers - 1")
    if not kind.gated:
        buffers = f"{name}_consumers * {name}_buffers * {BOX * BOX * ELEMENT_BYTES}"
        texts.append(f"{stages} + {buffers} <= {room}")
    if any(depth % 128 for depth in depths):
        texts.append(f"{name}_tile_k == 64")
    return texts


def sums_fit(consumers: int, wg_rows: int, tile_n: int) -> bool:
    """Tell whether a tile's box and sums fit, as the constraints say for one block of its own."""
    sums = wg_rows // 64 * tile_n // 2
    most = _MOST_SUMS // (2 if consumers == 3 else 1)
    return consumers * wg_rows <= _BOX_ROWS and sums <= most


def most_stages(tile_m: int, tile_n: int, shared_bytes: int) -> int:
    """Return how many stages of 64 steps a block's shared memory holds, at most what genes say."""
    stage = (tile_m + tile_n) * BOX * ELEMENT_BYTES
    return min(_MOST_STAGES, (shared_bytes - ALIGNMENT_BYTES - _BARRIERS_BYTES) // stage)


# One product


@dataclass(frozen=True, slots=True)
class GroupedShape:
    """The sizes that follow from a product's genome."""

    genome: Genome
    gated: bool

    def _gene(self, name: str) -> int:
        return whole_gene(self.genome, name)

    @property
    def share(self) -> int:
        """Blocks of a cluster."""
        return self._gene("share")

    @property
    def tile_m(self) -> int:
        """Rows of a tile."""
        return self._gene("wg_rows") * (
            1 if self.genome.get("in_turn") else self._gene("consumers")
        )

    @property
    def tile_n(self) -> int:
        """Columns that it multiplies."""
        return self._gene("tile_n")

    @property
    def out_n(self) -> int:
        """Columns of the output that it gives."""
        return self.tile_n // (2 if self.gated else 1)

    @property
    def threads(self) -> int:
        """Of a block: the consumers' warpgroups and the producer's."""
        return _WARPGROUP * (self._gene("consumers") + 1)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: stages, buffers on their way out, barriers, alignment."""
        depth = self._gene("tile_k") * self._gene("stages")
        stages = depth * (self.tile_m + self.tile_n) * ELEMENT_BYTES
        buffers = 0
        if self.genome.get("epilogue") == "engine":
            buffers = self._gene("consumers") * self._gene("buffers") * BOX * BOX * ELEMENT_BYTES
        return ALIGNMENT_BYTES + stages + buffers + _BARRIERS_BYTES

    def grid(self, job: GroupedJob, multiprocessors: int) -> int:
        """Return as many blocks as run at once, or as there can be tiles, in whole clusters."""
        columns = -(-job.n // (self.share * self.out_n))
        if job.kind.by_weight:
            tiles = -(-job.m // self.tile_m) * columns * job.experts
        else:
            tiles = -(-job.rows // min(self.tile_m, BOX)) * columns
        most = resident_clusters(multiprocessors, self.share) * self._gene("blocks")
        return self.share * max(1, min(tiles, most))


def grouped_prepared(
    job: GroupedJob, genome: Genome, dtype: str, place: Place, multiprocessors: int
) -> Prepared:
    """Return source and launch of one product.

    Args:
        job: What is multiplied.
        genome: Its genes by their plain names, with the layer's ``products`` and ``pdl``.
        dtype: Of all tensors.
        place: Where tensors and buffers lie.
        multiprocessors: Of the device: so many blocks stay.
    """
    kind, shape = job.kind, GroupedShape(genome, job.kind.gated)
    across = (kind.left_across, kind.right_across)
    generated = {"products.cuh": products_source(shape.tile_n, dtype=dtype, across=across)}
    macros = {
        f"DTYPE_{dtype}": 1,
        "BY_WEIGHT": int(kind.by_weight),
        "GATED": int(kind.gated),
        "PAIRED": int(kind.paired),
        "LEFT_ACROSS": int(kind.left_across),
        "RIGHT_ACROSS": int(kind.right_across),
        "IN_TURN": int(bool(genome.get("in_turn"))),
    }
    launch = Launch(
        binary="",
        symbol=SYMBOL,
        grid=(shape.grid(job, multiprocessors), 1, 1),
        block=(shape.threads, 1, 1),
        shared_bytes=shape.shared_bytes,
        arguments=_arguments(job, shape, genome, dtype, place),
        attributes=LaunchAttributes(overlap=bool(genome["pdl"])),
    )
    return Prepared(
        source=cuda_source(FILE, generated),
        macros=genome_macros(genome, macros, without=_LAUNCH_ONLY),
        steps=(launch,),
    )


def _arguments(
    job: GroupedJob, shape: GroupedShape, genome: Genome, dtype: str, place: Place
) -> tuple[TensorMap | TensorArgument | ScratchArgument | ScalarArgument, ...]:
    kind, tile_k = job.kind, whole_gene(genome, "tile_k")
    describe = partial(
        _rows_map, dtype=dtype, place=place, promotion=whole_gene(genome, "l2_promotion")
    )

    def left(name: str) -> TensorMap:
        width, box = (job.m, tile_k // shape.share) if kind.by_weight else (job.k, BOX)
        return describe(name, (job.rows, width), box)

    def right(name: str) -> TensorMap:
        if kind.by_weight:
            return describe(name, (job.rows, job.n), tile_k)
        if kind.right_across:
            return describe(name, (job.experts * job.k, job.n), tile_k)
        return describe(name, (job.experts * job.n, job.k), shape.out_n)

    first, other, *more = job.factors
    high = job.experts * job.m if kind.by_weight else job.rows
    out = left(first)  # no kernel that writes directly looks at it
    if genome.get("epilogue") == "engine":
        out = describe(job.outputs[0], (high, job.n), BOX)
    maps = [left(first), right(other), out, right(more[0]) if kind.gated else out]
    if kind.paired:
        maps += [left(more[0]), right(more[1])]
    scales, parts = map(place, job.weighed) if job.weighed else (_NOTHING, _NOTHING)
    tensors = map(place, job.outputs)
    written = [next(tensors)]
    gated = [place(job.inner), *tensors, scales, parts] if kind.gated else []
    counted = ScratchArgument("counted", 4 * KINDS.index(kind))
    lists = [place(kind.table), counted] if job.listed else [_NOTHING, _NOTHING]
    sizes = [ScalarArgument(n, "i32") for n in (job.rows, job.m, job.n, job.k, job.experts)]
    return (*maps, *written, *gated, *lists, *sizes)


def _rows_map(
    name: str, shape: tuple[int, int], box: int, *, dtype: str, place: Place, promotion: int
) -> TensorMap:
    rows, columns = shape
    return TensorMap(
        source=place(name),
        dtype=dtype,
        extents=(columns, rows),
        strides=(columns * ELEMENT_BYTES,),
        box=(BOX, box),
        swizzle=128,
        l2_promotion=promotion,
    )
