"""The devices that candidates can be judged on, and whether they can be used here and now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernelarc.bench import CpuDevice, Device
from kernelarc.bench.cuda import CudaDevice
from kernelarc.genomes import KernelarcError

_NODES = Path("/dev")
_NODE = re.compile(r"nvidia\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One device.

    Attributes:
        name: What ``--device`` takes.
        missing: What is missing to use it, or None when it is ready.
        what: What it is for.
        identity: What makes its measurements comparable, where it is ready.
    """

    name: str
    missing: str | None
    what: str
    identity: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the facts as JSON values."""
        return {
            "name": self.name,
            "ready": self.missing is None,
            "missing": self.missing,
            "what": self.what,
            "identity": dict(self.identity),
        }


def devices() -> list[DeviceFacts]:
    """Return every device of this version, the default first."""
    gpus = [CudaDevice(f"cuda:{number}") for number in range(max(gpu_count(), 1))]
    return [
        _facts(CpuDevice(), "C kernels, compiled by 'cc' and timed on this machine's processor"),
        *(
            _facts(gpu, "compiled kernels (Triton, CUDA C++) and cuBLASLt on an NVIDIA GPU")
            for gpu in gpus
        ),
        DeviceFacts(
            name="replay",
            missing=None,
            what="a recorded space answers: give its file (.json, .json.gz) as TARGET",
        ),
    ]


def gpu_count() -> int:
    """Return how many NVIDIA GPUs this machine shows; makes no context."""
    return sum(1 for node in _NODES.iterdir() if _NODE.fullmatch(node.name))


def _facts(device: Device, what: str) -> DeviceFacts:
    try:
        identity = device.environment().identity
    except KernelarcError as error:
        return DeviceFacts(name=device.name, missing=str(error), what=what)
    return DeviceFacts(name=device.name, missing=None, what=what, identity=identity)
