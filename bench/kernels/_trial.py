"""A baseline tried alone: whether it runs, is right, and about how fast it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from kernelarc.bench.cuda._clock import Call
from kernelarc.bench.cuda._jobbench import FindingError
from kernelarc.bench.cuda._judge import Slot
from kernelarc.bench.kernels._bench import OperatorBench, slot
from kernelarc.bench.kernels._launchable import Launchable
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._messages import TriedBaseline
from kernelarc.bench.kernels._program import LaunchRefusedError
from kernelarc.genomes import InputError

_CALLS, _LONG_US = 3, 3e5


def tried(bench: OperatorBench, one: Launchable) -> TriedBaseline:
    """Run a baseline on fresh inputs, compare what it gives with the reference, time some calls.

    What a user has may round as it likes within the workload's tolerance: unlike a candidate it is
    not held to the precision of the declared types. Errors of the device itself are not caught.
    """
    buffers, rms = bench.inputs()
    try:
        wrong = _fault(bench, one, buffers, rms)
        latency_us = _latency_us(bench, one.call(buffers))
    except LaunchRefusedError as error:
        bench.forget()
        return TriedBaseline(cause=str(error)[:300])
    return TriedBaseline(latency_us=latency_us, wrong=wrong)


def _latency_us(bench: OperatorBench, call: Call) -> float:
    """Return the least time of a few calls, of one where it is slow."""
    tools = bench.tools

    def sweep() -> None:
        tools.kernels.sweep(*tools.sweep)

    call()  # not its first: what tunes or allocates does so by now
    times = [tools.clock.once(call, sweep)]
    while len(times) < _CALLS and sum(times) < _LONG_US:
        times.append(tools.clock.once(call, sweep))
    return min(times)


def _fault(
    bench: OperatorBench, one: Launchable, buffers: TensorSet, rms: Mapping[str, float]
) -> str:
    """Say what is wrong with a baseline's result, in one line; nothing where it is right."""
    if one.checked:
        try:
            bench.verify(one, buffers, rms)
        except FindingError as error:
            return f"{error.finding.failure}: {error.finding.message}"
        return ""
    kernels = bench.tools.kernels
    kernels.clear()
    bench.memory.prepare(buffers, {})
    try:
        one.land(buffers)
    except InputError as error:
        return str(error)
    bench.compare(buffers, rms, Slot.FIRST)
    reports = kernels.read()
    for place, tensor in enumerate(bench.job.outputs):
        ruler = replace(bench.rulers[tensor.name], allowed_rms=math.inf)
        report = reports[slot(Slot.FIRST, place)]
        found = ruler.judge(report, tensor.count, rms[tensor.name], tensor.name)
        if found is not None:
            return f"{found.failure}: {found.message}"
    return ""
