"""A fast seal over inputs: whether a candidate changed what it was only to read.

A random weighted sum of the bytes modulo 2^64, per piece. A change that was not made to match
the weights, which nobody knows beforehand, goes unseen with a chance below 2^-32. Made at the
speed of memory, where a cryptographic digest would cost more than the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_PIECE = 8192  # words of eight bytes


class Seal:
    """Seals arrays with weights of its own, and tells later which of them changed."""

    def __init__(self, arrays: Mapping[str, NDArray[np.generic]], rng: np.random.Generator) -> None:
        self._weights = rng.integers(1, 2**63, size=_PIECE, dtype=np.uint64) * 2 + 1
        self._arrays = dict(arrays)
        self._sums = {name: self._sum(array) for name, array in self._arrays.items()}

    def broken(self) -> tuple[str, ...]:
        """Return the names of the arrays whose bytes differ from when they were sealed."""
        return tuple(
            name
            for name, array in self._arrays.items()
            if not np.array_equal(self._sum(array), self._sums[name])
        )

    def _sum(self, array: NDArray[np.generic]) -> NDArray[np.uint64]:
        flat = array.reshape(-1).view(np.uint8)
        words = flat[: flat.size // 8 * 8].view(np.uint64)
        whole = words.size // _PIECE * _PIECE
        tail = words[whole:]
        sums = np.empty(whole // _PIECE + 2, dtype=np.uint64)
        np.matmul(words[:whole].reshape(-1, _PIECE), self._weights, out=sums[:-2])
        sums[-2] = tail @ self._weights[: tail.size] if tail.size else 0
        rest = np.zeros(8, dtype=np.uint8)
        rest[: flat.size % 8] = flat[flat.size // 8 * 8 :]
        sums[-1] = rest.view(np.uint64)[0]
        return sums
