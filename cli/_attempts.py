"""Baselines that are being tried, in words."""

from __future__ import annotations

from kernelarc.cli._text import duration, quantity
from kernelarc.genomes import BaselineAttempt


def attempt_begun(attempt: BaselineAttempt) -> str:
    """Say what is being tried, for which workload, and how long that may take."""
    doing = "compiling" if attempt.compiles else "trying"
    return (
        f"{doing} the baseline {attempt.name} for {attempt.workload} "
        f"({attempt.number} of {attempt.of}, at most {duration(attempt.limit_s)})"
    )


def attempt_ended(attempt: BaselineAttempt) -> str:
    """Say what came of it, and what it took."""
    found = attempt.cause or (
        "no time was taken" if attempt.latency_us is None else quantity(attempt.latency_us, "us")
    )
    off = f", off by more than the workload allows ({attempt.wrong})" if attempt.wrong else ""
    took = "" if attempt.seconds is None else f"; took {duration(attempt.seconds)}"
    return f"the baseline {attempt.name} for {attempt.workload}: {found}{off}{took}"
