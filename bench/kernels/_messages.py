"""What session, compile processes and device worker say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kernelarc.genomes import Genome, LtRow, Operator, Workload
from kernelarc.genomes.kernels import Build, DeviceLimits, KernelRoute

FIRST_HEURISTIC, TORCH_EAGER, TORCH_COMPILED = "first heuristic", "torch eager", "torch compile"
OWN_CONFIGURATION, OWN_SEED = "own configuration", "own"
"""The baseline of a route whose first seed is what the user runs today, and how that is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTask:
    """A workload as the worker needs it.

    Attributes:
        in_place: Whether an output may be written into the buffer of an input.
        cache: ``"cold"`` or ``"warm"``.
        deterministic: Whether two runs must agree bit for bit.
    """

    operator: Operator
    workload: Workload
    in_place: bool = False
    cache: str = "cold"
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class PlanContender:
    """Compiled kernels to be judged.

    Attributes:
        build: The kernels, and how they are launched.
        anew: Whether they are judged even if their launches come to what was judged before.
    """

    build: Build
    anew: bool = False


@dataclass(frozen=True, slots=True)
class LtContender:
    """An attribute row of cuBLASLt to be judged."""

    row: LtRow


@dataclass(frozen=True, slots=True)
class BaselineContender:
    """What the user would run: ``FIRST_HEURISTIC``, or a name of torch's (``torch_names``)."""

    name: str


Contender: TypeAlias = PlanContender | LtContender | BaselineContender


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedBaseline:
    """What came of a baseline that was tried alone.

    Attributes:
        latency_us: Of one call, the least of a few; None where it cannot run.
        cause: Why it cannot run, one line; empty where it can.
        wrong: Where its result is off by more than the workload allows, how, one line.
    """

    latency_us: float | None = None
    cause: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReply:
    """What the device is: limits for spaces, and which baselines it can run by workload."""

    limits: DeviceLimits
    baselines: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One genome to be built. The route travels once; later requests name its number."""

    ticket: int
    route: int
    workload: Workload
    genome: Genome
    arch: str
    new_route: KernelRoute | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """What came of a request: a build, or a failure class with one line.

    Attributes:
        seconds: What it cost.
        leaving: The process has grown and ends after this.
        unusable: The route itself could not be loaded: no genome of it will ever be built.
    """

    ticket: int
    build: Build | None = None
    failure: str | None = None
    message: str = ""
    seconds: float = 0.0
    leaving: bool = False
    unusable: bool = False
