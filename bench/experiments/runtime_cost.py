"""What ``kernelarc.runtime`` costs a call, and what neighbours' algorithms do between tuned shapes.

Run it on a machine with a GPU, on a table that ``kernelarc export --format cublaslt`` wrote:
``python -m kernelarc.bench.experiments.runtime_cost TABLE [-o FILE]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernelarc import runtime
from kernelarc.bench import paired_speedup
from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.bench.experiments._machine import output_option, show
from kernelarc.genomes import (
    Allele,
    Genome,
    MatmulForm,
    Problem,
    Workload,
    matmul_operator,
    matmul_problem,
)

_BURSTS, _BURST = 60, 100


def per_call_us(call: Callable[[], object], drain: Callable[[], object]) -> dict[str, float]:
    """Return the host's microseconds a call, in bursts too short to fill the launch queue."""
    times = []
    for _ in range(_BURSTS):
        drain()
        begun = time.perf_counter()
        for _ in range(_BURST):
            call()
        times.append(1e6 * (time.perf_counter() - begun) / _BURST)
    low, _, high = statistics.quantiles(times, n=4)
    return {"median": statistics.median(times), "quartile_low": low, "quartile_high": high}


def with_cupy(table: Any, m: int, n: int, k: int) -> dict[str, Any]:
    """Time calls on CuPy arrays against the binding itself."""
    import cupy  # noqa: PLC0415

    x = cupy.zeros((m, k), dtype=cupy.float16)
    weight, y = cupy.zeros((n, k), dtype=cupy.float16), cupy.zeros((m, n), dtype=cupy.float16)
    b, drain = weight.T, cupy.cuda.Device().synchronize
    begun = time.perf_counter()
    table.matmul(x, b, residual=y, out=y)
    first_ms = 1e3 * (time.perf_counter() - begun)
    plan = list(table._plans.values())[-1]
    stream = cupy.cuda.get_current_stream().ptr
    scratch = table._scratch_for(plan, stream) if plan.scratch_bytes else 0
    addresses = (x.data.ptr, weight.data.ptr, y.data.ptr, y.data.ptr)
    current = cupy.cuda.get_current_stream

    def on_arrays() -> None:
        target = y.data.ptr
        plan.launch(x.data.ptr, b.data.ptr, target, target, scratch, current().ptr)

    return {
        "first_call_ms": first_ms,
        "binding_us": per_call_us(lambda: plan.launch(*addresses, scratch, stream), drain),
        "binding_on_arrays_us": per_call_us(on_arrays, drain),
        "runtime_us": per_call_us(lambda: table.matmul(x, b, residual=y, out=y), drain),
        "runtime_new_view_us": per_call_us(
            lambda: table.matmul(x, weight.T, residual=y, out=y), drain
        ),
        "cupy_matmul_us": per_call_us(lambda: cupy.matmul(x, b, out=y), drain),
    }


def with_torch(table: Any, m: int, n: int, k: int) -> dict[str, Any]:
    """Time calls on torch tensors against torch itself."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError:
        return {}
    x = torch.zeros(m, k, dtype=torch.bfloat16, device="cuda")
    weight = torch.zeros(n, k, dtype=torch.bfloat16, device="cuda")
    y = torch.zeros(m, n, dtype=torch.bfloat16, device="cuda")
    b, drain = weight.T, torch.cuda.synchronize
    table.matmul(x, b, residual=y, out=y)
    with torch.no_grad():
        return {
            "source": table.source(x, b, residual=y, out=y),
            "runtime_us": per_call_us(lambda: table.matmul(x, b, residual=y, out=y), drain),
            "torch_addmm_us": per_call_us(lambda: torch.addmm(y, x, b, out=y), drain),
        }


def between(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Time the algorithms of both neighbours on shapes half-way between tuned ones."""
    entries = sorted(content["entries"], key=lambda e: e["product"]["m"])
    product = entries[0]["product"]
    halves = [
        {"M": (e["product"]["m"] + f["product"]["m"]) // 2, "N": product["n"], "K": product["k"]}
        for e, f in pairwise(entries)
    ]
    form = MatmulForm(layout=product["layout"], residual=product["residual"])
    problem = matmul_problem(matmul_operator(form), halves, in_place=product["in_place"])
    with (
        tempfile.TemporaryDirectory() as scratch,
        CudaDevice().open(problem, seed=1, artefacts=Path(scratch)) as session,
    ):
        return [
            _neighbours(session, problem, workload, entries[i : i + 2])
            for i, workload in enumerate(problem.workloads)
        ]


def _neighbours(
    session: CudaSession, problem: Problem, workload: Workload, entries: list[Any]
) -> dict[str, Any]:
    space = session.spaces(workload)["cublaslt"]
    row: dict[str, Any] = {"M": workload.axes["M"]}
    for side, entry in zip(("lower", "upper"), entries, strict=True):
        if entry["algorithm"] is None:
            continue
        alleles: dict[str, Allele] = dict(entry["algorithm"]["genome"])
        if space.violation(alleles) is not None:
            row[side] = "not in the space"
            continue
        genome: Genome = space.genome(alleles)
        (fault,) = session.check(workload, [genome])
        if fault is not None:
            row[side] = fault
            continue
        contest = session.contest(workload, [genome], rounds=40, baseline=True)
        if contest.failures:
            row[side] = str(dict(contest.failures))
            continue
        found = paired_speedup(*(contest.column(name) for name in contest.names), claims=1)
        row[side] = [found.value, found.low, found.high]
    return row


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path)
    output_option(parser)
    arguments = parser.parse_args()
    content = json.loads(arguments.table.read_text())
    first = content["entries"][0]["product"]
    shape = first["m"], first["n"], first["k"]
    table = runtime.load(arguments.table)
    found = {
        "environment": content["environment"],
        "unix_s": time.time(),
        "shape": shape,
        "torch": with_torch(table, *shape),
        "cupy": with_cupy(table, *shape),
        "between": between(content),
    }
    show(found, arguments.output)


if __name__ == "__main__":
    main()
