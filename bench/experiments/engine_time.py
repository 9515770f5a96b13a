"""The engine's own time per candidate: run by hand on a quiet machine.

    python -m kernelarc.bench.experiments.engine_time [--evaluations N] [--models] [-o OUT.json]

The device is a formula that costs microseconds, so all the time measured is the engine's, its
islands' and the store's. Figures: the total over the count, percentiles over rounds of eight
candidates, and the first thousand against the last; each by the clock on the wall and in seconds of
the processor. Where other programs share the machine, the latter are the engine's.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench.experiments._formula import FormulaDevice, ridge
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, Observer, Progress, run


class RoundTimes(Observer):
    """Notes when rounds begin and how many evaluations there were.

    Attributes:
        wall: Seconds on the wall, one number a round.
        cpu: Seconds of the processor.
        evaluated: Evaluations so far.
    """

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.evaluated: list[int] = []

    def on_progress(self, progress: Progress) -> None:
        """Note one round."""
        if progress.stage == "search":
            self.wall.append(time.perf_counter())
            self.cpu.append(time.process_time())
            self.evaluated.append(progress.evaluated)


def per_candidate(seconds: list[float], evaluated: list[int]) -> dict[str, float]:
    """Return milliseconds a candidate: in all, by round, at the beginning and at the end."""
    at, count = np.array(seconds), np.array(evaluated)
    rounds = np.diff(at) / np.diff(count)
    # A short campaign is its own first and last thousand.
    early, late = np.searchsorted(count, [min(1000, count[-1]), max(count[-1] - 1000, 0)])
    found = {
        "total_over_count_ms": (at[-1] - at[0]) / count[-1],
        "p50_ms": np.median(rounds),
        "p99_ms": np.quantile(rounds, 0.99),
        "first_thousand_ms": (at[early] - at[0]) / count[early],
        "last_thousand_ms": (at[-1] - at[late]) / (count[-1] - count[late]),
    }
    return {name: round(float(value) * 1e3, 4) for name, value in found.items()}


def measure(evaluations: int, *, models: bool, store: Path) -> dict[str, Any]:
    """Run one campaign and return its times in milliseconds per candidate."""
    space, formula = ridge(genes=12, alleles=8)
    device = FormulaDevice(space, formula, samples=20)
    times = RoundTimes()
    settings = CampaignSettings(
        target="formula", budget=evaluations, seed=1, store=str(store), models=models
    )
    result = run(settings, device=device, problem=device.problem(), observer=times)
    return {
        "evaluations": result.evaluations.unique,
        "models": models,
        "awake": 7,
        "wall": per_candidate(times.wall, times.evaluated),
        "cpu": per_candidate(times.cpu, times.evaluated),
        "best": result.best.objective if result.best else None,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "store_mb": round(store.stat().st_size / 1e6, 2),
    }


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=20_000)
    parser.add_argument("--models", action="store_true")
    output_option(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "engine_time.db"
        keep(measure(asked.evaluations, models=asked.models, store=store), asked.output)


if __name__ == "__main__":
    main()
