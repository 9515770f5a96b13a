"""Drawing one whole number evenly, of any size."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes._errors import InputError

_WORD = 1 << 63


def demand_generator(rng: np.random.Generator) -> None:
    """Refuse what draws no random numbers.

    Raises:
        InputError: It is no ``numpy.random.Generator``.
    """
    if not isinstance(rng, np.random.Generator):
        seed = rng if type(rng) is int and rng >= 0 else "seed"
        raise InputError(
            f"rng must be a numpy Generator, for example numpy.random.default_rng({seed}), "
            f"not {rng!r}"
        )


def draw_below(total: int, rng: np.random.Generator) -> int:
    """Draw evenly from 0 to ``total - 1``; ``total`` is at least 1 and may exceed 64 bits.

    Raises:
        InputError: ``rng`` is no Generator.
    """
    demand_generator(rng)
    if total <= _WORD:
        return int(rng.integers(total))
    bits = (total - 1).bit_length()
    length = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(rng.bytes(length), "little") >> (8 * length - bits)
        if drawn < total:
            return drawn
