"""How long a device waits for the engine: a library search at an H200's pace, without a GPU.

    python -m kernelarc.bench.experiments.paced_library [--seconds S | --budget N] [-o OUT.json]

The session and its protocol are those of ``cuda:N``; only what the worker runs is a stand-in, which
takes as long as a candidate, a check or a contest took on the GPU (``_paced_bench``): on the clock,
in a process of its own, or, with a budget, in virtual time (``_virtual_worker``), so that other
programs on the machine do not count. Figures: the share of the time in which the worker had nothing
to do, and evaluations by then.
"""

from __future__ import annotations

import argparse
import cProfile
import resource
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kernelarc.bench import Device, DeviceLock, Session
from kernelarc.bench.cuda import CudaSession
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.bench.experiments._virtual_worker import VirtualSession
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import Candidate, Environment, Problem, matmul_target
from kernelarc.storage import open_reader

_ROWS = (256, 512, 586, 1024, 1571, 2048, 4096, 7976, 8192)
_BENCH = "kernelarc.bench.experiments._paced_bench:PacedBench"


class PacedDevice(Device):
    """Opens the session of ``cuda:N`` with a stand-in for its worker.

    Attributes:
        sessions: Those in virtual time that were opened.
    """

    name, deterministic = "paced", False

    def __init__(self, *, virtual: bool) -> None:
        self._virtual = virtual
        self.sessions: list[VirtualSession] = []

    def environment(self) -> Environment:
        """Return the stand-in's identity."""
        return Environment(identity={"device": "paced stand-in"}, observations={})

    def open(self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0) -> Session:
        """Start a worker."""
        del artefacts, margin
        lock = DeviceLock(self.name).acquire()
        if not self._virtual:
            return CudaSession(self.name, 0, problem, seed=seed, lock=lock, bench=_BENCH)
        self.sessions.append(VirtualSession(self.name, 0, problem, seed=seed, lock=lock))
        return self.sessions[-1]


def measure(limits: Mapping[str, Any], folder: Path, profile: Path | None) -> dict[str, Any]:
    """Run one campaign over nine products; return what it took."""
    problem = matmul_target([{"M": m, "N": 2560, "K": 2560} for m in _ROWS], {"residual": True})
    store = folder / "paced.sqlite"
    settings = CampaignSettings(target="matmul", seed=0, store=str(store), audit_rounds=5, **limits)
    device, profiler = PacedDevice(virtual="budget" in limits), cProfile.Profile()
    if profile is not None:
        profiler.enable()
    result = run(settings, device=device, problem=problem)
    if profile is not None:
        profiler.disable()
        profiler.dump_stats(profile)
    with open_reader(str(store)) as reader:
        (searched,) = [e.payload for e in reader.events(1) if e.kind == "searched"]
        log = blake2b(digest_size=8)
        for _, entry in reader.log(1):
            if isinstance(entry, Candidate):
                log.update(f"{entry.workload} {entry.genome.canonical}".encode())
    seconds, idle_s = float(searched["seconds"]), float(searched["idle_s"])
    if device.sessions:
        (begun_s, _), (ended_s, idle_s) = device.sessions[0].virtual.marks[:2]
        seconds = ended_s - begun_s
    counts = result.evaluations
    return {
        "time": "virtual" if device.sessions else "wall",
        "seconds": round(seconds, 3),
        "idle_s": round(idle_s, 3),
        "idle_share": round(idle_s / seconds, 4),
        "evaluations_a_second": round(counts.unique / seconds, 1),
        "unique": counts.unique,
        "asked": counts.asked,
        "rejected": counts.rejected,
        "best_us": {best.workload.split()[0]: round(best.objective, 3) for best in result.bests},
        "asked_hash": log.hexdigest(),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--budget", type=int, help="evaluations instead of seconds, in virtual time"
    )
    parser.add_argument("--profile", type=Path, help="where to write what cProfile found")
    output_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limits = {"seconds": arguments.seconds}
        if arguments.budget is not None:
            limits = {"budget": arguments.budget}
        figures = measure(limits, Path(folder), arguments.profile)
    keep(figures, arguments.output)


if __name__ == "__main__":
    main()
