"""The hint of a product's grid: arithmetic that orders tile shapes, and nothing more."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kernelarc.genomes import Choice, GridHint, MatmulJob, Space

JOB = MatmulJob(m=256, n=2560, k=2560, dtype="bfloat16", out_dtype="bfloat16")
HINT = GridHint.of(JOB, 132)


def cost(high: int, wide: int, splitk: int = 1) -> float:
    return HINT({"tile_m": high, "tile_n": wide, "splitk": splitk})


def test_a_grid_that_fills_the_device_once_is_the_cheapest() -> None:
    # 32 x 4 tiles of 80 x 64 are 128 of 132; 88 x 64 wastes some; 72 x 64 takes a second wave.
    assert cost(80, 64) < cost(88, 64) < cost(72, 64)


def test_many_small_tiles_load_more_than_few_large_ones() -> None:
    big = GridHint.of(MatmulJob(m=8192, n=8192, k=64, dtype="float16", out_dtype="float16"), 132)
    small = {"tile_m": 16, "tile_n": 64, "splitk": 1}
    assert big({"tile_m": 128, "tile_n": 256, "splitk": 1}) < big(small)


def test_splitting_pays_only_where_the_contraction_is_long() -> None:
    assert cost(80, 64, 2) > cost(80, 64)
    deep = GridHint.of(MatmulJob(m=256, n=256, k=65536, dtype="float16", out_dtype="float16"), 132)
    tile = {"tile_m": 128, "tile_n": 64}
    assert deep({**tile, "splitk": 16}) < deep({**tile, "splitk": 1})


def test_a_tile_of_unknown_shape_is_a_poor_guess_and_no_error() -> None:
    assert cost(0, 9001) > cost(128, 128)


@pytest.fixture
def space() -> Space:
    genes = [Choice(name=n, options=(64, 80, 128)) for n in ("tile_m", "tile_n")]
    return Space("r", [*genes, Choice(name="splitk", options=(1, 2, 4))], hint=HINT)


def test_a_space_keeps_its_hint_in_parts_and_in_other_processes(space: Space) -> None:
    for other in (
        space.pin({"tile_n": 64}),
        space.relabelled({}),
        pickle.loads(pickle.dumps(space)),
    ):
        assert other.hint == HINT


def test_a_hint_refuses_nothing(space: Space) -> None:
    rng = np.random.default_rng(1)
    assert len({space.sample(rng).fingerprint for _ in range(400)}) == space.size().legal == 27
