"""Filling a constrained space: of many legal samples, the one farthest from all that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Genome, Space


class Encoder:
    """Encodes genomes of one space and remembers the newest. The memory is only a cache."""

    def __init__(self, space: Space, limit: int = 4096) -> None:
        self._space = space
        self._limit = limit
        self._known: dict[str, NDArray[np.float64]] = {}

    def __call__(self, genome: Genome) -> NDArray[np.float64]:
        """Return the genome's encoding, shape (width,)."""
        found = self._known.get(genome.fingerprint)
        if found is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            found = self._known[genome.fingerprint] = self._space.encode(genome)
        return found

    def rows(self, genomes: Iterable[Genome]) -> NDArray[np.float64]:
        """Return the encodings, shape (genomes, width)."""
        rows = [self(genome) for genome in genomes]
        return np.array(rows) if rows else np.empty((0, self._space.width))


def farthest(drawn: Sequence[Genome], known: NDArray[np.float64], encoder: Encoder) -> list[Genome]:
    """Order samples by their distance to the nearest known point, the farthest first.

    Args:
        drawn: Legal samples.
        known: Encoded points to stay away from, shape (points, width); may be empty.
        encoder: Of the samples' space.
    """
    if not len(known) or not drawn:
        return list(drawn)
    rows = encoder.rows(drawn)
    gaps = ((rows[:, None, :] - known[None, :, :]) ** 2).sum(axis=2).min(axis=1)
    order = sorted(range(len(drawn)), key=lambda i: (-round(float(gaps[i]), 9), i))
    return [drawn[i] for i in order]
