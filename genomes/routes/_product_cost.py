"""What arithmetic guesses a product by copy engine and warpgroups to take, and where to begin.

A block waits for its products or for what the L2 cache hands it, whichever takes longer; between
two tiles it waits for its results to go out, unless another consumer multiplies meanwhile. The
rates are those with which the first genomes of six chained products on an H200 came out within a
tenth of what they were measured at; they order what is tried first and decide nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_gemm_space import (
    ELEMENT_BYTES,
    WIDTHS,
    ProductJob,
    TileShape,
    most_stages,
    product_space,
)
from kernelarc.genomes.routes._cuda_route import CUDA_ROUTE, placed_start, resident_clusters

_CLOCK_MHZ = 1755.0
_PRODUCTS = 0.8 * 2048.0  # multiply-adds of a multiprocessor in a cycle, sustained
_L2_BYTES = 34.0  # a multiprocessor draws from the L2 cache in a cycle, and writes there
_DRAM_BYTES_US = 4.0e6  # of the device
_PROLOGUE, _EPILOGUE = 900.0, 500.0  # cycles: barriers and the first loads; the last stores
_LAUNCH_US = 2.0
_FEWEST_STAGES = 3
_NEAR = 1.4  # times the best expected: what is slower is no start
_BEST_TILES = 2

_BASE: Mapping[str, Allele] = {
    "products": "warpgroup",
    "raster": "m",
    "group": 8,
    "producer_registers": 40,
    "tile_k": 64,
    "buffers": 2,
}


def expected_us(job: ProductJob, shape: TileShape, schedule: str, multiprocessors: int) -> float:
    """Return the microseconds of one product that arithmetic expects."""
    halves = 2 if job.bend else 1
    rows, columns = shape.cluster_m * shape.tile_m, shape.cluster_n * shape.out_n
    clusters = -(-job.m // rows) * -(-job.n // columns)
    turns = -(-clusters // resident_clusters(multiprocessors, shape.cluster))
    depth = -(-job.k // (shape.split_k * shape.tile_k)) * shape.tile_k
    depth *= job.pairs
    high, wide = min(shape.tile_m, job.m), min(shape.tile_n, halves * job.n)
    loaded = ELEMENT_BYTES * (high / shape.cluster_n + wide / shape.cluster_m)
    main = depth * max(shape.tile_m * shape.tile_n / _PRODUCTS, loaded / _L2_BYTES)
    touched = 1 + 2 * (job.gradients is not None) + (job.residual is not None) + len(job.kept)
    tail = _EPILOGUE + high * min(shape.out_n, job.n) * ELEMENT_BYTES * touched / _L2_BYTES
    if shape.split_k > 1:
        tail += 2 * high * wide * 4 / _L2_BYTES
    hidden = turns if schedule == "pingpong" else 1
    fresh = turns if schedule == "tiles" else 1
    cycles = fresh * _PROLOGUE + turns * main + max(turns - hidden, 0) * tail + tail
    moved = ELEMENT_BYTES * ((job.m + halves * job.n) * job.k * job.pairs + touched * job.m * job.n)
    return _LAUNCH_US + max(cycles / _CLOCK_MHZ, moved / _DRAM_BYTES_US)


@lru_cache(maxsize=256)
def ranked_starts(
    jobs: tuple[ProductJob, ...], device: DeviceLimits
) -> tuple[Mapping[str, Allele], ...]:
    """Return the starts expected fastest, the best first: few, and unlike one another.

    The best two tiles are among them, and of every other schedule the best that comes near.

    Args:
        jobs: Products that have their genes in common, at least one; they differ in sizes alone.
        device: Where they run.
    """
    space = product_space(CUDA_ROUTE, jobs[0], device)
    if space.genes[0].values()[0] != "warpgroup":
        return ()
    costs: list[tuple[float, int, Mapping[str, Allele]]] = []
    for start in _candidates(jobs[0], device):
        alleles = placed_start(space, start)
        if space.violation(alleles) is None:
            genome = space.genome(alleles)
            shape, schedule = TileShape.of(genome, gated=bool(jobs[0].bend)), start["schedule"]
            each = [expected_us(job, shape, str(schedule), device.multiprocessors) for job in jobs]
            costs.append((sum(each), len(costs), start))
    ordered = sorted(costs, key=lambda cost: cost[:2])
    return _unlike([start for us, _, start in ordered if us <= _NEAR * ordered[0][0]])


def _unlike(ordered: list[Mapping[str, Allele]]) -> tuple[Mapping[str, Allele], ...]:
    """Return the best two tiles, and the best of every other schedule, in order."""
    kinds: set[tuple[Allele, bool]] = set()
    tiles: set[tuple[Allele, ...]] = set()
    kept = []
    for start in ordered:
        kind = start["schedule"], start["split_k"] != 1
        tile = start["consumers"], start["wg_rows"], start["tile_n"]
        if kind not in kinds or (len(tiles) < _BEST_TILES and tile not in tiles):
            kept.append(start)
            kinds.add(kind)
            tiles.add(tile)
    return tuple(kept)


def _candidates(job: ProductJob, device: DeviceLimits) -> Iterator[Mapping[str, Allele]]:
    halves = 2 if job.bend else 1
    blocks = ((1, 64), (2, 64), (1, 128), (2, 128))
    clusters = ((1, 1), (2, 1), (1, 2), (4, 1), (2, 2))
    ways = (
        *((s, 1) for s in ("pingpong", "persistent", "tiles")),
        *(("tiles", n) for n in (2, 4, 8)),
    )
    for (consumers, rows), width, (below, beside), (schedule, split) in itertools.product(
        blocks, WIDTHS, clusters, ways
    ):
        if split > 1 and (below * beside > 1 or job.bend):
            continue
        engine = split == 1 and schedule != "tiles" and width % (64 * halves) == 0
        start = {
            **_BASE,
            "consumers": consumers,
            "wg_rows": rows,
            "tile_n": width,
            "cluster_m": below,
            "cluster_n": beside,
            "schedule": schedule,
            "split_k": split,
            "epilogue": "engine" if engine else "direct",
            "residual": "engine" if engine else "last",
        }
        stages = most_stages(start, device)
        if stages >= _FEWEST_STAGES:
            yield {**start, "stages": stages}
