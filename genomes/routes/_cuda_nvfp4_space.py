"""The three ways of the route ``cuda`` through attention over 4-bit floats: sizes, genes, limits.

``whole``: all keys of a head stay in shared memory and all scores of a row in registers.
``tiled``: keys and values pass by in tiles, twice; for more keys than the first holds.
``native``: scores are products of the 4-bit codes themselves (gene ``products``, allele ``fp4``);
only devices of compute capability 10.x and 11.x have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_route import (
    ALIGNMENT_BYTES,
    products_gene,
    register_genes,
    successor_gene,
)

NATIVE = "fp4"
NATIVE_ROWS = 128  # of a product of codes
TENSOR_COLUMNS = 512  # of a multiprocessor's tensor memory
_ROWS = 64  # of a warpgroup's tile
_BYTES = 2
_WHOLE_KEYS = 256  # all scores of a row stay in registers
_TILES, _NATIVE_TILES = (64, 128, 192), (64, 128, 256)  # keys
_BEST_FEW = (1, 2, 3, 4, 5, 7, 10, 20)
_BEST_MANY = (1, 2, 4, 5, 8, 10, 16, 20, 32, 40)

Way = Literal["whole", "tiled", "native"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvfp4Sizes:
    """Sizes of one workload.

    Attributes:
        batch: Sequences.
        q_heads: Query heads.
        kv_heads: Key-value heads.
        length: Queries and keys of a sequence.
        head: Features of a head.
    """

    batch: int
    q_heads: int
    kv_heads: int
    length: int
    head: int

    @property
    def group(self) -> int:
        """Query heads to a key-value head."""
        return self.q_heads // self.kv_heads

    @property
    def rows(self) -> int:
        """Rows that share keys and values."""
        return self.group * self.length

    @property
    def keys(self) -> int:
        """The length, rounded up to what products take."""
        return -(-self.length // 16) * 16

    @property
    def is_long(self) -> bool:
        """Whether the scores of a row are too many to be held at once."""
        return self.length > _WHOLE_KEYS

    def unsuited(self) -> str | None:
        """Say which size the kernels are not made for, or None."""
        if self.q_heads % self.kv_heads:
            return f"{self.q_heads} query heads do not share {self.kv_heads} key-value heads evenly"
        if self.head not in {64, 128}:
            return f"heads of {self.head} features, not 64 or 128"
        return None

    def way(self, alleles: Mapping[str, Allele]) -> Way:
        """Return which of the three kernels a genome's alleles ask for."""
        if alleles["products"] == NATIVE:
            return "native"
        return "tiled" if self.is_long else "whole"

    def whole_bytes(self, buffers: int) -> int:
        """Return the shared memory of ``whole``; a buffer is a warpgroup's tile of queries."""
        return ALIGNMENT_BYTES + (2 * self.keys + buffers * _ROWS) * self.head * _BYTES

    def tiled_bytes(self, tile_kv: int, stages: int, warpgroups: int) -> int:
        """Return the shared memory of ``tiled``: tiles of keys and values, queries, results."""
        rows = 2 * stages * tile_kv + 2 * warpgroups * _ROWS
        return ALIGNMENT_BYTES + rows * self.head * _BYTES

    def native_bytes(self, tile_kv: int) -> int:
        """Return the shared memory of ``native``: as ``nvfp4_native.cu`` lays it out."""
        numbers = tile_kv * self.head + NATIVE_ROWS * max(tile_kv, self.head)
        codes = (tile_kv + NATIVE_ROWS) * self.head // 2
        scales = 512 * self.head // 64 * (1 + -(-tile_kv // 128))
        return ALIGNMENT_BYTES + numbers * _BYTES + codes + scales + 16

    def native_columns(self, tile_kv: int) -> int:
        """Return the columns of tensor memory that ``native`` takes: a power of two, at least 32.

        Sums of scores and of mixed values, which take turns where all keys are one tile; scales of
        128 rows of queries and of keys are 4 columns each for every 64 features.
        """
        scales = 4 * self.head // 64 * (1 + -(-tile_kv // 128))
        both = tile_kv + self.head if self.length > tile_kv else max(tile_kv, self.head)
        return max(32, 1 << (both + scales - 1).bit_length())


def has_native(device: DeviceLimits) -> bool:
    """Tell whether a device multiplies 4-bit codes from shared memory (``tcgen05``)."""
    return 10 <= device.compute_capability[0] < 12


