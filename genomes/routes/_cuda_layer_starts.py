"""Where a search of a layer's CUDA genomes begins: tiles for as many rows as an expert has.

Of 22 genomes measured on an H200 with 128 rows to an expert, what lasted was what the products of
rows drew from the L2 cache, at 6.6 TB/s; products by weights waited for memory, whatever their
tiles, and much longer where registers went straight out. What is made here follows from that; it
orders what is tried first and decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_gemm_space import BOX, ELEMENT_BYTES
from kernelarc.genomes.routes._cuda_grouped import (
    HIDDEN,
    INNER,
    KINDS,
    TOKEN,
    Kind,
    most_stages,
    sums_fit,
)

Start = Mapping[str, Allele]
_PRODUCTS = 0.8 * 2048.0  # multiply-adds of a multiprocessor in a cycle, sustained
_L2_BYTES = 28.0  # that it draws from the L2 cache in a cycle
_STORED_BYTES = 14.0  # that it writes in a cycle
_TAIL = 500.0  # cycles at the end of a tile
_FEWEST_STAGES, _FEW_ROWS = 3, 64
_WIDTHS = (64, 96, 128, 160, 192, 256)
_BUFFERS = 1  # of a consumer: more would cost a stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A tile of rows.

    Attributes:
        consumers: Warpgroups.
        wg_rows: Rows of each.
        tile_n: Columns that it multiplies.
        share: Blocks that share its rows.
    """

    consumers: int
    wg_rows: int
    tile_n: int
    share: int

    @property
    def tile_m(self) -> int:
        """Rows."""
        return self.consumers * self.wg_rows

    def cycles(self, kind: Kind, rows: int, n: int, k: int) -> float:
        """Return the cycles of one multiprocessor that an expert's product is expected to take.

        Args:
            kind: Of product.
            rows: The expert's, filled up.
            n: Columns of the output.
            k: Depth, of both products where there are two.
        """
        out_n = self.tile_n // (2 if kind.gated else 1)
        touched = 4 if kind.gated else 1  # one is read and three are written
        total = 0.0
        for first in range(0, rows, self.tile_m):
            own = min(self.tile_m, rows - first)
            multiplied = -(-own // self.wg_rows) * self.wg_rows * self.tile_n
            loaded = ELEMENT_BYTES * (own / self.share + self.tile_n)
            total += k * max(multiplied / _PRODUCTS, loaded / _L2_BYTES)
            total += _TAIL + own * out_n * ELEMENT_BYTES * touched / _STORED_BYTES
        return total * -(-n // (out_n * self.share)) * self.share


def best_tile(
    kind: Kind, rows: list[int], size: tuple[int, int], *, share: int, shared_bytes: int
) -> Tile:
    """Return the tile that is expected to take least, among those with enough stages.

    Args:
        kind: Of product.
        rows: Of experts that are as common as each other, filled up.
        size: Columns of the output, and the depth, of both products where there are two.
        share: Blocks that share rows.
        shared_bytes: Of a block.
    """

    def fits(tile: Tile) -> bool:
        if not kind.gated and tile.tile_n % BOX:
            return False
        stages = most_stages(tile.tile_m, tile.tile_n, shared_bytes - _buffers(kind, tile))
        return sums_fit(tile.consumers, tile.wg_rows, tile.tile_n) and stages >= _FEWEST_STAGES

    tiles = [
        Tile(consumers=consumers, wg_rows=wg_rows, tile_n=width, share=share)
        for consumers, wg_rows, width in itertools.product((1, 2, 3), (64, 128), _WIDTHS)
    ]
    return min(
        filter(fits, tiles), key=lambda tile: sum(tile.cycles(kind, each, *size) for each in rows)
    )


def _buffers(kind: Kind, tile: Tile) -> int:
    return 0 if kind.gated else tile.consumers * _BUFFERS * BOX * BOX * ELEMENT_BYTES


def common_rows(choices: int, experts: int, pad: int) -> list[int]:
    """Return the rows of three experts when all are as likely: fewer, as many, more than most."""
    mean = choices / experts
    return [
        max(pad, math.ceil((mean + way * math.sqrt(mean)) / pad) * pad) for way in (-0.7, 0.0, 0.7)
    ]


def layer_starts(
    *, choices: int, experts: int, hidden: int, inner: int, pad: int, device: DeviceLimits
) -> Iterator[Start]:
    """Yield what to try first, what is made for as many rows as there are before others.

    Args:
        choices: Rows of all experts.
        experts: How many.
        hidden: Features of a token.
        inner: Features inside an expert.
        pad: What each expert's rows are filled up to.
        device: Whose shared memory bounds the stages.
    """
    rows = common_rows(choices, experts, pad)
    sizes = {INNER: (inner, hidden), HIDDEN: (inner, hidden), TOKEN: (hidden, 2 * inner)}
    few = choices < _FEW_ROWS * experts

    def made(share: int, weight: Start, epilogue: str, keep: str = "none") -> Start:
        start: dict[str, Allele] = {**_WHOLE, "pad": pad}
        for kind, size in sizes.items():
            room = device.shared_bytes
            tile = best_tile(kind, rows, size, share=share, shared_bytes=room)
            held = _buffers(kind, tile) if epilogue == "engine" else 0
            stages = most_stages(tile.tile_m, tile.tile_n, room - held)
            genes: dict[str, Allele] = {
                "consumers": tile.consumers, "wg_rows": tile.wg_rows, "tile_n": tile.tile_n,
                "stages": stages, "share": share, "epilogue": epilogue, "buffers": _BUFFERS,
                "keep": keep,
            }  # fmt: skip
            start |= _named(kind, genes)
        return {**start, **_named(KINDS[-1], weight)}

    if few:
        yield made(1, _WIDE, "engine", "left")
        yield made(2, _WIDE, "engine")
    yield made(2, _SQUARE, "engine")
    yield made(1, _IN_TURN, "engine")
    yield made(2, {**_IN_TURN, "share": 2}, "direct")
    yield made(2, _HIGH, "engine")
    yield made(1, _LARGE, "direct", "left")


_WHOLE: Start = {
    "products": "warpgroup", "chunk": 256, "pdl": False, "pack_threads": 128, "gather_threads": 256,
}  # fmt: skip


def _named(kind: Kind, genes: Start) -> Start:
    """Return a kind's genes with its name before theirs."""
    whole = {
        "group": 8,
        "producer_registers": 40,
        "keep": "none",
        "share": 1,
        "in_turn": False,
        **genes,
    }
    return {f"{kind.name}_{gene}": allele for gene, allele in whole.items()}


def _out(consumers: int, wg_rows: int, tile_n: int, stages: int) -> Start:
    return {
        "consumers": consumers, "wg_rows": wg_rows, "tile_n": tile_n, "stages": stages,
        "epilogue": "engine", "buffers": 2,
    }  # fmt: skip


# Products by weights: what goes out is what lasts.
_SQUARE, _HIGH = _out(2, 64, 128, 4), _out(2, 128, 128, 4)
_WIDE, _LARGE = _out(2, 64, 256, 3), _out(2, 128, 192, 3)
_IN_TURN: Start = {**_out(2, 128, 192, 4), "in_turn": True}
