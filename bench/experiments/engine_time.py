"""The engine's own time per candidate: run by hand on a quiet machine.

    python -m kernelarc.bench.experiments.engine_time [--evaluations N] [--models] [-o OUT.json]

The device is a formula that costs microseconds, so all the time measured is the engine's, its
islands' and the store's. Figures: the total over the count, percentiles over rounds of eight
candidates, and the first thousand against the last.
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
from kernelarc.bench.experiments._machine import keep
from kernelarc.engine import CampaignSettings, Observer, Progress, run


class RoundTimes(Observer):
    """Notes when rounds begin and how many evaluations there were."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.evaluated: list[int] = []

    def on_progress(self, progress: Progress) -> None:
        """Note one round."""
        if progress.stage == "search":
            self.seconds.append(time.perf_counter())
            self.evaluated.append(progress.evaluated)


def measure(evaluations: int, *, models: bool, store: Path) -> dict[str, Any]:
    """Run one campaign and return its times in milliseconds per candidate."""
    space, formula = ridge(genes=12, alleles=8)
    device = FormulaDevice(space, formula, samples=20)
    times = RoundTimes()
    settings = CampaignSettings(
        target="formula", budget=evaluations, seed=1, store=str(store), models=models
    )
    result = run(settings, device=device, problem=device.problem(), observer=times)
    seconds, evaluated = np.array(times.seconds), np.array(times.evaluated)
    per_round = np.diff(seconds) / np.diff(evaluated) * 1e3
    thousands = np.searchsorted(evaluated, [1000, evaluated[-1] - 1000])
    total = (seconds[-1] - seconds[0]) / evaluated[-1] * 1e3
    first = (seconds[thousands[0]] - seconds[0]) / evaluated[thousands[0]] * 1e3
    last = (seconds[-1] - seconds[thousands[1]]) / (evaluated[-1] - evaluated[thousands[1]]) * 1e3
    return {
        "evaluations": result.evaluations.unique,
        "models": models,
        "awake": 7,
        "total_over_count_ms": round(float(total), 4),
        "p50_ms": round(float(np.median(per_round)), 4),
        "p99_ms": round(float(np.quantile(per_round, 0.99)), 4),
        "first_thousand_ms": round(float(first), 4),
        "last_thousand_ms": round(float(last), 4),
        "best": result.best.objective if result.best else None,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "store_mb": round(store.stat().st_size / 1e6, 2),
    }


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=20_000)
    parser.add_argument("--models", action="store_true")
    parser.add_argument("-o", dest="out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "engine_time.db"
        keep(measure(asked.evaluations, models=asked.models, store=store), asked.out)


if __name__ == "__main__":
    main()
