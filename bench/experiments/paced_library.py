"""How long a device waits for the engine: a library search at an H200's pace, without a GPU.

    python -m kernelarc.bench.experiments.paced_library [--seconds S | --budget N] [-o OUT.json]

Session, protocol and worker process are those of ``cuda:N``; only what the worker runs is a
stand-in that sleeps as long as a candidate, a check or a contest took on the GPU
(``_paced_bench``). Figures: the share of the wall time in which the worker had nothing to do, and
evaluations by then. With a budget it answers at once: seconds of the processor are then the
engine's, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import cProfile
import resource
import tempfile
import time
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kernelarc.bench import Device, DeviceLock, Session
from kernelarc.bench.cuda import CudaSession
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import Candidate, Environment, Problem, matmul_target
from kernelarc.storage import open_reader

_ROWS = (256, 512, 586, 1024, 1571, 2048, 4096, 7976, 8192)
_BENCH = "kernelarc.bench.experiments._paced_bench:"


class PacedDevice(Device):
    """Opens the session of ``cuda:N`` with a worker that sleeps."""

    name, deterministic = "paced", False

    def __init__(self, bench: str) -> None:
        self._bench = bench

    def environment(self) -> Environment:
        """Return the stand-in's identity."""
        return Environment(identity={"device": "paced stand-in"}, observations={})

    def open(self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0) -> Session:
        """Start a worker."""
        del artefacts, margin
        lock = DeviceLock(self.name).acquire()
        return CudaSession(self.name, 0, problem, seed=seed, lock=lock, bench=_BENCH + self._bench)


def measure(
    bench: str, limits: Mapping[str, Any], folder: Path, profile: Path | None
) -> dict[str, Any]:
    """Run one campaign over nine products; return what it took."""
    problem = matmul_target([{"M": m, "N": 2560, "K": 2560} for m in _ROWS], {"residual": True})
    store = folder / "paced.sqlite"
    settings = CampaignSettings(target="matmul", seed=0, store=str(store), audit_rounds=5, **limits)
    begun, profiler = time.process_time(), cProfile.Profile()
    if profile is not None:
        profiler.enable()
    result = run(settings, device=PacedDevice(bench), problem=problem)
    if profile is not None:
        profiler.disable()
        profiler.dump_stats(profile)
    spent = time.process_time() - begun
    with open_reader(str(store)) as reader:
        (searched,) = [e.payload for e in reader.events(1) if e.kind == "searched"]
        log = blake2b(digest_size=8)
        for _, entry in reader.log(1):
            if isinstance(entry, Candidate):
                log.update(f"{entry.workload} {entry.genome.canonical}".encode())
    counts = result.evaluations
    return {
        **searched,
        "idle_share": round(float(searched["idle_s"]) / float(searched["seconds"]), 4),
        "unique": counts.unique,
        "asked": counts.asked,
        "rejected": counts.rejected,
        "best_us": {best.workload.split()[0]: round(best.objective, 3) for best in result.bests},
        "asked_hash": log.hexdigest(),
        "engine_cpu_s": round(spent, 2),
        "engine_cpu_ms_a_candidate": round(1e3 * spent / counts.unique, 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--budget", type=int, help="evaluations instead of seconds, of a device that takes no time"
    )
    parser.add_argument("--profile", type=Path, help="where to write what cProfile found")
    output_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.budget is None:
            bench, limits = "PacedBench", {"seconds": arguments.seconds}
        else:
            bench, limits = "HurriedBench", {"budget": arguments.budget}
        figures = measure(bench, limits, Path(folder), arguments.profile)
    keep(figures, arguments.output)


if __name__ == "__main__":
    main()
