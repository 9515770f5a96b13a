"""The fence around DEAP's randomness: its modules draw from our generator, never the global one.

DEAP's functions call the name ``random`` of their own module, which is Python's global source.
Here that name is replaced, in DEAP's modules alone, by a gate. Inside a ``fenced`` block the gate
leads to the generator given to the block; outside one, for other users of DEAP in the same
program, it leads to Python's ``random`` as before. Each thread has its own gate.
"""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from deap.tools import crossover, mutation, selection

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")
_FLOAT_BITS = 53


class GeneratorRandom(random.Random):
    """Python's ``random`` interface over a numpy generator that can be exchanged.

    Attributes:
        generator: Where numbers come from; None outside a fenced block.
    """

    generator: np.random.Generator | None = None
    gauss_next: float | None = None

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the generator was seeded by whoever made it."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        assert self.generator is not None
        return float(self.generator.random())

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        """Draw one item evenly, with one number instead of a loop over random bits."""
        assert self.generator is not None
        if not len(seq):
            raise IndexError("cannot choose from an empty sequence")
        return seq[int(self.generator.random() * len(seq))]

    def getrandbits(self, k: int, /) -> int:
        """Return a non-negative integer with ``k`` random bits."""
        assert self.generator is not None
        if k <= _FLOAT_BITS:  # many times faster than asking for bytes, and just as even
            return int(self.generator.random() * (1 << k))
        drawn = int.from_bytes(self.generator.bytes((k + 7) // 8), "little")
        return drawn >> (-k % 8)


class _Threads(threading.local):
    def __init__(self) -> None:
        self.source = GeneratorRandom()


_THREADS = _Threads()


class _Gate:
    """Stands where DEAP's modules expect the module ``random``."""

    def __getattr__(self, name: str) -> Any:
        source = _THREADS.source
        return getattr(random if source.generator is None else source, name)


for _module in (crossover, mutation, selection):
    _module.random = _Gate()


class fenced:
    """Context in which DEAP draws from ``rng``. Blocks nest; leaving one restores the outer."""

    __slots__ = ("_outer", "_rng")

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._outer: np.random.Generator | None = None

    def __enter__(self) -> None:
        source = _THREADS.source
        self._outer, source.generator = source.generator, self._rng
        source.gauss_next = None  # a pair's second half must not cross into another stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _THREADS.source.generator = self._outer
        _THREADS.source.gauss_next = None
