"""Random streams: one per (campaign seed, island, workload, round, attempt), never stored."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """Return the generator that belongs to a path below the campaign's seed.

    The same seed and path give the same stream in every process and on every machine, so a
    resumed campaign needs no saved generator state.
    """
    key = tuple(part if isinstance(part, int) else zlib.crc32(part.encode()) for part in path)
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=key))
