"""The devices that candidates can be judged on, and whether they can be used here and now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelarc.bench import CpuDevice
from kernelarc.genomes import MissingPartError


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
    return [
        _cpu(),
        DeviceFacts(
            name="replay",
            missing=None,
            what="a recorded space answers: give its file (.json, .json.gz) as TARGET",
        ),
    ]


def _cpu() -> DeviceFacts:
    what = "C kernels, compiled by 'cc' and timed on this machine's processor"
    try:
        identity = CpuDevice().environment().identity
    except MissingPartError as error:
        return DeviceFacts(name="cpu", missing=str(error), what=what)
    return DeviceFacts(name="cpu", missing=None, what=what, identity=identity)
