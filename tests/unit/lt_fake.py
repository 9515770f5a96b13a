"""A cuBLASLt binding that answers like none that exists: other ids, other numbers, other counts.

It reads and writes the memory that it is given, as the real one does.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np


class MatmulTile(IntEnum):
    TILE_UNDEFINED = 0
    TILE_24x40 = 3
    TILE_48x40 = 5
    TILE_48x80 = 6


class MatmulStages(IntEnum):
    STAGES_UNDEFINED = 0
    STAGES_32xAUTO = 4
    STAGES_96x3 = 9


class ClusterShape(IntEnum):
    SHAPE_AUTO = 0
    SHAPE_1x1x1 = 1
    SHAPE_3x1x1 = 2
    SHAPE_1x5x1 = 7


class MatmulInnerShape(IntEnum):
    UNDEFINED = 0
    ODD = 6


class FakeLtError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


UNKNOWN_TILE = 9001
CAPABILITIES: dict[int, dict[int, Any]] = {
    # splitk, reductions, swizzle, batch, out of place, tiles, customs, epilogues, stages
    700: {0: 1, 1: 6, 2: 0, 3: 1, 4: 1, 6: [3, 5, 6, UNKNOWN_TILE], 7: 4, 12: 1, 13: [4, 9]},
    701: {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 6: [3], 7: 0, 12: 1, 13: []},
    702: {0: 1, 1: 2, 2: 0, 3: 1, 4: 1, 6: [], 7: 2, 12: 1, 13: []},
}
_CONFIG_TYPES = (
    np.int32, np.uint32, np.int32, np.uint32, np.uint32, np.uint32, np.uint32, np.uint16, np.uint16
)  # fmt: skip
HEURISTIC = (700, 5, 1, 0, 0, 2, 9, 0, 7)
ALONE = (701, 3, 1, 0, 1, 0, 0, 0, 0)


def legal(values: Sequence[int]) -> bool:
    """Decide legality: algorithm 702 never, clusters only with deep stages, odd customs not."""
    algo, tile, splitk, scheme, _, custom, stages, _, cluster = values
    if algo == 702:
        return False
    if algo == 700:
        fits = cluster in {1, 7} if stages == 9 else cluster == 1
        return fits and custom % 2 == 0 and tile != 3 and (splitk <= 6 or scheme == 2)
    return True


class FakeLt:
    """The module. ``checks`` counts the calls of the legality oracle."""

    MatmulTile, MatmulStages = MatmulTile, MatmulStages
    ClusterShape, MatmulInnerShape = ClusterShape, MatmulInnerShape
    matmul_heuristic_result_dtype = np.dtype(
        [
            ("algo", [("data_", "<u8", (8,))]),
            ("workspace_size", "<u8"),
            ("state", "<i4"),
            ("waves_count", "<f4"),
            ("reserved", "<i4", (4,)),
        ]
    )

    def __init__(self, version: int = 990100, rule: Callable[[Sequence[int]], bool] = legal):
        self.version, self.rule = version, rule
        self.checks = 0
        self._next = 1
        self.attributes: dict[tuple[int, int], int] = {}

    def get_version(self) -> int:
        return self.version

    def get_matmul_algo_config_attribute_dtype(self, attribute: int) -> Any:
        return _CONFIG_TYPES[attribute]

    def get_matmul_algo_cap_attribute_dtype(self, attribute: int) -> Any:
        return np.uint32 if attribute in {1, 2, 6, 12, 13} else np.int32

    def _made(self, *_: Any) -> int:
        self._next += 1
        return self._next

    matmul_desc_create = matrix_layout_create = matmul_preference_create = _made

    def _gone(self, owner: int) -> None:
        del owner

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = _gone

    def _set(self, owner: int, attribute: int, address: int, size: int) -> None:
        raw = ctypes.string_at(address, size)
        self.attributes[owner, attribute] = int.from_bytes(raw, "little")

    matmul_desc_set_attribute = matrix_layout_set_attribute = _set
    matmul_preference_set_attribute = _set

    def matmul_algo_get_ids(self, *_: Any) -> tuple[int, ...]:
        return (*CAPABILITIES, 703)

    def matmul_algo_init(self, *arguments: Any) -> None:
        algo, address = arguments[-2:]
        if algo not in CAPABILITIES:
            raise FakeLtError(15)
        self._write(address, (algo, 0, 1, 0, 0, 0, 0, 0, 0))

    @staticmethod
    def _write(address: int, values: Sequence[int]) -> None:
        packed = struct.pack("<9i", *values)
        ctypes.memmove(address, packed + bytes(64 - len(packed)), 64)

    @staticmethod
    def _read(address: int) -> tuple[int, ...]:
        return struct.unpack("<9i", ctypes.string_at(address, 36))

    def matmul_algo_cap_get_attribute(
        self, blob: int, attribute: int, address: int, size: int, written: int
    ) -> None:
        value = CAPABILITIES[self._read(blob)[0]][attribute]
        values = value if isinstance(value, list) else [value]
        packed = struct.pack(f"<{len(values)}i", *values)
        ctypes.memmove(written, struct.pack("<Q", len(packed)), 8)
        if size:
            ctypes.memmove(address, packed, min(size, len(packed)))

    def matmul_algo_config_set_attribute(
        self, blob: int, attribute: int, address: int, size: int
    ) -> None:
        if size != np.dtype(_CONFIG_TYPES[attribute]).itemsize:
            raise FakeLtError(7)
        values = list(self._read(blob))
        values[attribute] = int.from_bytes(ctypes.string_at(address, size), "little")
        self._write(blob, values)

    def matmul_algo_config_get_attribute(
        self, blob: int, attribute: int, address: int, size: int, written: int
    ) -> None:
        del written
        packed = self._read(blob)[attribute].to_bytes(size, "little")
        ctypes.memmove(address, packed, size)

    def matmul_algo_check(self, *arguments: Any) -> None:
        self.checks += 1
        values = self._read(arguments[-2])
        if not self.rule(values):
            raise FakeLtError(15)
        needed = 0 if values[2] == 1 else values[2] << 20
        self._result(arguments[-1], values, needed)

    def _result(self, address: int, values: Sequence[int], needed: int) -> None:
        self._write(address, values)
        ctypes.memmove(address + 64, struct.pack("<Qif4i", needed, 0, 0.5, 0, 0, 0, 0), 32)

    def matmul_algo_get_heuristic(self, *arguments: Any) -> None:
        preference, _, results, count = arguments[-4:]
        limited = self.attributes.get((preference, 0), 0) == 1
        algo = self._read(results)[0] if limited else 700
        rows = {700: [HEURISTIC, HEURISTIC], 701: [ALONE]}.get(algo, [])
        for place, row in enumerate(rows):
            self._result(results + 96 * place, row, 0)
        ctypes.memmove(count, struct.pack("<i", len(rows)), 4)
