"""Memory that tells on a kernel: guard bands around it, and poison in it.

Outputs are poisoned before every checked run, so that what was never written cannot agree with
anything. Bands of a known pattern stand before and after every tensor, so that a write beside it
is seen. Sets of tensors rotate, so that timed calls meet new addresses and a cold cache.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._numerics import numpy_dtype

GUARD_BYTES = 4096
ALIGNMENT = 64
_BAND = 0xA7
_POISON_BYTES = {2: 0x7E5A, 4: 0x7FC5A5A5, 8: 0x7FF8A5A5A5A5A5A5}  # quiet NaNs nobody computes
_WHOLE_POISON = 0x5A
_DEFAULT_CACHE_BYTES = 64 << 20


class GuardedBuffer:
    """One tensor between two guard bands, at an aligned address of its own.

    Attributes:
        array: The tensor, C-contiguous, writable, of the shape and dtype asked.
    """

    __slots__ = ("_after", "_before", "array")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        *,
        alignment: int = ALIGNMENT,
        guard_bytes: int = GUARD_BYTES,
    ) -> None:
        held = numpy_dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * held.itemsize
        block: NDArray[np.uint8] = np.empty(size + 2 * guard_bytes + alignment, dtype=np.uint8)
        start = guard_bytes + (-(block.ctypes.data + guard_bytes)) % alignment
        self._before = block[start - guard_bytes : start]
        self._after = block[start + size : start + size + guard_bytes]
        self._before[:] = _BAND
        self._after[:] = _BAND
        self.array: NDArray[np.generic] = block[start : start + size].view(held).reshape(shape)

    @property
    def address(self) -> int:
        """Address of the first element."""
        return int(self.array.ctypes.data)

    def fill(self, values: NDArray[np.generic]) -> None:
        """Copy values of the same shape in; casting to the buffer's type is allowed."""
        np.copyto(self.array, values, casting="unsafe")

    def poison(self) -> None:
        """Fill with NaN of a payload that no arithmetic makes (a byte pattern for whole types)."""
        self._bits()[...] = _poison_of(self.array.dtype)

    def unwritten(self) -> int:
        """Return how many elements still hold the poison, bit for bit."""
        return int(np.count_nonzero(self._bits() == _poison_of(self.array.dtype)))

    def damage(self) -> str | None:
        """Say how the guard bands were changed, or None. Restores them."""
        seen = [
            f"{count} bytes {side} the tensor"
            for side, band in (("before", self._before), ("after", self._after))
            if (count := int(np.count_nonzero(band != _BAND)))
        ]
        self._before[:] = _BAND
        self._after[:] = _BAND
        return "written " + " and ".join(seen) if seen else None

    def _bits(self) -> NDArray[np.generic]:
        return self.array.reshape(-1).view(f"u{self.array.dtype.itemsize}")


def _poison_of(dtype: np.dtype[np.generic]) -> int:
    if np.issubdtype(dtype, np.floating):
        return _POISON_BYTES[dtype.itemsize]
    return int.from_bytes(bytes([_WHOLE_POISON]) * dtype.itemsize, "little")


def last_level_cache_bytes(cpu: int = 0, root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the size of the largest cache that the core sees; 64 MiB where it is not told."""
    sizes = [
        int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
        for path in (root / f"cpu{cpu}" / "cache").glob("index*/size")
        if (text := path.read_text().strip()) and text[-1] in "KM"
    ]
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def rotation_count(set_bytes: int, cache_bytes: int, *, most_bytes: int = 2 << 30) -> int:
    """Return how many buffer sets to rotate over so that each is cold when its turn comes.

    At least two sets, so that addresses change between timed calls; in all more than twice the
    cache; no more than ``most_bytes`` of memory beyond those two.
    """
    wanted = 2 * cache_bytes // max(set_bytes, 1) + 1
    return max(2, min(wanted, most_bytes // max(set_bytes, 1)))
