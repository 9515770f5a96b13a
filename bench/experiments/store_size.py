"""How big, how fast: a store of 100,000 evaluations with 20 samples each.

``python -m kernelarc.bench.experiments.store_size [-n 100000]``. It prints a
table; the figures of a machine are written down in ``bench/results``.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kernelarc.genomes import (
    Axis,
    Candidate,
    Environment,
    Evaluation,
    Genome,
    Judged,
    Measurement,
    Operator,
    Problem,
    Status,
    TensorSpec,
    Verdict,
    Workload,
)
from kernelarc.storage import CampaignSpec, Event, Round, StoreWriter, open_reader, open_writer

GROUP = 64
SAMPLES = 20
GENES = (
    *("block_m", "block_n", "block_k", "micro_m", "micro_n", "vector_width", "pack_a", "pack_b"),
    *("unroll", "prefetch_distance", "threads", "stages"),
)
OPERATOR = Operator(
    name="gemm",
    axes={"M": Axis(name="M", kind="var")},
    inputs=(TensorSpec(name="A", shape=("M",), dtype="float32"),),
    outputs=(TensorSpec(name="C", shape=("M",), dtype="float32"),),
)
WORKLOAD = Workload(operator=OPERATOR.fingerprint, axes={"M": 1024})
SPEC = CampaignSpec(
    target="gemm",
    device="cpu",
    seed=0,
    problem=Problem(operator=OPERATOR, workloads=(WORKLOAD,)),
    settings={},
)
HERE = Environment(identity={"cpu": "any"})

Group = tuple[list[Round | Candidate], list[Judged]]


def groups(n: int, rng: np.random.Generator) -> Iterator[Group]:
    """Yield rounds of ``GROUP`` candidates and their evaluations, as wide as real ones."""
    parents: tuple[str, ...] = ()
    for number in range(n // GROUP):
        asked: list[Round | Candidate] = [Round(number=number, counts={"memory": {"asked": 8}})]
        told: list[Judged] = []
        for place in range(GROUP):
            genome = Genome(
                "cpu",
                {name: int(2 ** rng.integers(0, 10)) for name in GENES}
                | {"loop_order": "ikj", "flags": "-O3 -ffast-math"},
            )
            candidate = Candidate(
                number=number * GROUP + place,
                round=number,
                workload=WORKLOAD.fingerprint,
                island="tensor_core",
                mutation="area_move",
                genome=genome,
                parents=parents,
            )
            asked.append(candidate)
            told.append(_judged(candidate, rng))
            parents = (*parents[-1:], genome.fingerprint)
        yield asked, told


def _judged(candidate: Candidate, rng: np.random.Generator) -> Judged:
    times = tuple(float(time_us) for time_us in rng.normal(1000.0, 10.0, SAMPLES))
    evaluation = Evaluation(
        candidate=candidate,
        status=Status.OK,
        measurement=Measurement(samples=times, objective=float(np.median(times))),
        cost_s=float(rng.random()),
        properties={
            "max_error": float(rng.random()),
            "repeatable": True,
            "binary": candidate.genome.fingerprint * 2,
        },
    )
    return Judged(evaluation=evaluation, verdict=Verdict.REVERT)


def fill(writer: StoreWriter, n: int) -> tuple[float, float]:
    """Append ``n`` evaluations; return seconds of wall and of processor for the appending."""
    campaign = writer.begin(SPEC, HERE)
    wall_s = cpu_s = 0.0
    for asked, told in groups(n, np.random.default_rng(0)):
        wall, cpu = time.perf_counter(), time.process_time()
        writer.append(campaign, asked)
        writer.append(campaign, told)
        wall_s += time.perf_counter() - wall
        cpu_s += time.process_time() - cpu
    return wall_s, cpu_s


def read(path: Path) -> None:
    """Time what a resume does: open, stream the whole log, go on. Run in a fresh process."""
    start, cpu = time.perf_counter(), time.process_time()
    with open_writer(path) as writer:
        opened_s = time.perf_counter() - start
        entries = sum(1 for _ in writer.log(1))
        read_s, read_cpu_s = time.perf_counter() - start, time.process_time() - cpu
        writer.append(1, [Event(kind="resumed")])
    resumed_s = time.perf_counter() - start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"open as writer            {opened_s * 1e3:10.1f} ms")
    print(f"stream {entries:7d} entries    {read_s:10.2f} s wall, {read_cpu_s:.2f} s processor")
    print(f"open, stream, append, end {resumed_s:10.2f} s")
    print(f"most memory               {peak_mb:10.0f} MB")


def ask(path: Path) -> None:
    """Time the questions that ``status`` and a new campaign put."""
    with open_reader(path) as reader:
        questions: dict[str, Callable[[], object]] = {
            "counts": lambda: reader.counts(1),
            "shares": lambda: reader.shares(1),
            "bests": lambda: reader.bests(1),
            "newest 100": lambda: list(reader.evaluations(1, newest=100)),
            "known": lambda: list(reader.known(HERE.fingerprint, WORKLOAD.fingerprint)),
            "priors": lambda: reader.priors(
                OPERATOR.fingerprint, WORKLOAD.fingerprint, not_environment="", n=20
            ),
        }
        for name, question in questions.items():
            start = time.perf_counter()
            question()
            print(f"{name:25s} {(time.perf_counter() - start) * 1e3:10.1f} ms")


def main() -> None:
    """Fill a store and print what it costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100_000, help="evaluations")
    parser.add_argument("--synchronous", choices=("FULL", "NORMAL"), default="FULL")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read is not None:
        read(chosen.read)
        return
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernelarc.db"
        with open_writer(path, create=True, synchronous=chosen.synchronous) as writer:
            wall_s, cpu_s = fill(writer, chosen.n)
        n = chosen.n // GROUP * GROUP
        print(f"evaluations               {n:10d}, {SAMPLES} samples, {len(GENES) + 2} genes")
        print(f"size on disk              {path.stat().st_size / 1e6:10.1f} MB")
        print(
            f"append, {chosen.synchronous:6s}            {wall_s / n * 1e6:10.1f} us an evaluation,"
            f" {cpu_s / n * 1e6:.1f} us of processor"
        )
        subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)
        ask(path)


if __name__ == "__main__":
    main()
