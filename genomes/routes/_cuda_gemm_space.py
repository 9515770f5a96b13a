"""The space of products by copy engine and warpgroups, and the sizes that follow from a genome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_route import (
    ALIGNMENT_BYTES,
    producer_gene,
    products_gene,
    resident_clusters,
    successor_gene,
    whole_gene,
)

ELEMENT_BYTES = 2
BOX = 64
"""Elements along a row of a box: 128 bytes, over which rows are swizzled."""
STRIDE_BYTES = 16
"""What rows under a tensor map are multiples of."""

_WARPGROUP = 128
WIDTHS = (32, 64, 80, 96, 128, 160, 192, 224, 256)
_MOST_STAGES = 8
_MOST_SUMS = 192  # registers of a thread
_EDGE = 48  # what a tile's loads cost beside its products, in elements of each of its edges
_BARRIERS_BYTES = 8 * (2 * 8 + 3 * 4 + 3)  # for stages, parts of the residual, consumers

# Rows of a block's tile: with pingpong each consumer has a tile of its own.
_TILE_M = "wg_rows * (consumers - (consumers - 1) * (schedule == 'pingpong'))"
_STAGES_BYTES = f"stages * ({_TILE_M} + tile_n) * tile_k * {ELEMENT_BYTES}"
_BUFFERS_BYTES = f"consumers * buffers * {BOX * BOX * ELEMENT_BYTES}"
_SUMS = "wg_rows // 64 * tile_n // 2"  # registers of a thread that hold them


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductJob:
    """``out = f(left . right^T (+ bias + residual))``, or ``bend(left . right^T) * (left . up^T)``.

    Attributes:
        m: Rows of left and output.
        n: Columns of the output.
        k: What is summed over; contiguous in all factors.
        dtype: Of all tensors.
        left: Name of the (m, k) factor.
        right: Name of the (n, k) factor.
        out: Name of the output.
        residual: Name of what is added, or None.
        up: Name of the second (n, k) factor, or None.
        bend: ``"gelu"`` or ``"silu"`` with a second factor, else ``""``.
        in_place: Whether the output may overwrite the residual.
        bias: Name of the (n,) vector that is added to every row, or None.
        activation: ``"none"``, ``"relu"`` or ``"gelu"``, applied last.
        left_across: Whether left is (k, m) instead.
        right_across: Whether right is (k, n) instead.
        second: Names of another left and right factor whose product is added, or None.
        gradients: With a second gated factor: names of the outputs for the gradients of gate and
            up; ``residual`` is then the gradient of the product, ``out`` the product.
        rests: With a second pair: names of what rounding both left factors lost; their products
            are added, too.
        kept: Names of the gradient of up, and of a gated product's gate, its sigmoid, silu and up;
            or none. The sums are then that product's gradient, ``out`` is the gradient of gate;
            behind them may be two more outputs, what rounding both gradients lost.
    """

    m: int
    n: int
    k: int
    dtype: str
    left: str
    right: str
    out: str
    residual: str | None = None
    up: str | None = None
    bend: str = ""
    in_place: bool = False
    bias: str | None = None
    activation: str = "none"
    left_across: bool = False
    right_across: bool = False
    second: tuple[str, str] | None = None
    gradients: tuple[str, str] | None = None
    rests: tuple[str, str] | None = None
    kept: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        """Products that are added up."""
        return 1 if self.second is None else 2 if self.rests is None else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """The sizes that follow from a genome.

    Attributes:
        consumers: Warpgroups that multiply.
        tile_m: Rows of a block's tile.
        tile_n: Columns that it multiplies.
        out_n: Columns of the output that it gives: half of them where two factors are gated.
        tile_k: Depth of a stage.
        stages: Stages of shared memory.
        buffers: Buffers of a consumer on their way out.
        cluster_m: Tiles of a cluster one below the other.
        cluster_n: Tiles of a cluster side by side.
        split_k: Blocks that share out the depth.
        stays: Whether blocks do tile after tile.
    """

    consumers: int
    tile_m: int
    tile_n: int
    out_n: int
    tile_k: int
    stages: int
    buffers: int
    cluster_m: int
    cluster_n: int
    split_k: int
    stays: bool

    @classmethod
    def of(cls, genome: Genome, *, gated: bool) -> TileShape:
        """Read the sizes out of a genome."""
        number = partial(whole_gene, genome)
        rows, consumers = number("wg_rows"), number("consumers")
        return cls(
            consumers=consumers,
            tile_m=rows if genome["schedule"] == "pingpong" else rows * consumers,
            tile_n=number("tile_n"),
            out_n=number("tile_n") // (2 if gated else 1),
            tile_k=number("tile_k"),
            stages=number("stages"),
            buffers=number("buffers") if "buffers" in genome else 0,
            cluster_m=number("cluster_m"),
            cluster_n=number("cluster_n"),
            split_k=number("split_k"),
            stays=genome["schedule"] != "tiles",
        )

    @property
    def threads(self) -> int:
        """Of a block: the consumers' warpgroups and the producer's."""
        return _WARPGROUP * (self.consumers + 1)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_m * self.cluster_n * self.split_k

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: stages, buffers on their way out, barriers, alignment."""
        stages = self.stages * (self.tile_m + self.tile_n) * self.tile_k * ELEMENT_BYTES
        buffers = self.consumers * self.buffers * BOX * BOX * ELEMENT_BYTES
        partial = self.tile_m * (self.tile_n + 4) * 4 if self.split_k > 1 else 0
        return ALIGNMENT_BYTES + max(stages + buffers, partial) + _BARRIERS_BYTES

    def blocks(self, m: int, n: int, multiprocessors: int) -> int:
        """Return how many blocks are launched: a tile each, or as many as run at once."""
        turns = -(-m // (self.cluster_m * self.tile_m)) * -(-n // (self.cluster_n * self.out_n))
        resident = resident_clusters(multiprocessors, self.cluster)
        return self.cluster * (min(turns, resident) if self.stays else turns)


def product_space(route: str, job: ProductJob, device: DeviceLimits) -> Space:
    """Return the genomes whose tiles, sums and stages fit the device."""
    genes = (*_tiles(device), *_memory(), *_scheduling(), *_output(job))
    names = tuple(gene.name for gene in genes)
    return Space(route, genes, _constraints(job, device, names))


def _tiles(device: DeviceLimits) -> tuple[Gene, ...]:
    owner = Strategy.TENSOR_CORE
    return (
        products_gene(device),
        Choice(
            name="consumers",
            options=(1, 2, 3),
            strategy=owner,
            description="Warpgroups that multiply; one more keeps the copy engine busy.",
        ),
        Choice(
            name="wg_rows",
            options=(64, 128),
            strategy=owner,
            description="Rows of the tile that a warpgroup sums.",
        ),
        Choice(
            name="tile_n",
            options=WIDTHS,
            strategy=owner,
            description="Columns of a tile.",
        ),
    )


def _memory() -> tuple[Gene, ...]:
    owner = Strategy.MEMORY
    return (
        Choice(
            name="tile_k",
            options=(64, 128),
            strategy=owner,
            description="Depth of a stage.",
        ),
        Choice(
            name="stages",
            options=(2, 3, 4, 5, 6, 7, 8),
            strategy=owner,
            description="Stages of shared memory that go round.",
        ),
        Choice(
            name="keep",
            options=("none", "left", "right", "stream"),
            strategy=owner,
            description="Which factor the L2 cache should keep; stream: neither.",
        ),
        Choice(
            name="l2_promotion",
            options=(0, 128, 256),
            strategy=owner,
            description="Bytes that a load brings into the L2 cache at least.",
        ),
    )


def _scheduling() -> tuple[Gene, ...]:
    owner = Strategy.SCHEDULING
    return (
        Choice(
            name="schedule",
            options=("tiles", "persistent", "pingpong"),
            strategy=owner,
            description="A block a tile; blocks that stay; or consumers that take turns, one "
            "writing its tile while another multiplies.",
        ),
        Choice(
            name="cluster_m",
            options=(1, 2, 4),
            strategy=owner,
            description="Tiles of a cluster one below the other: they share the right factor.",
        ),
        Choice(
            name="cluster_n",
            options=(1, 2, 4),
            strategy=owner,
            description="Tiles of a cluster side by side: they share the left factor.",
        ),
        Choice(
            name="raster",
            options=("m", "n"),
            strategy=owner,
            description="Whether groups of tiles are made of rows or of columns of tiles.",
        ),
        PowerOfTwo(
            name="group", low=1, high=32, strategy=owner, description="Tiles across a group."
        ),
        producer_gene((24, 40)),
        successor_gene(),
    )


def _output(job: ProductJob) -> tuple[Gene, ...]:
    plain = job.gradients is None and not job.kept
    engine = job.n * ELEMENT_BYTES % STRIDE_BYTES == 0 and plain
    genes: list[Gene] = [
        Choice(
            name="split_k",
            options=(1,) if job.bend else (1, 2, 4, 8),
            strategy=Strategy.REDUCTION,
            description="Blocks of a cluster that share out the depth and add up at the end.",
        ),
        Choice(
            name="epilogue",
            options=("direct", "engine") if engine else ("direct",),
            strategy=Strategy.FUSION,
            description="Whether registers go straight out or by shared memory and copy engine.",
        ),
    ]
    if engine:
        genes.append(
            Choice(
                name="buffers",
                options=(1, 2, 4),
                strategy=Strategy.MEMORY,
                when=When("epilogue", ("engine",)),
                description="Buffers of 64 x 64 elements a consumer has on their way out.",
            )
        )
    if job.residual is not None and job.gradients is None:
        genes.append(
            Choice(
                name="residual",
                options=("last", "engine") if engine else ("last",),
                strategy=Strategy.FUSION,
                description="The residual is read at the end, or fetched ahead by the engine.",
            )
        )
    if job.in_place:
        genes.append(
            Boolean(
                name="aliased",
                strategy=Strategy.FUSION,
                description="Written into the residual's buffer.",
            )
        )
    return tuple(genes)


def _constraints(job: ProductJob, device: DeviceLimits, names: tuple[str, ...]) -> list[Constraint]:
    halves = 2 if job.bend else 1
    room = device.shared_bytes - ALIGNMENT_BYTES - _BARRIERS_BYTES
    texts = [
        "cluster_m * cluster_n * split_k <= 8",
        "split_k == 1 or cluster_m * cluster_n == 1",
        "split_k == 1 or schedule == 'tiles'",
        "split_k == 1 or epilogue == 'direct'",
        f"split_k == 1 or consumers * wg_rows * (tile_n + 4) * 4 <= {room}",
        "schedule != 'pingpong' or consumers > 1",
        # A slice that a block loads for its cluster is whole groups of 8 swizzled rows, and a box
        # has at most 256 rows.
        f"tile_n % ({8 * halves} * cluster_m) == 0",
        f"{_TILE_M} <= 256 * cluster_n",
        f"{_SUMS} <= {_MOST_SUMS} - {_MOST_SUMS // 2} * (consumers == 3)",
        f"{_STAGES_BYTES} <= {room}",
    ]
    if job.right_across:
        texts += [f"tile_n % {BOX} == 0"]
    if "buffers" in names:
        texts += [f"{_STAGES_BYTES} + {_BUFFERS_BYTES} <= {room}"]
        texts += [f"epilogue == 'direct' or tile_n % {BOX * halves} == 0"]
    if "residual" in names:
        texts += ["residual == 'last' or epilogue == 'engine'"]
    return [ExpressionConstraint(text, names) for text in texts]


# Where a search starts


def starts(job: ProductJob, device: DeviceLimits) -> tuple[Mapping[str, Allele], ...]:
    """Return what keeps the products busy at any size, and tiles that come out even at this one."""
    return (*_STARTS, *(_even(job, device, shape) for shape in _even_shapes(job, device)))


def most_stages(start: Mapping[str, Allele], device: DeviceLimits) -> int:
    """Return how many stages of a start's tile fit beside its buffers."""
    whole = {name: allele for name, allele in start.items() if isinstance(allele, int)}
    high = whole["wg_rows"] * (1 if start["schedule"] == "pingpong" else whole["consumers"])
    room = device.shared_bytes - ALIGNMENT_BYTES - _BARRIERS_BYTES
    if start["epilogue"] == "engine":
        room -= whole["consumers"] * whole["buffers"] * BOX * BOX * ELEMENT_BYTES
    stages = room // ((high + whole["tile_n"]) * whole["tile_k"] * ELEMENT_BYTES)
    return min(stages, _MOST_STAGES)


def _even_shapes(job: ProductJob, device: DeviceLimits) -> list[tuple[int, int, int]]:
    """Return (consumers, rows of each, columns) of the tiles that leave the fewest blocks idle."""
    halves = 2 if job.bend else 1
    costs = {}
    for consumers, rows in ((1, 64), (2, 64), (2, 128)):
        for width in WIDTHS:
            if rows // 64 * width // 2 > _MOST_SUMS:
                continue
            tiles = -(-job.m // (consumers * rows)) * -(-job.n * halves // width)
            waves = -(-tiles // device.multiprocessors)
            high = consumers * rows
            costs[consumers, rows, width] = waves * (high * width + _EDGE * (high + width))
    return sorted(costs, key=lambda shape: (costs[shape], shape))[:3]


def _even(
    job: ProductJob, device: DeviceLimits, shape: tuple[int, int, int]
) -> Mapping[str, Allele]:
    consumers, rows, width = shape
    room = device.shared_bytes - ALIGNMENT_BYTES - _BARRIERS_BYTES
    stages = room // ((consumers * rows + width) * BOX * ELEMENT_BYTES)
    return {
        **_SMALL,
        "consumers": consumers,
        "wg_rows": rows,
        "tile_n": width,
        "stages": min(stages, _MOST_STAGES),
        "epilogue": "direct",
        "residual": "last",
    }


_WIDE: Mapping[str, Allele] = {
    "products": "warpgroup",
    "consumers": 2,
    "wg_rows": 64,
    "tile_n": 256,
    "stages": 4,
    "cluster_m": 2,
    "schedule": "persistent",
    "raster": "m",
    "group": 8,
    "producer_registers": 40,
    "epilogue": "engine",
    "buffers": 2,
    "residual": "engine",
}
_SMALL = {**_WIDE, "tile_n": 128, "stages": 5, "cluster_m": 1, "schedule": "tiles"}
_STARTS: tuple[Mapping[str, Allele], ...] = (
    _WIDE,
    {**_WIDE, "raster": "n", "l2_promotion": 256},
    {**_WIDE, "tile_n": 192, "buffers": 1},
    {**_WIDE, "tile_n": 192, "schedule": "pingpong", "stages": 5},
    {**_WIDE, "wg_rows": 128, "tile_n": 128, "schedule": "pingpong"},
    {**_WIDE, "tile_n": 128, "stages": 6},
    _SMALL,
    {**_SMALL, "consumers": 1, "stages": 6},
    {**_SMALL, "split_k": 2, "epilogue": "direct", "residual": "last"},
    {**_SMALL, "split_k": 4, "epilogue": "direct", "residual": "last"},
    {**_SMALL, "epilogue": "direct", "residual": "last"},
)
