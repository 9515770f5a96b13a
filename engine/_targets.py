"""From what the user named to a device and a problem."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kernelarc.bench import CpuDevice, Device, ReplayDevice
from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import InputError, Problem, builtin_operators, builtin_problem, nearest

DEVICES = ("cpu", "replay")
_RECORDINGS = (".json", ".json.gz", ".gz")


@dataclass(frozen=True, slots=True)
class Target:
    """What a campaign works on.

    Attributes:
        device: Where.
        problem: What.
        files: Files the device reads, for the campaign's record.
    """

    device: Device
    problem: Problem


def resolve_target(settings: CampaignSettings) -> Target:
    """Find out what the target is: a recorded space, or a built-in operator on a device.

    Raises:
        InputError: There is no such operator, file or device, or they do not go together.
        MissingPartError: The device or toolchain is missing.
    """
    name = settings.target
    if _is_path(name):
        return _recording(settings)
    operators = builtin_operators()
    if name not in operators:
        raise InputError(
            f"unknown target {name!r}: neither a built-in operator{nearest(name, operators)} "
            f"nor a file"
        )
    if settings.device == "replay":
        raise InputError("device 'replay' needs a recorded space (.json or .json.gz) as target")
    device = _device(settings.device or "cpu")
    return Target(device, builtin_problem(name, settings.axes, options=settings.options))


def device_for(settings: CampaignSettings) -> Device:
    """Return the device of a campaign that is resumed or verified; its problem is in the store.

    Raises:
        InputError: The recorded space that answered is gone.
        MissingPartError: The device or toolchain is missing.
    """
    if _is_path(settings.target):
        return ReplayDevice(Path(settings.target))
    return _device(settings.device or "cpu")


def _is_path(name: str) -> bool:
    return name.endswith(_RECORDINGS) or os.sep in name or Path(name).exists()


def _device(name: str) -> Device:
    if name == "cpu":
        return CpuDevice()
    raise InputError(f"unknown device {name!r}{nearest(name, DEVICES)}")


def _recording(settings: CampaignSettings) -> Target:
    if settings.device not in {None, "replay"}:
        raise InputError(
            f"a recorded space answers on device 'replay' only, not on {settings.device!r}"
        )
    if settings.axes or settings.options:
        raise InputError(f"{settings.target}: a recorded space has its axes fixed; drop --set")
    device = ReplayDevice(Path(settings.target))
    return Target(device, device.problem)
