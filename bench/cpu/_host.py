"""What this machine's processor offers to the spaces of the device ``cpu``."""

from __future__ import annotations

import platform
from pathlib import Path

from kernelarc.bench._environment import affinity, cpu_features
from kernelarc.genomes.routes import HostShape

_VECTORS = (("avx512f", 16, 32), ("avx", 8, 16), ("asimd", 4, 32))
_DEFAULT_L2_BYTES = 512 << 10


def host_shape() -> HostShape:
    """Return the figures of the cores that this process may run on."""
    features = cpu_features()
    floats, registers = next(
        ((wide, many) for feature, wide, many in _VECTORS if feature in features), (4, 16)
    )
    return HostShape(
        threads=len(affinity()),
        vector_floats=floats,
        vector_registers=registers,
        l2_bytes=_l2_bytes(affinity()[0]),
        streaming_stores=platform.machine() in {"x86_64", "AMD64"},
    )


def _l2_bytes(core: int, root: Path = Path("/sys/devices/system/cpu")) -> int:
    for index in sorted((root / f"cpu{core}" / "cache").glob("index*")):
        try:
            if (index / "level").read_text().strip() == "2":
                return int((index / "size").read_text().strip().removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return _DEFAULT_L2_BYTES
