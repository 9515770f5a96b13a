"""What a user says of baselines, and what is told while they are tried."""

from __future__ import annotations

from dataclasses import dataclass

ALL_BASELINES, EAGER_BASELINE = "all", "eager"
"""Words in the place of names: all on offer; the reference in eager mode alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAttempt:
    """A baseline that is tried: told as that begins, and once more when it has ended.

    Attributes:
        workload: Its label.
        name: The baseline's.
        number: Which it is of those that are tried for the workload, from 1.
        of: How many these are.
        compiles: Whether it is compiled first.
        limit_s: Seconds that it may take.
        seconds: What it took; None as it begins.
        latency_us: Of one call, where it ran.
        cause: Why it could not run, one line.
        wrong: How its result misses the workload's tolerance, one line.
    """

    workload: str
    name: str
    number: int
    of: int
    compiles: bool
    limit_s: float
    seconds: float | None = None
    latency_us: float | None = None
    cause: str = ""
    wrong: str = ""
