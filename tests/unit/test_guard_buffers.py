"""Guard bands, poison and rotation: what a kernel did to memory is seen."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.bench import (
    GUARD_BYTES,
    GuardedBuffer,
    compare,
    last_level_cache_bytes,
    rotation_count,
)
from kernelarc.genomes import Tolerance

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool"]


def overwrite(buffer: GuardedBuffer, offset: int) -> None:
    """Change one byte of memory as a kernel can: at any address beside the tensor."""
    place = ctypes.c_uint8.from_address(buffer.address + offset)
    place.value ^= 0xFF


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_counts_what_was_not_written(dtype: str) -> None:
    """Row 1."""
    buffer = GuardedBuffer((6, 7), dtype)
    buffer.poison()
    assert buffer.unwritten() == 42
    buffer.array[0] = 1
    assert buffer.unwritten() == 35
    buffer.array[...] = 0
    assert buffer.unwritten() == 0


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_poison_never_agrees_with_a_reference(dtype: str) -> None:
    buffer = GuardedBuffer((4, 4), dtype)
    buffer.poison()
    assert np.isnan(buffer.array).all()
    found = compare(buffer.array, np.ones((4, 4)), Tolerance(), dtype=dtype)
    assert found.failure == "output not finite"


def test_poison_is_no_nan_that_arithmetic_makes() -> None:
    buffer = GuardedBuffer((3,), "float32")
    with np.errstate(invalid="ignore"):
        infinite = np.array([np.inf, np.inf, -np.inf], dtype=np.float32)
        buffer.fill(infinite - infinite)
    assert buffer.unwritten() == 0


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=0, max_size=3),
    dtype=st.sampled_from(DTYPES),
    alignment=st.sampled_from([64, 128, 4096]),
)
def test_buffers_are_aligned_whole_and_undamaged(
    shape: list[int], dtype: str, alignment: int
) -> None:
    buffer = GuardedBuffer(tuple(shape), dtype, alignment=alignment)
    assert buffer.address % alignment == 0
    assert buffer.array.flags.c_contiguous
    assert (buffer.array.shape, buffer.array.dtype) == (tuple(shape), np.dtype(dtype))
    buffer.poison()
    buffer.array[...] = 1
    assert buffer.damage() is None


@pytest.mark.parametrize("far", [1, 64, GUARD_BYTES])
def test_a_write_beside_the_tensor_is_seen_once(far: int) -> None:
    """Row 11."""
    buffer = GuardedBuffer((5,), "float32")
    overwrite(buffer, -far)
    assert buffer.damage() == "written 1 bytes before the tensor"
    overwrite(buffer, 20 + far - 1)
    assert buffer.damage() == "written 1 bytes after the tensor"
    assert buffer.damage() is None


def test_rotation_is_more_than_twice_the_cache_and_never_one() -> None:
    """Rows 14 and 21."""
    for size in (1 << 10, 12 << 20, 200 << 20):
        count = rotation_count(size, 32 << 20)
        assert count >= 2
        assert count * size > 64 << 20
    assert rotation_count(64, 32 << 20, most_bytes=1 << 20) == (1 << 20) // 64
    assert rotation_count(4 << 30, 32 << 20) == 2


def test_cache_sizes_are_read_or_assumed(tmp_path: Path) -> None:
    for index, size in ((0, "32K"), (2, "1024K"), (3, "33M")):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    assert last_level_cache_bytes(0, tmp_path) == 33 << 20
    assert last_level_cache_bytes(1, tmp_path) == 64 << 20
    assert last_level_cache_bytes() > 0
