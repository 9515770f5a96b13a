"""Encoding tensor maps (TMA descriptors) by the driver."""

from __future__ import annotations

import ctypes
from typing import Any

from kernelarc.genomes.kernels import TensorMap

_BYTES = 128
_KINDS = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
    "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8", "float4_e2m1": "UINT8",
    "float4_e2m1fn_x2": "UINT8", "int8": "UINT8", "bool": "UINT8", "int16": "UINT16",
}  # fmt: skip
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
_INTERLEAVES = {0: "NONE", 16: "16B", 32: "32B"}
_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}


class TensorMapError(Exception):
    """The driver refuses a descriptor."""


def encoded(driver: Any, wanted: TensorMap, address: int) -> bytes:
    """Return the 128 bytes of a descriptor over an address.

    Raises:
        TensorMapError: The driver refuses it; the message says what was asked.
    """
    rank = len(wanted.extents)

    def wide(values: tuple[int, ...]) -> list[Any]:
        return [driver.cuuint64_t(value) for value in values]

    def narrow(values: tuple[int, ...]) -> list[Any]:
        return [driver.cuuint32_t(value) for value in values]

    status, found = driver.cuTensorMapEncodeTiled(
        _member(driver.CUtensorMapDataType, f"DATA_TYPE_{_KINDS[wanted.dtype]}"),
        rank,
        address,
        wide(wanted.extents),
        wide(wanted.strides),
        narrow(wanted.box),
        narrow(wanted.element_strides or (1,) * rank),
        _member(driver.CUtensorMapInterleave, f"INTERLEAVE_{_INTERLEAVES[wanted.interleave]}"),
        _member(driver.CUtensorMapSwizzle, f"SWIZZLE_{_SWIZZLES[wanted.swizzle]}"),
        _member(driver.CUtensorMapL2promotion, f"L2_PROMOTION_{_PROMOTIONS[wanted.l2_promotion]}"),
        _member(
            driver.CUtensorMapFloatOOBfill,
            "FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA" if wanted.nan_fill else "FLOAT_OOB_FILL_NONE",
        ),
    )
    if int(status) != 0:
        raise TensorMapError(
            f"tensor map over {wanted.source.name!r} refused ({status.name}): extents "
            f"{wanted.extents}, strides {wanted.strides}, box {wanted.box}, swizzle "
            f"{wanted.swizzle}"
        )
    return ctypes.string_at(int(found.getPtr()), _BYTES)


def _member(enumeration: Any, name: str) -> Any:
    return getattr(enumeration, f"CU_TENSOR_MAP_{name}")
