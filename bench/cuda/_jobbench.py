"""One job under test: every candidate is checked, then timed; contests are interleaved."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelarc.bench._roofline import Floor
from kernelarc.bench._statistics import CENSOR_RATIO, clearly_slower
from kernelarc.bench.cuda._arena import BAND_BYTES, Arena, BufferSet
from kernelarc.bench.cuda._clock import Call, Clock, Segment, TimedGraph
from kernelarc.bench.cuda._escapes import DeviceBusyError, Trial, given_up
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
from kernelarc.bench.cuda._kernels import BAND_BYTE, Kernels
from kernelarc.bench.cuda._library import Algorithm, Matmul
from kernelarc.bench.cuda._protocol import Outcome, Task
from kernelarc.genomes import Allele, LtRow, Status

_SPAN_US = 120.0
_MOST_CALLS = 96
_SAMPLES, _LONG_SAMPLES, _LONG_US = 6, 4, 400.0
_REFRESH_S, _MOST_USES = 0.0006, 12
_HOPELESS = 2.5
_WARM_CALLS = 16


@dataclass(frozen=True, slots=True)
class Contender:
    """An algorithm that can be launched."""

    algorithm: Algorithm
    aliased: bool

    @property
    def granted_bytes(self) -> int:
        """Scratch memory that its genome may use."""
        return self.algorithm.row[9]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """What all jobs of a worker share. ``scratch`` is the workspace, band included."""

    cupy: Any
    stream: Any
    kernels: Kernels
    clock: Clock
    scratch: int
    sweep: tuple[int, int]


class FindingError(Exception):
    """A guardrail refused the candidate."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class JobBench:
    """Checks and times candidates of one job.

    Args:
        tools: Shared instruments.
        task: The workload.
        matmul: Its descriptors.
        arena: Its memory.
        floor: No honest time is below it.
        seed: Root of the streams that fill inputs.
    """

    def __init__(
        self,
        tools: Instruments,
        task: Task,
        matmul: Matmul,
        arena: Arena,
        *,
        floor: Floor,
        seed: int,
    ) -> None:
        self.task, self.matmul, self.arena = task, matmul, arena
        self.tools, self._floor = tools, floor
        self._seed, self._turn = seed, 0
        self.ruler = Ruler.of(task.job, task.tolerance)
        self._scratch_bands: dict[int, Any] = {}
        self._fresh: tuple[BufferSet, float] | None = None
        self._uses = self._most_uses = 0
        self.renew()

    def next_seed(self) -> int:
        self._turn += 1
        return (self._seed * 1_000_003 + self._turn) & ((1 << 60) - 1)

    def new_canary(self, *, ones: bool = False) -> None:
        self.arena.fill_exact(self.arena.canary, self.next_seed(), ones=ones)
        self.arena.refer(self.arena.canary, self.arena.canary_reference, exact=True)

    def prepare_all(self, *, aliased: bool) -> None:
        for buffers in self.arena.sets:
            self.arena.prepare(buffers, aliased)

    def _sweep(self) -> None:
        """Read twice the cache: evicts, and keeps the device busy while the host queues."""
        self.tools.kernels.sweep(*self.tools.sweep)

    def renew(self) -> None:
        """Write bands, inputs and canary anew: a candidate wrote where it may not."""
        self.arena.mend()
        self.arena.fill_bias(self.next_seed())
        for buffers in self.arena.sets:
            self.arena.fill(buffers, self.next_seed())
        self.new_canary()
        self.prepare_all(aliased=self.task.job.in_place)
        self.forget()

    def forget(self) -> None:
        """Drop the reference that several candidates share: its inputs are there no more."""
        self._fresh = None

    # Launching

    def contender(self, row: LtRow) -> Contender | None:
        """Return a row ready for launching, or None where the library refuses it."""
        algorithm = self.matmul.algorithm(row)
        return None if algorithm is None else Contender(algorithm, bool(row[10]))

    def call(self, contender: Contender, buffers: BufferSet, alpha: float = 1.0) -> Call:
        addresses = buffers.addresses(contender.aliased)
        workspace = (self.tools.scratch, contender.granted_bytes)
        stream = self.tools.stream.ptr

        def call() -> None:
            self.matmul.launch(contender.algorithm, addresses, workspace, stream, alpha)

        return call

    def _guard_scratch(self, contender: Contender) -> None:
        """Poison what the candidate may use, and put a band behind it."""
        runtime, stream = self.tools.cupy.cuda.runtime, self.tools.stream.ptr
        end = self.tools.scratch + contender.granted_bytes
        runtime.memsetAsync(end, BAND_BYTE, BAND_BYTES, stream)
        needed = contender.algorithm.workspace_bytes
        if needed:
            runtime.memsetAsync(self.tools.scratch, 0xFF, needed, stream)
        if end not in self._scratch_bands:
            cupy = self.tools.cupy
            self._scratch_bands[end] = cupy.array([end], dtype=cupy.uint64)

    # Checking

    def _refresh(self) -> tuple[BufferSet, float]:
        """Return a set with new values and their reference.

        A reference that takes long serves for a few candidates; contests never share one.
        """
        if self._fresh is not None and self._uses < self._most_uses:
            self._uses += 1
            return self._fresh
        buffers = self.arena.sets[self._turn % self.arena.count]
        begun = time.perf_counter()
        self.arena.fill(buffers, self.next_seed())
        self._fresh = buffers, self.arena.refer(buffers, self.arena.reference)
        taken_s = time.perf_counter() - begun
        self._uses = 1
        self._most_uses = max(1, min(round(taken_s / _REFRESH_S), _MOST_USES))
        return self._fresh

    def _checked_run(self, contender: Contender, buffers: BufferSet, rms: float, slot: int) -> None:
        arena = self.arena
        arena.prepare(buffers, contender.aliased)
        self._guard_scratch(contender)
        self.call(contender, buffers)()
        bounds = self.ruler.bounds(rms)
        self.tools.kernels.compare(buffers.out, int(arena.reference.data.ptr), bounds, slot)

    def _canary_run(self, contender: Contender) -> float:
        """Run on exact inputs; return the microseconds of that one launch."""
        arena, tools = self.arena, self.tools
        arena.prepare(arena.canary, contender.aliased)
        taken_us = tools.clock.once(self.call(contender, arena.canary), self._sweep)
        reference = int(arena.canary_reference.data.ptr)
        tools.kernels.compare(arena.canary.out, reference, self.ruler.exact, Slot.CANARY)
        return taken_us

    def _digests(self, buffers: BufferSet, slot: int) -> None:
        kept = buffers.residual
        for salt, tensor in enumerate((buffers.a, buffers.b, *([kept] if kept else []))):
            self.tools.kernels.digest(tensor, salt, slot)

    def verify(
        self, contender: Contender, buffers: BufferSet, rms: float
    ) -> tuple[float, dict[str, Allele]]:
        """Check a contender on fresh, exact and repeated inputs.

        Returns:
            Microseconds of one launch, and what was observed.

        Raises:
            FindingError: A guardrail refuses it.
        """
        arena, kernels = self.arena, self.tools.kernels
        kernels.clear()
        self._digests(buffers, Slot.BEFORE)
        self._checked_run(contender, buffers, rms, Slot.FIRST)
        arena.keep(buffers)
        taken_us = self._canary_run(contender)
        arena.prepare(buffers, contender.aliased)
        self.call(contender, buffers)()
        out = buffers.out
        kernels.differing(out.address, int(arena.scratch.ptr), out.nbytes, Slot.REPEAT)
        self._digests(buffers, Slot.AFTER)
        self.check_bands(contender)
        reports = kernels.read()
        return taken_us, self._verdict(reports, buffers, rms)

    def check_bands(self, contender: Contender) -> None:
        kernels, arena = self.tools.kernels, self.arena
        kernels.bands(int(arena.bands.data.ptr), arena.bands.size, BAND_BYTES, Slot.BANDS)
        band = self._scratch_bands[self.tools.scratch + contender.granted_bytes]
        kernels.bands(int(band.data.ptr), 1, BAND_BYTES, Slot.SCRATCH_BAND)

    def _verdict(self, reports: Any, buffers: BufferSet, rms: float) -> dict[str, Allele]:
        count = buffers.out.count
        damaged = int(reports[Slot.BANDS]["damaged"]) + int(reports[Slot.SCRATCH_BAND]["damaged"])
        if damaged:
            self.renew()
            raise FindingError(Finding(OUT_OF_BOUNDS, f"{damaged} bytes of guard bands"))
        if reports[Slot.BEFORE]["digest"] != reports[Slot.AFTER]["digest"]:
            self.renew()
            raise FindingError(Finding(INPUT_CHANGED, "A, B or the residual was written to"))
        first = reports[Slot.FIRST]
        found = self.ruler.judge(first, count, rms, "random inputs")
        found = found or self.ruler.judge_exact(reports[Slot.CANARY], "zeros and ones")
        repeatable = not reports[Slot.REPEAT]["differing"]
        if not repeatable and found is None and self.task.deterministic:
            found = Finding(NOT_REPEATABLE, "two runs on equal inputs differ")
        if found is not None:
            raise FindingError(found)
        return {
            "max_error": float(first["max_error"]),
            "rms_error": relative_error(first, count, rms),
            "repeatable": repeatable,
        }

    # Timing

    def _segments(self, contender: Contender, alpha: float, call_us: float) -> list[Segment]:
        """Return one span of calls: all sets in turn, several times where calls are short."""
        arena = self.arena
        calls = [self.call(contender, buffers, alpha) for buffers in arena.sets]
        if arena.swept:
            return [Segment([self._sweep], calls)]
        turns = math.ceil(_SPAN_US / max(call_us * len(calls), 1e-3))
        turns = max(1, min(turns, _MOST_CALLS // len(calls)))
        lead = 2 if call_us < 50 else 1 if call_us < 500 else 0
        return [Segment(calls[-1:] * lead, calls * turns)]

    def _warm_segments(self, contender: Contender, alpha: float) -> list[Segment]:
        call = self.call(contender, self.arena.sets[0], alpha)
        return [Segment([call] * 2, [call] * _WARM_CALLS)]

    def graphs(self, contender: Contender, call_us: float, cache: str) -> list[TimedGraph]:
        """Capture the timed graph; for an aliased residual its undoing twin as well.

        Each replay of the first adds the product to the outputs, each of the second takes it
        away: the loop repeats one and the same job on values that do not grow.
        """
        made = []
        for alpha in (1.0, -1.0) if contender.aliased else (1.0,):
            segments = (
                self._warm_segments(contender, alpha)
                if cache == "warm"
                else self._segments(contender, alpha, call_us)
            )
            made.append(self.tools.clock.graph(segments))
        return made

    def _timed(
        self, contender: Contender, call_us: float, limit_us: float | None
    ) -> tuple[list[float], bool, int]:
        """Return samples per call, whether they are censored, and launches in a span."""
        if limit_us is not None and call_us > _HOPELESS * limit_us + 10.0:
            call = self.call(contender, self.arena.canary)
            clock = self.tools.clock
            samples = [call_us, clock.once(call, self._sweep), clock.once(call, self._sweep)]
            if clearly_slower(samples, limit_us):
                return samples, True, 1
        graphs = self.graphs(contender, call_us, self.task.cache)
        for graph in graphs:
            graph.replay()
        calls = graphs[0].calls
        wanted = _SAMPLES if call_us * calls < _LONG_US else _LONG_SAMPLES
        spans: list[float] = []
        turns = itertools.cycle(graphs)  # an aliased output is undone by every second one
        trial = Trial(self.tools, self._sweep, lambda: next(turns).replay(), calls)
        while len(spans) < wanted:
            span = next(turns).replay()
            if trial.suspects(span):
                if trial.guilty():
                    raise FindingError(Finding(ESCAPED_CLOCK, "the wall clock saw far more time"))
                continue
            spans.append(span.call_us)
            if limit_us is not None and clearly_slower(spans, limit_us, ratio=CENSOR_RATIO):
                return spans, True, calls
        return spans, False, calls

    def _hold_to_floor(self, samples: Sequence[float]) -> None:
        fault = self._floor.fault(float(np.median(samples)))
        if fault is not None:
            raise FindingError(Finding(TOO_FAST, fault))

    def _recheck(self, contender: Contender, buffers: BufferSet, rms: float) -> None:
        """Check the outputs once more after the timing loop."""
        kernels = self.tools.kernels
        kernels.clear()
        self._checked_run(contender, buffers, rms, Slot.LAST)
        self.check_bands(contender)
        reports = kernels.read()
        if reports[Slot.BANDS]["damaged"] or reports[Slot.SCRATCH_BAND]["damaged"]:
            self.renew()
            raise FindingError(Finding(OUT_OF_BOUNDS, "guard bands changed while timing"))
        found = self.ruler.judge(reports[Slot.LAST], buffers.out.count, rms, "after timing")
        if found is not None:
            raise FindingError(found)

    # Evaluating

    def evaluate(self, number: int, row: LtRow, limit_us: float | None) -> Outcome:
        """Check and time one candidate. Errors of the device itself are not caught here."""
        begun = time.perf_counter()
        contender = self.contender(row)
        if contender is None:
            return Outcome(
                number=number,
                status=Status.REJECTED,
                failure="illegal algorithm",
                message="the library refuses this combination",
            )
        buffers, rms = self._refresh()
        try:
            call_us, seen = self.verify(contender, buffers, rms)
            samples, censored, launches = self._timed(contender, call_us, limit_us)
            self._hold_to_floor(samples)
            if not censored:
                self._recheck(contender, buffers, rms)
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
        seen |= contender.algorithm.properties()
        return Outcome(
            number=number,
            status=Status.OK,
            samples=tuple(samples),
            censored=censored,
            launches=launches,
            cost_s=time.perf_counter() - begun,
            properties=seen,
        )
