"""The hint of the Triton products: tiles that fill the device, pipelines that fill the memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kernelarc.engine import CampaignSettings, resolve_target
from kernelarc.genomes import Space
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.routes._grid_hint import GridHint
from kernelarc.genomes.routes._tile_hint import TileHint

TILE = {"block_m": 128, "block_n": 256, "block_k": 64, "num_stages": 4, "loop_stages": 0}


def _hint(m: int, n: int, k: int) -> TileHint:
    return TileHint(GridHint(rows=n, columns=m, depth=k, batch=1, multiprocessors=132))


def test_large_tiles_of_a_large_product_are_guessed_cheaper_than_small_ones() -> None:
    hint = _hint(4096, 4096, 4096)
    assert hint(TILE) < hint({**TILE, "block_m": 64, "block_n": 64})


def test_rows_and_columns_are_not_mixed_up() -> None:
    hint = _hint(64, 14336, 4096)
    assert hint({**TILE, "block_m": 64, "block_n": 128}) < hint({**TILE, "block_n": 64})


@pytest.mark.parametrize(
    "worse", [{"num_stages": 2, "block_k": 32}, {"loop_stages": 2, "block_k": 32}]
)
def test_a_pipeline_that_holds_too_little_waits(worse: dict[str, int]) -> None:
    hint = _hint(4096, 4096, 4096)
    assert hint({**TILE, **worse}) > hint({**TILE, "num_stages": 5})


def test_addresses_of_one_s_own_cost() -> None:
    hint = _hint(4096, 4096, 4096)
    assert hint({**TILE, "load": "pointer"}) > hint({**TILE, "load": "descriptor"})
    assert hint({**TILE, "load": "descriptor"}) == hint(TILE)


def test_the_route_s_space_has_it_and_keeps_it_on_the_way_to_other_processes() -> None:
    settings = CampaignSettings(
        target="matmul", device="cuda:0", axes={"M": 64, "N": 256, "K": 512}
    )
    problem = resolve_target(settings).problem
    route = next(r for r in kernel_routes(problem.operator) if r.name == "triton")
    space = route.space(problem.workloads[0], DeviceLimits.of_arch("sm_90a"))
    again: Space = pickle.loads(pickle.dumps(space))
    assert again.hint == space.hint
    assert space.hint is not None
    assert set(space.hint.genes) <= set(space.names)
    genome = space.sample(np.random.default_rng(1))
    assert space.hint(dict(genome.items())) > 0
