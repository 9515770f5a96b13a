"""What the coordinator and its worker say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelarc.genomes import Allele, Operator, Status, Workload

TIMING = "timing"
"""The stage during which the two processes' clocks are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A library's function and what it is called with."""

    name: str
    path: str
    symbol: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """First message: the problem. Answered by Ready."""

    operator: Operator
    workloads: tuple[Workload, ...]
    seed: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOrder:
    """Judge one kernel on one workload. Answered by Outcome.

    Attributes:
        limit_us: What is clearly slower may be censored; None where nothing is known.
        hang_s: A single run that lasts longer is a hang.
        floor_us: What is faster is an instrument fault.
    """

    kernel: Kernel
    workload: str
    limit_us: float | None
    hang_s: float
    floor_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestOrder:
    """Time kernels interleaved. Answered by ContestOutcome."""

    kernels: tuple[Kernel, ...]
    workload: str
    rounds: int
    baseline: bool
    hang_s: float
    floor_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOrder:
    """Which baseline is best? Answered by BaselineNamed."""

    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A sign of life: what comes next may last so long, and concerns this contender."""

    stage: str
    allowance_s: float
    contender: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The worker is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineNamed:
    """The best baseline's name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one kernel was judged.

    Attributes:
        samples: Microseconds of one launch each; empty unless the status is OK.
        loop_s: Length of the whole timing loop by the worker's clock.
        suspect: Whether this process may have been damaged and must be replaced.
    """

    status: Status
    failure: str | None = None
    message: str = ""
    samples: tuple[float, ...] = ()
    censored: bool = False
    launches: int = 1
    cache: str = "cold"
    properties: Mapping[str, Allele] = field(default_factory=dict)
    loop_s: float = 0.0
    suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestOutcome:
    """How a contest went: names, rows of microseconds, failures by name."""

    names: tuple[str, ...]
    samples: tuple[tuple[float, ...], ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The instrument itself failed (a reference that does not run, no memory for inputs)."""

    message: str
    exit_code: int
