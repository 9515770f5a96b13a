"""First genomes of the Triton products, by rule: tiles that fill the device, deep pipelines."""

from __future__ import annotations

from collections.abc import Mapping

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._matmul import MatmulJob

_ELEMENT_BYTES = 2
_TILES = tuple((m, n) for m in (16, 32, 64, 128, 256) for n in (64, 128, 256) if m * n <= 1 << 15)
_PIECES = (2, 4, 8, 16)
_MOST_STAGES = 6
_STAGE_BYTES = 48 << 10  # of one tile's factors: deep enough to be few steps, shallow for three
_BEST_TILES, _SPLIT_TILES = 3, 2
_RASTERS = (8, 16)
_BARRIER_BYTES = 8


def starts(job: MatmulJob, device: DeviceLimits, space: Space) -> tuple[Mapping[str, Allele], ...]:
    """Return what an expert would try, the best guess first; not all of it need be legal.

    The best tiles by the space's hint, each with the deepest pipeline that fits; the very best in
    another raster (or, with one row of tiles, in smaller steps), with a shallower pipeline, and
    with programs that do not take tiles in turn, or do. Where tiles are few, k in pieces.
    """
    hint = space.hint
    assert hint is not None
    rows, columns = space.gene("block_m"), space.gene("block_n")
    fitting = [(m, n) for m, n in _TILES if rows.contains(m) and columns.contains(n)]
    tiles = sorted((_tile(job, device, m, n) for m, n in fitting), key=hint)
    first, *others = tiles[:_BEST_TILES]
    several = _count(job, first) > device.multiprocessors
    best = _scheduled(first, several)
    found = [best, _varied(job, device, best), *(_scheduled(tile, several) for tile in others)]
    found.append({**best, "num_stages": _number(best, "num_stages") - 1})
    found.append(_scheduled(first, not several))
    if _count(job, first) <= device.multiprocessors:
        split = [_split(tile, pieces) for tile in tiles for pieces in _PIECES]
        found += sorted(split, key=hint)[:_SPLIT_TILES]
    return tuple(found)


def _tile(job: MatmulJob, device: DeviceLimits, rows: int, columns: int) -> dict[str, Allele]:
    """Return a tile with the depth and the stages that suit it."""
    wide = (rows + columns) * 128 * _ELEMENT_BYTES <= _STAGE_BYTES and job.k >= 128
    tile: dict[str, Allele] = {
        "block_m": rows,
        "block_n": columns,
        "num_warps": 8 if rows * columns > 128 * 128 else 4,
        "load": "descriptor",
        "store_descriptor": True,
        "epilogue_parts": 2,
        "group": _RASTERS[0],
        "split_k": 1,
        "num_ctas": 1,
        "sm_multiple": 1,
    }
    return _deep(tile, device, 128 if wide else 64)


def _deep(tile: Mapping[str, Allele], device: DeviceLimits, depth: int) -> dict[str, Allele]:
    """Return a tile with steps of a depth, and as many stages as fit beside its stored half."""
    rows, columns = _number(tile, "block_m"), _number(tile, "block_n")
    stage = (rows + columns) * depth * _ELEMENT_BYTES + _BARRIER_BYTES
    room = device.shared_bytes - rows * columns * _ELEMENT_BYTES // 2
    return {**tile, "block_k": depth, "num_stages": min(room // stage, _MOST_STAGES)}


def _varied(job: MatmulJob, device: DeviceLimits, best: Mapping[str, Allele]) -> dict[str, Allele]:
    """Return the best tile in another order of tiles, or in other steps where there is none."""
    if -(-job.m // _number(best, "block_m")) > _RASTERS[0]:
        return {**best, "group": _RASTERS[1]}
    return _deep(best, device, 192 - _number(best, "block_k"))


def _scheduled(tile: Mapping[str, Allele], several: bool) -> dict[str, Allele]:
    """Return a tile whose programs take tiles in turn, in one loop, or one each."""
    return {**tile, "persistent": several, "flatten": several}


def _split(tile: Mapping[str, Allele], pieces: int) -> dict[str, Allele]:
    """Return a tile whose depth is cut into pieces that are added afterwards."""
    whole = {"store_descriptor": False, "epilogue_parts": 1, "persistent": False}
    return {**tile, **whole, "split_k": pieces}


def _count(job: MatmulJob, tile: Mapping[str, Allele]) -> int:
    rows, columns = _number(tile, "block_m"), _number(tile, "block_n")
    return -(-job.m // rows) * -(-job.n // columns)


def _number(alleles: Mapping[str, Allele], gene: str) -> int:
    found = alleles[gene]
    assert type(found) is int
    return found