def nvfp4_genes(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    """Return the genes of a workload on a device."""
    return (*_work(sizes, device), *_way_out(sizes, device), *_rest(sizes, device))


def _others(device: DeviceLimits) -> When | None:
    """Return the condition of a gene that products of codes do not have; None is always."""
    names = tuple(name for name in ("warpgroup", "warp") if products_gene(device).contains(name))
    return When("products", names) if has_native(device) else None


def _products(device: DeviceLimits) -> Gene:
    gene = products_gene(device)
    if not has_native(device):
        return gene
    return Choice(
        name=gene.name,
        options=(*gene.values(), NATIVE),
        strategy=gene.strategy,
        description="Products of warps from registers, or of the 4-bit codes themselves.",
    )


def _work(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    tiles = -(-sizes.rows // _ROWS)
    few = _BEST_MANY if sizes.is_long else _BEST_FEW
    return (
        _products(device),
        Choice(
            name="warpgroups",
            options=(1, 2, 3, 4) if sizes.is_long else (1, 2, 3, 4, 5),
            strategy=Strategy.TENSOR_CORE,
            when=_others(device),
            description="Warpgroups of a block, each with tiles of 64 rows of its own.",
        ),
        Choice(
            name="parts",
            options=tuple(n for n in few if n <= tiles),
            strategy=Strategy.SCHEDULING,
            description="Blocks that share out the rows of a key-value head.",
        ),
        *_key_tiles(sizes, device),
    )


def _key_tiles(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    native = tuple(n for n in _NATIVE_TILES if n // 2 < sizes.length) or _NATIVE_TILES[:1]
    options = {*(_TILES if sizes.is_long else ()), *(native if has_native(device) else ())}
    if not options:
        return ()
    tile = Choice(
        name="tile_kv",
        options=tuple(sorted(options)),
        strategy=Strategy.TENSOR_CORE if sizes.is_long else Strategy.BLACKWELL,
        when=None if sizes.is_long else When("products", (NATIVE,)),
        description="Keys whose scores are there at once.",
    )
    if not sizes.is_long:
        return (tile,)
    stages = Choice(
        name="stages",
        options=(1, 2),
        strategy=Strategy.MEMORY,
        when=_others(device),
        description="Tiles of keys and values that shared memory holds.",
    )
    return (tile, stages)


def _way_out(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    engine = sizes.length * _BYTES % 16 == 0
    spare = Boolean(
        name="spare",
        strategy=Strategy.MEMORY,
        when=_others(device),
        description="Results leave by a buffer of their own, not by that of the queries.",
    )
    return (
        Choice(
            name="store",
            options=("engine", "direct") if engine else ("direct",),
            strategy=Strategy.MEMORY,
            description="Whether results leave by shared memory and copy engine.",
        ),
        *(() if sizes.is_long else (spare,)),
        Choice(
            name="mix",
            options=("first", "last"),
            strategy=Strategy.FUSION,
            when=_others(device),
            description="Values are mixed while weights leave, or after.",
        ),
    )


def _rest(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    converts = device.compute_capability[0] >= 10
    ahead = Boolean(
        name="ahead",
        strategy=Strategy.MEMORY,
        when=_others(device),
        description="The next queries are fetched before this tile is worked on.",
    )
    return (
        Choice(
            name="dequantise",
            options=("table", "convert") if converts else ("table",),
            strategy=Strategy.BLACKWELL if converts else Strategy.PRECISION,
            description="4-bit codes are looked up, or converted by the chip.",
        ),
        *(() if sizes.is_long else (ahead,)),
        *register_genes((96, 128, 168), (1, 2, 3)),
        successor_gene(),
    )


def nvfp4_constraints(
    sizes: Nvfp4Sizes, device: DeviceLimits, names: tuple[str, ...]
) -> list[Constraint]:
    """Return what tiles, buffers and sums must fit.

    Args:
        sizes: Of the workload.
        device: Its shared memory, registers and tensor memory.
        names: Genes of the space.
    """
    texts = _tiled_texts(sizes, device) if sizes.is_long else _whole_texts(sizes, device)
    if has_native(device):
        # A cap on registers is the only limit that could be asked of products of codes as well.
        texts = [f"products == '{NATIVE}' or {t}" if "warpgroups" not in t else t for t in texts]
        if sizes.is_long:
            texts.append(f"products == '{NATIVE}' or tile_kv in {_TILES}")
        texts += _native_texts(sizes, device)
    return [ExpressionConstraint(text, names) for text in texts]


def _whole_texts(sizes: Nvfp4Sizes, device: DeviceLimits) -> list[str]:
    room = device.shared_bytes - sizes.whole_bytes(0)
    tile = _ROWS * sizes.head * _BYTES
    tiles = -(-sizes.rows // _ROWS)
    held = sizes.keys // 2 + 40  # scores of a thread, beside some others
    return [
        f"(1 + spare) * warpgroups * {tile} <= {room}",
        f"warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"max_registers == 0 or max_registers >= {held}",
        f"min_blocks * warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"min_blocks * ((1 + spare) * warpgroups * {tile} + "
        f"{2 * sizes.keys * sizes.head * _BYTES + 2048}) <= {device.shared_bytes_multiprocessor}",
        "max_registers * warpgroups * 128 <= " + str(device.registers_multiprocessor),
        f"parts * warpgroups <= {tiles}",
    ]


def _tiled_texts(sizes: Nvfp4Sizes, device: DeviceLimits) -> list[str]:
    row = sizes.head * _BYTES
    buffers = f"(stages * tile_kv + warpgroups * {_ROWS}) * {2 * row}"
    held = f"(tile_kv // 2 + {sizes.head // 2 + 40})"  # scores and mixed values of a thread
    return [
        f"{buffers} + {ALIGNMENT_BYTES} <= {device.shared_bytes}",
        f"warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"max_registers == 0 or max_registers >= {held}",
        f"min_blocks * warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"min_blocks * ({buffers} + 2048) <= {device.shared_bytes_multiprocessor}",
        "max_registers * warpgroups * 128 <= " + str(device.registers_multiprocessor),
        f"parts * warpgroups <= {-(-sizes.rows // _ROWS)}",
    ]


def _native_texts(sizes: Nvfp4Sizes, device: DeviceLimits) -> list[str]:
    texts = [
        f"products != '{NATIVE}' or tile_kv in {_NATIVE_TILES}",
        f"products != '{NATIVE}' or parts <= {-(-sizes.rows // NATIVE_ROWS)}",
    ]
    for tile in _NATIVE_TILES:
        by_shared = device.shared_bytes_multiprocessor // (sizes.native_bytes(tile) + 1024)
        most = min(by_shared, TENSOR_COLUMNS // sizes.native_columns(tile))
        texts.append(f"products != '{NATIVE}' or tile_kv != {tile} or min_blocks <= {most}")
    return texts


def nvfp4_starts(sizes: Nvfp4Sizes, device: DeviceLimits) -> tuple[Mapping[str, Allele], ...]:
    """Return alleles to begin with; genes that they do not name hold their first one."""
    native: tuple[dict[str, Allele], ...] = ()
    if has_native(device):
        native = tuple(
            {"products": NATIVE, "tile_kv": tile, "parts": parts, "dequantise": "convert"}
            for tile, parts in ((128, 1), (128, 2), (256, 1), (64, 2), (64, 1))
        )
    return (*native, *(_TILED_STARTS if sizes.is_long else _WHOLE_STARTS))


_WHOLE_STARTS: tuple[dict[str, Allele], ...] = tuple(
    {
        "products": "warpgroup",
        "warpgroups": warpgroups,
        "parts": parts,
        "store": store,
        "spare": True,
        "mix": "first",
        "ahead": True,
    }
    for warpgroups, parts, store in (
        (3, 1, "engine"),
        (2, 1, "engine"),
        (2, 2, "engine"),
        (3, 2, "direct"),
        (2, 5, "engine"),
        (4, 1, "engine"),
        (4, 2, "engine"),
    )
)
_TILED_STARTS: tuple[dict[str, Allele], ...] = tuple(
    {
        "products": "warpgroup",
        "warpgroups": warpgroups,
        "parts": parts,
        "tile_kv": tile,
        "stages": stages,
        "store": "engine",
    }
    for warpgroups, parts, tile, stages in (
        (2, 8, 128, 2),
        (3, 4, 128, 2),
        (2, 16, 64, 2),
        (2, 4, 128, 1),
        (3, 2, 64, 2),
        (1, 1, 64, 1),
    )
)
