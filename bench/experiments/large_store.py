"""A store of 100,000 evaluations: its size, the engine's memory, how long resuming takes.

    python -m kernelarc.bench.experiments.large_store [--evaluations N] [-o OUT.json]

The campaign runs in one process; it is interrupted at the end of its budget and extended by one
evaluation in a fresh process, whose time from start to first new round is the figure: by the clock
on the wall, and in seconds of the processor, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelarc.bench.experiments._formula import FormulaDevice, ridge
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, Observer, Progress, resume, run


class _FirstRound(Observer):
    """Notes when the first round is reached."""

    def __init__(self) -> None:
        self.began, self.cpu_began = time.perf_counter(), time.process_time()
        self.reached_s: float | None = None
        self.cpu_s = 0.0

    def on_progress(self, progress: Progress) -> None:
        """Note the first call."""
        if self.reached_s is None:
            self.reached_s = time.perf_counter() - self.began
            self.cpu_s = time.process_time() - self.cpu_began


def device() -> FormulaDevice:
    """Return the device that both processes use."""
    space, formula = ridge(genes=12, alleles=8)
    return FormulaDevice(space, formula, samples=20)


def fill(store: Path, evaluations: int) -> dict[str, Any]:
    """Run the campaign; return size and memory."""
    found = device()
    settings = CampaignSettings(
        target="formula", budget=evaluations, seed=1, store=str(store), models=False
    )
    began = time.perf_counter()
    run(settings, device=found, problem=found.problem())
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "store_mb": round(store.stat().st_size / 1e6, 2),
    }


def reopen(store: Path) -> dict[str, Any]:
    """Extend the campaign by one evaluation; return the time until the first new round."""
    observer = _FirstRound()
    resume(str(store), budget=1, device=device(), observer=observer)
    return {
        "first_round_s": round(observer.reached_s or 0.0, 3),
        "first_round_cpu_s": round(observer.cpu_s, 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _fresh(step: str, store: Path, evaluations: int) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, "--step", step, "--store", str(store)]
    done = subprocess.run(
        [*command, "--evaluations", str(evaluations)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Parse the command line and measure, each step in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=100_000)
    parser.add_argument("--step", choices=["fill", "reopen"])
    parser.add_argument("--store", type=Path)
    output_option(parser)
    asked = parser.parse_args()
    if asked.step == "fill":
        print(json.dumps(fill(asked.store, asked.evaluations)))
    elif asked.step == "reopen":
        print(json.dumps(reopen(asked.store)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "large.db"
            filled = _fresh("fill", store, asked.evaluations)
            again = _fresh("reopen", store, asked.evaluations)
        keep({"evaluations": asked.evaluations, "fill": filled, "resume": again}, asked.output)


if __name__ == "__main__":
    main()
