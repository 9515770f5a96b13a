"""What each kernel of a solution takes, by torch's profiler: where a call's time goes.

    python -m kernelarc.bench.experiments.launch_times PROBLEM --ours solution.json -o FILE

Needs an NVIDIA GPU, and the harness's ``src`` on PYTHONPATH, whose inputs it takes. PROBLEM is a
folder. Every workload is called a few times without a profiler, then a few times with one; a row
has each kernel of a call in order, the median of its microseconds, and the span of the call from
the first kernel's start to the last one's end. Caches are warm, as calls follow each other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kernelarc.bench.experiments._machine import write
from kernelarc.bench.experiments.sol_race import Harness, Runner, ours
from kernelarc.genomes import load_solution

_CALLS = 5


def table(spans: Sequence[tuple[str, float, float]], calls: int) -> dict[str, Any]:
    """Return what each kernel of a call takes.

    Args:
        spans: Name, start and end (microseconds) of every kernel of all calls, in any order.
        calls: How many there were, each of the same kernels.

    Raises:
        ValueError: The calls cannot have been of the same kernels.
    """
    ordered = sorted(spans, key=lambda span: span[1])
    each = len(ordered) // calls
    if not each or each * calls != len(ordered):
        raise ValueError(f"{len(ordered)} kernels are no {calls} equal calls")
    turns = [ordered[i * each : (i + 1) * each] for i in range(calls)]
    names = [name for name, _, _ in turns[0]]
    for turn in turns[1:]:
        if [name for name, _, _ in turn] != names:
            raise ValueError("one call launched other kernels than the first")
    taken = [
        {"kernel": name, "us": round(median(t[at][2] - t[at][1] for t in turns), 2)}
        for at, name in enumerate(names)
    ]
    span = median(max(s[2] for s in turn) - turn[0][1] for turn in turns)
    return {"kernels": taken, "span_us": round(span, 2)}


def _profiled(
    runner: Runner, inputs: Sequence[Any], outputs: Sequence[Any], torch: Any
) -> list[tuple[str, float, float]]:
    for _ in range(_CALLS):
        runner.run(*inputs, *outputs)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(_CALLS):
            runner.run(*inputs, *outputs)
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    return [
        (event.name, float(event.time_range.start), float(event.time_range.end))
        for event in profiler.events()
        if event.device_type == cuda
    ]


def main() -> None:
    """Profile a solution on every workload of a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", type=Path)
    parser.add_argument("--ours", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    harness, runner = Harness(given.problem), ours(load_solution(given.ours))
    torch, rows = harness.torch, []
    for workload in harness.workloads:
        inputs = harness.inputs(workload)
        outputs = harness.outputs(workload) if runner.passing else []
        try:
            row = table(_profiled(runner, inputs, outputs, torch), _CALLS)
        except ValueError as error:
            row = {"fault": str(error)}
        rows.append({"axes": dict(workload.axes), **row})
        print(json.dumps(rows[-1]), flush=True)
        write({"device": torch.cuda.get_device_name(0), "workloads": rows}, given.output)
        del inputs, outputs
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
