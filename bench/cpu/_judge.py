"""Judge one candidate in the worker: right on small jobs and the real one, timed, right again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from kernelarc.bench._statistics import clearly_slower
from kernelarc.bench.cpu._checks import check_run, check_surroundings
from kernelarc.bench.cpu._library import LoadedKernel
from kernelarc.bench.cpu._messages import TIMING, JudgeOrder, Outcome
from kernelarc.bench.cpu._refusal import FASTER_THAN_PHYSICS, Refusal
from kernelarc.bench.cpu._seal import Seal
from kernelarc.bench.cpu._small import SmallJobs
from kernelarc.bench.cpu._stage import Slot, Stage
from kernelarc.bench.cpu._watch import ProcessWatch
from kernelarc.genomes import Allele, Status

Beat: TypeAlias = "Callable[[str, float], None]"

SPAN_US = 300.0
"""Shorter kernels are launched so often in one span."""

LEAST_SAMPLES, MOST_SAMPLES = 5, 15
SLOW_S, SLOW_SAMPLES = 0.04, 3
"""A longer span is sampled so few times: what it says is confirmed in a contest or not needed."""

TIMING_S = 0.15
"""About how long one candidate's samples may take together."""

HOPELESS = 2.0
"""Slower than the limit by this factor in its first full runs: not timed further."""

_LONG_S = 20e-3
"""Of so long a run one is enough. A shorter one may only have been disturbed, or have touched
memory that nobody had touched before: it is run again before it is given up."""

_SHORT_S = 1e-3

FILL_S = 60.0
"""Allowance for work of our own: filling, comparing."""

PAUSE_S = 0.0005
"""Between a message and a timed span: lets the reader go back to sleep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What a candidate is judged on."""

    stage: Stage
    small: SmallJobs
    rng: np.random.Generator
    beat: Beat


@dataclass(slots=True)
class _Timed:
    samples: list[float] = field(default_factory=list)
    launches: int = 1
    censored: bool = False
    loop_s: float = 0.0


def judge(kernel: LoadedKernel, order: JudgeOrder, grounds: Grounds) -> Outcome:
    """Judge a loaded kernel; a refusal is an outcome like any other."""
    watch = ProcessWatch()
    try:
        check_small(kernel, grounds, order.hang_s, watch)
        properties, first_us = _check_full(kernel, order, grounds, watch)
        timed = _time(kernel, order, grounds, watch, first_us)
        _check_floor(timed, order.floor_us)
    except Refusal as refusal:
        return refusal.outcome()
    return Outcome(
        status=Status.OK,
        samples=tuple(timed.samples),
        censored=timed.censored,
        launches=timed.launches,
        cache=grounds.stage.cache,
        properties=properties,
        loop_s=timed.loop_s,
    )


def check_small(kernel: LoadedKernel, grounds: Grounds, hang_s: float, watch: ProcessWatch) -> None:
    """Run every small job once and check it.

    Raises:
        Refusal: One of them went wrong.
    """
    grounds.beat("small jobs", hang_s + FILL_S / 10)
    for run in grounds.small.runs(grounds.rng):
        kernel.run([kernel.arguments(run.buffers)])
        watch.check()
        check_run(run, run.label)


def first_run(
    kernel: LoadedKernel, slot: Slot, grounds: Grounds, hang_s: float, watch: ProcessWatch
) -> tuple[float, float]:
    """Run once on fresh values of the real shape and check; return (seconds, relative error).

    Raises:
        Refusal: It went wrong.
    """
    grounds.beat("filling", FILL_S)
    slot.fill(grounds.rng)
    grounds.beat("first run", hang_s)
    seconds = kernel.run([kernel.arguments(slot.buffers)])
    watch.check()
    grounds.beat("comparing", FILL_S)
    try:
        return seconds, check_run(slot, "real shape")
    except Refusal:
        slot.spoil()
        raise


