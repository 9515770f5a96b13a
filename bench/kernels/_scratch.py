"""Scratch memory of one device: one block that all contenders use in turn, between bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.cuda._arena import BAND_BYTES
from kernelarc.bench.cuda._kernels import BAND_BYTE
from kernelarc.genomes.kernels import Scratch, Zeroing

_ALIGNMENT = 1024
_POISON = 0xFF
_LEAST_BYTES = 1 << 20


@dataclass(slots=True)
class PlacedScratch:
    """Scratch buffers of one contender where they lie.

    Attributes:
        addresses: By name.
        clears: Memsets that are part of every call.
        bands: Device array of guard band addresses, or None where there are none.
        block: Keeps the memory alive.
    """

    addresses: dict[str, int]
    clears: list[Callable[[], None]]
    bands: Any
    block: Any
    _places: list[tuple[int, int, Zeroing]]
    _band_places: list[int]
    _memory: ScratchMemory
    _maps: list[Any] = field(default_factory=list)

    def guard(self) -> None:
        """Poison, zero and band the buffers for a checked run."""
        for place in self._band_places:
            self._memory.fill(place, BAND_BYTE, BAND_BYTES)
        for place, nbytes, zeroing in self._places:
            self._memory.fill(place, 0 if zeroing is Zeroing.ONCE else _POISON, nbytes)

    def keep(self, content: bytes) -> int:
        """Put bytes into device memory that lives as long as this, and return their address."""
        self._maps.append(self._memory.held(content))
        return int(self._maps[-1].data.ptr)


class ScratchMemory:
    """Hands out scratch memory; every contender finds the same block.

    Args:
        cupy: The module.
        stream: All work goes there.
    """

    def __init__(self, cupy: Any, stream: Any) -> None:
        self._cp, self._stream = cupy, stream
        self._block: Any = None

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Set bytes on the stream."""
        if nbytes:
            self._cp.cuda.runtime.memsetAsync(address, value, nbytes, self._stream.ptr)

    def held(self, content: bytes) -> Any:
        """Return a device array that holds these bytes."""
        return self._uploaded(np.frombuffer(content, dtype=np.uint8))

    def _uploaded(self, values: NDArray[Any]) -> Any:
        with self._stream:
            return self._cp.array(values)

    def place_bytes(self, nbytes: int) -> PlacedScratch:
        """Place one buffer called ``workspace``."""
        return self.place((Scratch(name="workspace", nbytes=nbytes),))

    def place(self, buffers: Sequence[Scratch]) -> PlacedScratch:
        """Place buffers between guard bands."""
        # What is zeroed only once must not be written by the contenders that run in between.
        own = any(buffer.zeroing is Zeroing.ONCE for buffer in buffers)
        block = self._block_of(sum(self._span(buffer.nbytes) for buffer in buffers), own)
        start = int(block.ptr) + (-int(block.ptr)) % _ALIGNMENT
        addresses: dict[str, int] = {}
        places, bands, clears = [], [], []
        for buffer in buffers:
            place = start + BAND_BYTES
            addresses[buffer.name] = place
            places.append((place, buffer.nbytes, buffer.zeroing))
            bands += [start, place + buffer.nbytes]
            if buffer.zeroing is Zeroing.CALL:
                clears.append(self._clear(place, buffer.nbytes))
            start += self._span(buffer.nbytes)
        return PlacedScratch(
            addresses=addresses,
            clears=clears,
            bands=self._uploaded(np.array(bands, dtype=np.uint64)) if bands else None,
            block=block,
            _places=places,
            _band_places=bands,
            _memory=self,
        )

    def _clear(self, place: int, nbytes: int) -> Callable[[], None]:
        return lambda: self.fill(place, 0, nbytes)

    @staticmethod
    def _span(nbytes: int) -> int:
        return BAND_BYTES + -(-nbytes // _ALIGNMENT) * _ALIGNMENT + BAND_BYTES

    def _block_of(self, nbytes: int, own: bool) -> Any:
        """Return memory of so many bytes: the shared block, grown where needed, or a new one."""
        wanted = max(nbytes, _LEAST_BYTES) + _ALIGNMENT
        if own:
            return self._cp.cuda.alloc(wanted)
        if self._block is None or self._block.mem.size < wanted:
            self._block = self._cp.cuda.alloc(wanted)
        return self._block
