"""One operator under test: every contender is checked, then timed, whatever it is made of."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelarc.bench._numerics import NOT_FINITE, epsilon_of, rounding_bound
from kernelarc.bench._reference import exact_below
from kernelarc.bench._roofline import Floor
from kernelarc.bench._statistics import CENSOR_RATIO, clearly_slower
from kernelarc.bench.cuda._arena import BAND_BYTES
from kernelarc.bench.cuda._clock import Segment, TimedCalls, TimedGraph
from kernelarc.bench.cuda._escapes import DeviceBusyError, Trial, given_up
from kernelarc.bench.cuda._jobbench import FindingError, Instruments
from kernelarc.bench.cuda._judge import (
    ESCAPED_CLOCK,
    INPUT_CHANGED,
    NOT_REPEATABLE,
    OUT_OF_BOUNDS,
    TOO_FAST,
    Finding,
    Ruler,
    Slot,
    relative_error,
)
from kernelarc.bench.cuda._kernels import EXACT
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._filling import PLAIN, Filler, Filling
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._launchable import Launchable
from kernelarc.bench.kernels._memory import JobMemory, TensorSet
from kernelarc.bench.kernels._oracle import Oracle
from kernelarc.bench.kernels._spans import segments_of, timed_alone
from kernelarc.genomes import Allele, Status

_SAMPLES, _LONG_SAMPLES, _LONG_US = 6, 4, 400.0
_REFRESH_S, _MOST_USES, _COSTLY_S, _COSTLY_USES = 0.0006, 12, 0.5, 64
_HOPELESS = 2.5
_WARM_CALLS = 16
_INTERMEDIATE_ROUNDINGS, _MOST_ROUNDING = 4.0, 0.125
_PURPOSES = 8


class OperatorBench:
    """Checks and times contenders of one job.

    Args:
        tools: Shared instruments.
        memory: The job's.
        oracle: Its reference.
        floor: No honest time is below it.
        seed: Root of the streams that fill inputs.
    """

    def __init__(
        self, tools: Instruments, memory: JobMemory, oracle: Oracle, *, floor: Floor, seed: int
    ) -> None:
        self.tools, self.memory, self.oracle = tools, memory, oracle
        self.job: BoundJob = memory.job
        self.filler = Filler(tools.kernels, self.job)
        self.rulers = _rulers(self.job)
        self._floor, self._seed, self._turn = floor, seed, 0
        self._extent = tools.cupy.zeros(2, dtype=tools.cupy.float64)
        self._fresh: tuple[TensorSet, Mapping[str, float]] | None = None
        self._uses = self._most_uses = 0
        self.exact = False
        self.renew()

    # Inputs and references

    def next_seed(self) -> int:
        """Return a seed that no set has been filled with."""
        self._turn += 1
        return (self._seed * 1_000_003 + self._turn) & ((1 << 60) - 1)

    def fill(self, buffers: TensorSet, filling: Filling = PLAIN) -> None:
        """Draw a set's inputs anew."""
        if self.job.custom:
            self.oracle.fill_custom(buffers, self.next_seed())
        else:
            self.filler.fill(buffers, self.next_seed(), filling)

    def refer(self, buffers: TensorSet, into: Mapping[str, Any]) -> dict[str, float]:
        """Compute a set's reference; return the root mean square of each output's."""
        self.oracle.answer(buffers, into)
        return {name: self._rms(array) for name, array in into.items()}

    def _rms(self, array: Any) -> float:
        squares = self._summed_up(self.tools.kernels.extent, array)[0]
        return math.sqrt(squares / max(array.size, 1))

    def _summed_up(self, kernel: Callable[[int, int, int], None], array: Any) -> tuple[float, ...]:
        """Return the two figures that a kernel reads off a float64 array."""
        stream = self.tools.stream
        self._extent.data.memset_async(0, 16, stream)
        kernel(int(array.data.ptr), array.size, int(self._extent.data.ptr))
        return tuple(float(figure) for figure in self._extent.get(stream=stream))

    def new_canary(self, *, ones: bool = False) -> None:
        """Draw exact inputs; where the reference of exact inputs is exact, so must outputs be."""
        memory, canary = self.memory, self.memory.canary
        if canary is None:
            return
        self.filler.fill_exact(canary, self.next_seed(), ones=ones)
        self.oracle.answer(canary, memory.canary_reference)
        whole = [self._whole(t.name, t.dtype) for t in self.job.outputs]
        self.exact = all(whole)
        for tensor in self.job.outputs:
            array = memory.canary_reference[tensor.name]
            self.tools.kernels.rounded(int(array.data.ptr), array.size, tensor.dtype)

    def _whole(self, name: str, dtype: str) -> bool:
        if self.job.product is not None:
            return True
        # Not by CuPy's functions: each of them is compiled when a process first calls it.
        array = self.memory.canary_reference[name]
        uneven, largest = self._summed_up(self.tools.kernels.uneven, array)
        return not uneven and largest <= exact_below(dtype)

    def renew(self) -> None:
        """Write bands, inputs and canary anew: a candidate wrote where it may not."""
        self.memory.mend()
        for buffers in self.memory.sets:
            self.fill(buffers)
            self.memory.prepare(buffers, {})
        self.new_canary()
        self.forget()

    def forget(self) -> None:
        """Drop the reference that several candidates share: its inputs are there no more."""
        self._fresh = None

    def ready(self) -> None:
        """Have inputs and their reference at hand: no candidate's time limit pays for them."""
        if self._fresh is None or self._uses >= self._most_uses:
            self._refresh()
            self._uses = 0

    def inputs(self) -> tuple[TensorSet, Mapping[str, float]]:
        """Return a filled set, and the root mean square of each output's reference."""
        return self._refresh()

    def _refresh(self) -> tuple[TensorSet, Mapping[str, float]]:
        """Return a set with new values and their reference.

        A reference that takes long serves for several candidates; contests never share one.
        """
        if self._fresh is not None and self._uses < self._most_uses:
            self._uses += 1
            return self._fresh
        buffers = self.memory.sets[self._turn % self.memory.count]
        begun = time.perf_counter()
        self.fill(buffers)
        self._fresh = buffers, self.refer(buffers, self.memory.reference)
        taken_s = time.perf_counter() - begun
        self._uses = 1
        most = _COSTLY_USES if taken_s > _COSTLY_S else _MOST_USES
        self._most_uses = max(1, min(round(taken_s / _REFRESH_S), most))
        return self._fresh

    # Checking

    def _sweep(self) -> None:
        """Read twice the cache: evicts, and keeps the device busy while the host queues."""
        self.tools.kernels.sweep(*self.tools.sweep)

    def _fill_cache(self) -> None:
        """Write twice the cache: what a call finds there is others' and has to be written back."""
        address, nbytes = self.tools.sweep
        self.tools.cupy.cuda.runtime.memsetAsync(address, 1, nbytes, self.tools.stream.ptr)

    def checked_run(
        self, one: Launchable, buffers: TensorSet, rms: Mapping[str, float], purpose: int
    ) -> None:
        """Run on a prepared set and compare every output with its reference."""
        self.memory.prepare(buffers, one.aliases)
        one.guard()
        one.call(buffers)()
        self.compare(buffers, rms, purpose)

    def compare(self, buffers: TensorSet, rms: Mapping[str, float], purpose: int) -> None:
        """Compare a set's outputs with the reference into the reports of a purpose."""
        negative = self.job.task.workload.tolerance.allow_negative_inf
        for place, tensor in enumerate(self.job.outputs):
            self.tools.kernels.compare(
                buffers.tensors[tensor.name],
                int(self.memory.reference[tensor.name].data.ptr),
                self.rulers[tensor.name].bounds(rms[tensor.name]),
                slot(purpose, place),
                negative_inf=negative,
            )

    def _canary_run(self, one: Launchable, buffers: TensorSet) -> float:
        """Run on exact inputs, or again where there are none; return the launch's microseconds."""
        canary, tools = self.memory.canary, self.tools
        target = canary if canary is not None and self.exact else buffers
        self.memory.prepare(target, one.aliases)
        taken_us = tools.clock.once(one.call(target), self._sweep)
        if target is buffers:
            return taken_us
        for place, tensor in enumerate(self.job.outputs):
            reference = int(self.memory.canary_reference[tensor.name].data.ptr)
            ruler = self.rulers[tensor.name]
            out = target.tensors[tensor.name]
            tools.kernels.compare(out, reference, ruler.exact, slot(Slot.CANARY, place))
        return taken_us

    def _digests(self, buffers: TensorSet, purpose: int) -> None:
        for salt, tensor in enumerate(self.job.inputs):
            held = buffers.tensors[tensor.name]
            self.tools.kernels.digest(held, salt, slot(purpose, 0))

    def verify(
        self, one: Launchable, buffers: TensorSet, rms: Mapping[str, float]
    ) -> tuple[float, dict[str, Allele]]:
        """Check a contender on fresh, exact and repeated inputs.

        Returns:
            Microseconds of one launch, and what was observed.

        Raises:
            FindingError: A guardrail refuses it.
            LaunchRefusedError: The driver refuses a launch.
        """
        memory, kernels = self.memory, self.tools.kernels
        kernels.clear()
        self._digests(buffers, Slot.BEFORE)
        self.checked_run(one, buffers, rms, Slot.FIRST)
        memory.keep(buffers)
        taken_us = self._canary_run(one, buffers)
        memory.prepare(buffers, one.aliases)
        one.call(buffers)()
        for place, tensor in enumerate(self.job.outputs):
            out, kept = buffers.tensors[tensor.name], int(memory.kept[tensor.name].ptr)
            kernels.differing(out.address, kept, out.nbytes, slot(Slot.REPEAT, place))
        self._digests(buffers, Slot.AFTER)
        self.check_bands(one)
        return taken_us, self._verdict(kernels.read(), rms)

    def check_bands(self, one: Launchable) -> None:
        """Count what was written into guard bands."""
        kernels, bands, own = self.tools.kernels, self.memory.bands, one.bands()
        kernels.bands(int(bands.data.ptr), bands.size, BAND_BYTES, slot(Slot.BANDS, 0))
        if own is not None:
            kernels.bands(int(own.data.ptr), own.size, BAND_BYTES, slot(Slot.SCRATCH_BAND, 0))

    def damage(self, reports: Any) -> Finding | None:
        """Return what the guard bands say."""
        places = (slot(Slot.BANDS, 0), slot(Slot.SCRATCH_BAND, 0))
        damaged = sum(int(reports[place]["damaged"]) for place in places)
        return Finding(OUT_OF_BOUNDS, f"{damaged} bytes of guard bands") if damaged else None

    def _verdict(self, reports: Any, rms: Mapping[str, float]) -> dict[str, Allele]:
        damaged = self.damage(reports)
        if damaged is not None:
            self.renew()
            raise FindingError(damaged)
        before, after = reports[slot(Slot.BEFORE, 0)], reports[slot(Slot.AFTER, 0)]
        if before["digest"] != after["digest"]:
            self.renew()
            raise FindingError(Finding(INPUT_CHANGED, "an input was written to"))
        seen: dict[str, Allele] = {"max_error": 0.0, "rms_error": 0.0}
        for place, tensor in enumerate(self.job.outputs):
            first = reports[slot(Slot.FIRST, place)]
            found = self._judged(reports, place, rms, "random inputs")
            if found is None and self.exact:
                canary = reports[slot(Slot.CANARY, place)]
                found = self.rulers[tensor.name].judge_exact(canary, "zeros and ones")
            if found is not None:
                raise FindingError(found)
            relative = relative_error(first, tensor.count, rms[tensor.name])
            seen["max_error"] = max(float(seen["max_error"]), float(first["max_error"]))  # type: ignore[arg-type]
            seen["rms_error"] = max(float(seen["rms_error"]), relative)  # type: ignore[arg-type]
        seen["repeatable"] = self._repeatable(reports)
        return seen

    def _judged(
        self, reports: Any, place: int, rms: Mapping[str, float], what: str, purpose: int = 0
    ) -> Finding | None:
        tensor = self.job.outputs[place]
        report = reports[slot(purpose, place)]
        ruler = self.rulers[tensor.name]
        several = len(self.job.outputs) > 1
        named = f"{tensor.name}, {what}" if several else what
        return ruler.judge(report, tensor.count, rms[tensor.name], named)

    def _repeatable(self, reports: Any) -> bool:
        places = range(len(self.job.outputs))
        same = not any(reports[slot(Slot.REPEAT, place)]["differing"] for place in places)
        if not same and self.job.task.deterministic:
            raise FindingError(Finding(NOT_REPEATABLE, "two runs on equal inputs differ"))
        return same

    # Timing

    def _segments(self, one: Launchable, call_us: float) -> list[Segment]:
        """Return one span of cold calls."""
        memory = self.memory
        calls = [one.call(buffers) for buffers in memory.sets]
        restore = [lambda: self.restore(one)] if one.aliases else []
        if memory.swept:
            return [Segment([*restore, self._sweep], calls)]
        evict = self._fill_cache if self._alone else None
        return segments_of(calls, call_us, restore=restore, evict=evict)

    @property
    def _alone(self) -> bool:
        return timed_alone(self._floor.latency_us, self.memory.count)

    def restore(self, one: Launchable) -> None:
        """Put aliased inputs back, so that values do not grow from span to span."""
        for buffers in self.memory.sets:
            self.memory.prepare(buffers, one.aliases)

    def graph(self, one: Launchable, call_us: float, cache: str) -> TimedGraph | TimedCalls:
        """Capture a span of calls; what cannot be captured is launched directly."""
        if not one.captures(self.memory.sets[0]):
            return self.uncaptured(one, cache)
        if cache == "warm":
            call = one.call(self.memory.sets[0])
            segments = [Segment([call] * 2, [call] * _WARM_CALLS)]
        else:
            segments = self._segments(one, call_us)
        with one.capturing():
            return self.tools.clock.graph(segments)

    def uncaptured(self, one: Launchable, cache: str) -> TimedCalls:
        """Return calls on all sets in turn, each launched by the host while its time runs."""
        if cache == "warm":
            call = one.call(self.memory.sets[0])
            return TimedCalls(self.tools.clock, itertools.repeat(call), call)
        calls = [one.call(buffers) for buffers in self.memory.sets]
        runway = self._fill_cache if self._alone else self._sweep
        return TimedCalls(self.tools.clock, itertools.cycle(calls), runway)

    def _timed(
        self, one: Launchable, buffers: TensorSet, call_us: float, limit_us: float | None
    ) -> tuple[list[float], bool, int]:
        """Return samples per call, whether they are censored, and launches in a span."""
        if limit_us is not None and call_us > _HOPELESS * limit_us + 10.0:
            call, clock = one.call(self.memory.canary or buffers), self.tools.clock
            samples = [call_us, clock.once(call, self._sweep), clock.once(call, self._sweep)]
            if clearly_slower(samples, limit_us):
                return samples, True, 1
        graph = self.graph(one, call_us, self.job.task.cache)
        graph.replay()
        wanted = _SAMPLES if call_us * graph.calls < _LONG_US else _LONG_SAMPLES
        spans: list[float] = []
        trial = Trial(self.tools, self._sweep, graph.replay, graph.calls)
        while len(spans) < wanted:
            if len(spans) == wanted - 1:
                self._poison_timed(one)
            span = graph.replay()
            if trial.suspects(span):
                if trial.guilty():
                    raise FindingError(Finding(ESCAPED_CLOCK, "the wall clock saw far more time"))
                continue
            spans.append(span.call_us)
            if limit_us is not None and clearly_slower(spans, limit_us, ratio=CENSOR_RATIO):
                return spans, True, graph.calls
        return spans, False, graph.calls

    def _timed_sets(self) -> Sequence[TensorSet]:
        """Return the sets that a span's calls are on."""
        return self.memory.sets[:1] if self.job.task.cache == "warm" else self.memory.sets

    def _poison_timed(self, one: Launchable) -> None:
        """Poison what the next span has to write, and leave nothing of that in the cache."""
        for buffers in self._timed_sets():
            self.memory.prepare(buffers, one.aliases)
        self._sweep()
        self.tools.stream.synchronize()

    def _look_at_timed(self, one: Launchable) -> None:
        """Count what the last span has left unwritten: every call must do the job, not a few."""
        if not one.checked or self.job.task.workload.tolerance.allow_negative_inf:
            return
        for place, tensor in enumerate(self.job.outputs):
            reference = int(self.memory.reference[tensor.name].data.ptr)
            if tensor.floating and tensor.name not in one.aliases:
                for buffers in self._timed_sets():
                    out = buffers.tensors[tensor.name]
                    self.tools.kernels.compare(out, reference, EXACT, slot(Slot.FIRST, place))

    def _hold_to_floor(self, samples: Sequence[float]) -> None:
        fault = self._floor.fault(float(np.median(samples)))
        if fault is not None:
            raise FindingError(Finding(TOO_FAST, fault))

    def _recheck(self, one: Launchable, buffers: TensorSet, rms: Mapping[str, float]) -> None:
        """Check the outputs once more after the timing loop."""
        kernels = self.tools.kernels
        kernels.clear()
        self._look_at_timed(one)
        self.checked_run(one, buffers, rms, Slot.LAST)
        self.check_bands(one)
        found = self.found_after(kernels.read(), rms)
        if found is not None:
            if found.failure == OUT_OF_BOUNDS:
                self.renew()
            raise FindingError(found)

    def found_after(self, reports: Any, rms: Mapping[str, float]) -> Finding | None:
        """Return what the check after timing says."""
        damaged = self.damage(reports)
        if damaged is not None:
            return Finding(OUT_OF_BOUNDS, "guard bands changed while timing")
        places = range(len(self.job.outputs))
        lost = sum(int(reports[slot(Slot.FIRST, place)]["not_finite"]) for place in places)
        if lost:
            return Finding(NOT_FINITE, f"timed calls left {lost} outputs unwritten or not finite")
        for place in places:
            found = self._judged(reports, place, rms, "after timing", Slot.LAST)
            if found is not None:
                return found
        return None

    # Evaluating

    def evaluate(self, number: int, one: Launchable, limit_us: float | None) -> Outcome:
        """Check and time one contender. Errors of the device itself are not caught here."""
        begun = time.perf_counter()
        buffers, rms = self._refresh()
        try:
            call_us, seen = self.verify(one, buffers, rms)
            samples, censored, launches = self._timed(one, buffers, call_us, limit_us)
            self._hold_to_floor(samples)
            if not censored:
                self._recheck(one, buffers, rms)
        except FindingError as error:
            return Outcome(
                number=number,
                status=Status.WRONG_RESULT,
                failure=error.finding.failure,
                message=error.finding.message,
                cost_s=time.perf_counter() - begun,
            )
        except DeviceBusyError as error:
            return given_up(number, error, time.perf_counter() - begun)
        return Outcome(
            number=number,
            status=Status.OK,
            samples=tuple(samples),
            censored=censored,
            launches=launches,
            cost_s=time.perf_counter() - begun,
            properties={**seen, **one.properties()},
        )


def slot(purpose: int, place: int) -> int:
    """Return the report of a purpose for the output at a place."""
    return place * _PURPOSES + int(purpose)


def _rulers(job: BoundJob) -> dict[str, Ruler]:
    """Return what each output is held against.

    A matrix product is held to one rounding of its output beside float32 sums; other operators
    may round intermediate results to the narrowest type that is no code as well.
    """
    tolerance = job.task.workload.tolerance
    if job.product is not None:
        return {t.name: Ruler.of(job.product, tolerance) for t in job.outputs}
    steps = min(_INTERMEDIATE_ROUNDINGS * epsilon_of(job.intermediate), _MOST_ROUNDING)
    found = {}
    for tensor in job.outputs:
        allowed = steps + rounding_bound(tensor.dtype, "float32", job.depth)
        found[tensor.name] = Ruler(tolerance=tolerance, allowed_rms=allowed, exact=EXACT)
    return found
