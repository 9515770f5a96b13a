"""The space of the Triton products: what fits into shared memory, and what is tried first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelarc.engine import CampaignSettings, resolve_target
from kernelarc.genomes import Allele, Genome, Problem, Space
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute, kernel_routes

HOPPER = DeviceLimits.of_arch("sm_90a")
_SIZES = ((4096, 4096, 4096), (64, 14336, 4096), (1, 4096, 4096), (100, 100, 100), (33, 77, 50))
# What Triton 3.6 reported for sm_90a: rows, columns, depth, warps, stages, stages of the inner
# loop, programs that take tiles in turn ("flat" in one loop), strips of the epilogue, how it loads
# and stores ("tma", "tma, pointers", "pointers"), clusters; and the bytes.
_REPORTED: tuple[tuple[Any, ...], ...] = (
    (128, 128, 64, 4, 6, 0, True, 1, "tma", 1, 229424),
    (128, 256, 64, 8, 4, 0, "flat", 2, "tma", 1, 229408),
    (128, 256, 64, 8, 5, 0, True, 2, "tma", 1, 278568),
    (256, 128, 64, 8, 4, 0, False, 1, "tma", 1, 196640),
    (64, 256, 128, 8, 2, 0, "flat", 2, "tma", 1, 213008),
    (64, 128, 128, 8, 6, 0, "flat", 2, "tma", 1, 319536),
    (64, 64, 128, 8, 5, 0, True, 2, "tma", 1, 167976),
    (256, 32, 128, 4, 3, 0, True, 2, "tma, pointers", 1, 221208),
    (32, 256, 128, 4, 5, 4, True, 1, "tma, pointers", 1, 221208),
    (32, 128, 128, 4, 3, 4, "flat", 2, "tma", 1, 127000),
    (256, 32, 128, 8, 3, 0, True, 1, "tma", 1, 237592),
    (256, 32, 128, 8, 3, 0, False, 2, "pointers", 1, 221184),
    (32, 256, 128, 4, 4, 0, True, 2, "pointers", 1, 221184),
    (64, 128, 128, 8, 5, 0, False, 1, "pointers", 1, 245760),
    (64, 256, 64, 8, 5, 0, "flat", 2, "pointers", 1, 237568),
    (128, 256, 64, 8, 6, 0, False, 1, "pointers", 2, 196608),
    (256, 64, 128, 8, 6, 0, False, 1, "pointers", 2, 294912),
    (64, 64, 128, 4, 6, 0, False, 1, "pointers", 2, 147456),
    (32, 256, 128, 8, 4, 0, False, 1, "pointers", 2, 122880),
)


def _found(size: tuple[int, int, int]) -> tuple[Problem, KernelRoute]:
    axes = dict(zip("MNK", size, strict=True))
    settings = CampaignSettings(target="matmul", device="cuda:0", axes=axes)
    problem = resolve_target(settings).problem
    return problem, next(r for r in kernel_routes(problem.operator) if r.name == "triton")


def _space(size: tuple[int, int, int], device: DeviceLimits) -> Space:
    problem, route = _found(size)
    return route.space(problem.workloads[0], device)


def _alleles(row: tuple[Any, ...]) -> dict[str, Allele]:
    names = ("block_m", "block_n", "block_k", "num_warps", "num_stages", "loop_stages")
    in_turn, parts, way, clusters = row[6:10]
    found: dict[str, Allele] = dict(zip(names, row, strict=False))
    found |= {"epilogue_parts": parts, "num_ctas": clusters, "persistent": in_turn is not False}
    if in_turn:
        found |= {"flatten": in_turn == "flat", "sm_multiple": 1}
    if way == "pointers":
        found |= {"load": "pointer", "evict_a": "", "evict_b": "", "cache": ""}
    else:
        found |= {"load": "descriptor", "store_descriptor": way == "tma"}
    rest: dict[str, Allele] = {"group": 8, "maxnreg": 0, "split_k": 1, "warp_specialize": False}
    return {**rest, **found}


@pytest.mark.parametrize("row", _REPORTED, ids=str)
def test_what_fits_is_legal_and_what_does_not_is_not(row: tuple[Any, ...]) -> None:
    taken = int(row[-1])
    size = (64, 14336, 4096) if row[0] < 64 else (4096, 4096, 4096)
    least = max(taken, 120_000)
    for room, fits in ((least, True), (taken - 1, False)):
        violation = _space(size, replace(HOPPER, shared_bytes=room)).violation(_alleles(row))
        assert (violation is None) == fits, violation


def test_what_a_device_has_decides() -> None:
    space = _space((4096, 4096, 4096), HOPPER)
    refused = [row for row in _REPORTED if row[0] >= 64 and space.violation(_alleles(row))]
    assert refused == [r for r in _REPORTED if r[0] >= 64 and r[-1] > HOPPER.shared_bytes]
    assert len(refused) == 6


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_what_is_tried_first_is_legal_and_varied(size: tuple[int, int, int]) -> None:
    problem, route = _found(size)
    (workload,) = problem.workloads
    space = route.space(workload, HOPPER)
    seeds = [proposal.genome for proposal in route.seeds(workload, HOPPER)]
    assert 4 <= len(seeds) <= 8
    assert len(set(seeds)) == len(seeds)
    assert all(space.violation(genome) is None for genome in seeds)
    assert len({(genome["block_m"], genome["block_n"]) for genome in seeds}) >= 2


def _first(size: tuple[int, int, int], device: DeviceLimits = HOPPER) -> list[Genome]:
    problem, route = _found(size)
    return [proposal.genome for proposal in route.seeds(problem.workloads[0], device)]


def test_a_large_product_starts_with_large_tiles_taken_in_turn() -> None:
    best = _first((4096, 4096, 4096))[0]
    tile = [best[f"block_{axis}"] for axis in "mnk"]
    assert (tile, best["num_warps"], best["num_stages"]) == ([128, 256, 64], 8, 4)
    assert best["persistent"] is best["store_descriptor"] is best["flatten"] is True
    assert best["load"] == "descriptor"


def test_a_product_of_few_rows_starts_with_deep_steps_and_pieces_of_k() -> None:
    seeds = _first((64, 14336, 4096))
    assert all(genome["block_m"] in (32, 64) for genome in seeds)
    assert seeds[0]["block_k"] == 128
    assert seeds[0]["persistent"] is False
    assert {genome["split_k"] for genome in seeds} > {1}


def test_a_device_with_less_shared_memory_starts_with_what_fits_there() -> None:
    small, size = replace(HOPPER, shared_bytes=167_936), (4096, 4096, 4096)
    space, seeds = _space(size, small), _first(size, small)
    assert len(seeds) >= 4
    assert all(space.violation(genome) is None for genome in seeds)
    assert any(space.violation(genome) for genome in _first(size))
