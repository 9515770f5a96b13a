"""Drawing one whole number evenly, of any size."""

from __future__ import annotations

import numpy as np

_WORD = 1 << 63


def draw_below(total: int, rng: np.random.Generator) -> int:
    """Draw evenly from 0 to ``total - 1``; ``total`` is at least 1 and may exceed 64 bits."""
    if total <= _WORD:
        return int(rng.integers(total))
    bits = (total - 1).bit_length()
    length = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(rng.bytes(length), "little") >> (8 * length - bits)
        if drawn < total:
            return drawn