def _check_full(
    kernel: LoadedKernel, order: JudgeOrder, grounds: Grounds, watch: ProcessWatch
) -> tuple[Mapping[str, Allele], float]:
    """Return what the first full runs showed, and the time of the faster in microseconds."""
    slot = grounds.stage.next()
    seconds, error = first_run(kernel, slot, grounds, order.hang_s, watch)
    properties: dict[str, Allele] = {"relative_error": float(f"{error:.3g}")}
    if seconds > _LONG_S and _hopeless(seconds * 1e6, order.limit_us):
        return properties, seconds * 1e6
    first = Seal(slot.buffers.outputs, grounds.rng)
    slot.buffers.poison()
    grounds.beat("second run", order.hang_s)
    seconds = min(seconds, kernel.run([kernel.arguments(slot.buffers)]))
    watch.check()
    grounds.beat("comparing", FILL_S)
    check_surroundings(slot, "second run")
    properties["repeatable"] = not first.broken()
    if first.broken():  # different bits are a property, wrong ones are a failure
        check_run(slot, "second run")
    if seconds < _SHORT_S:  # there are many slots, and no timed call will meet this one again
        _run_on_other_values(kernel, slot, grounds, watch)
    return properties, seconds * 1e6


def _run_on_other_values(
    kernel: LoadedKernel, slot: Slot, grounds: Grounds, watch: ProcessWatch
) -> None:
    slot.stir(grounds.rng)
    kernel.run([kernel.arguments(slot.buffers)])
    watch.check()
    check_run(slot, "other values at the same address")


def _hopeless(run_us: float, limit_us: float | None) -> bool:
    return limit_us is not None and run_us > HOPELESS * limit_us


def launches_for(run_us: float, slots: int) -> int:
    """Return how many launches fill a span: never two on one slot.

    A second call would find warm inputs and the outputs of the first, and could skip its work.
    """
    return min(slots, max(1, math.ceil(SPAN_US / max(run_us, 0.1))))


def _time(
    kernel: LoadedKernel,
    order: JudgeOrder,
    grounds: Grounds,
    watch: ProcessWatch,
    run_us: float,
) -> _Timed:
    """Time the kernel over rotating slots, then check the last slot's outputs again."""
    if _hopeless(run_us, order.limit_us):
        return _Timed(samples=[run_us], censored=True)
    timed = _Timed(launches=launches_for(run_us, len(grounds.stage.slots)))
    span_s = run_us * timed.launches * 1e-6
    least = LEAST_SAMPLES if span_s < SLOW_S else SLOW_SAMPLES
    wanted = min(MOST_SAMPLES, max(least, int(TIMING_S / span_s)))
    grounds.beat("stirring", FILL_S)
    started = time.perf_counter()
    grounds.stage.stir(grounds.rng)
    # Between two spans the values change: of a light kernel that takes longer than it runs.
    stir_s = (time.perf_counter() - started) / len(grounds.stage.slots) * timed.launches
    round_s = span_s + stir_s + PAUSE_S
    grounds.beat(TIMING, (wanted + 1) * 10 * round_s + order.hang_s)
    used: list[Slot] = []
    started = time.perf_counter()
    while len(timed.samples) < wanted and not timed.censored:
        used = _sample(kernel, grounds, timed, used)
        watch.check()
        limit = order.limit_us
        timed.censored = limit is not None and clearly_slower(timed.samples, limit, least=2)
    timed.loop_s = time.perf_counter() - started
    grounds.beat("comparing", FILL_S)
    check_after(used[-1], grounds)
    return timed


def check_after(slot: Slot, grounds: Grounds) -> None:
    """Check a slot that was last written by a timed call: bounds, inputs, every row's being there.

    Of large outputs the values are compared in some rows only; all were in the first run.

    Raises:
        Refusal: It is wrong now.
    """
    try:
        check_run(slot, "after timing", lambda: slot.compare(grounds.rng))
    except Refusal:
        slot.spoil()
        raise


def _sample(
    kernel: LoadedKernel, grounds: Grounds, timed: _Timed, before: list[Slot]
) -> list[Slot]:
    """Time one span; return the slots that it used.

    The slots of the span before get other values only now: they have the whole rotation to leave
    the cache, and the last span's outputs are still there to be checked.
    """
    for slot in before:
        slot.stir(grounds.rng)
    used = [grounds.stage.next() for _ in range(timed.launches)]
    calls = [kernel.arguments(slot.buffers) for slot in used]
    time.sleep(PAUSE_S)
    timed.samples.append(kernel.run(calls) * 1e6 / timed.launches)
    return used


def _check_floor(timed: _Timed, floor_us: float) -> None:
    fastest = min(timed.samples)
    if fastest < floor_us:
        raise Refusal(
            Status.REJECTED,
            FASTER_THAN_PHYSICS,
            f"instrument fault: {fastest:.4g} us where no processor is below {floor_us:.4g} us",
        )
