"""A contest in the worker: contenders timed in turn, A B C C B A ..., and checked each time."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from kernelarc.bench.cpu._baseline import BaselineForm
from kernelarc.bench.cpu._checks import check_run
from kernelarc.bench.cpu._judge import (
    FILL_S,
    PAUSE_S,
    Grounds,
    check_small,
    launches_for,
)
from kernelarc.bench.cpu._library import LoadedKernel
from kernelarc.bench.cpu._messages import ContestOrder, ContestOutcome
from kernelarc.bench.cpu._refusal import FASTER_THAN_PHYSICS, Refusal
from kernelarc.bench.cpu._stage import Slot
from kernelarc.bench.cpu._watch import ProcessWatch
from kernelarc.genomes import Status

_FORM_ROUNDS = 3


class Contender(ABC):
    """Something that is timed in a contest."""

    name: str
    launches = 1

    @abstractmethod
    def prove(self, grounds: Grounds, hang_s: float, watch: ProcessWatch) -> None:
        """Show on small jobs that it is right, before the real shape is touched.

        Raises:
            Refusal: It is not.
        """

    @abstractmethod
    def run(self, slots: Sequence[Slot]) -> float:
        """Run once on each slot; return the seconds from first to last."""


class KernelContender(Contender):
    """A compiled genome."""

    def __init__(self, kernel: LoadedKernel) -> None:
        self.name = kernel.name
        self._kernel = kernel

    def prove(self, grounds: Grounds, hang_s: float, watch: ProcessWatch) -> None:
        """Run every small job."""
        check_small(self._kernel, grounds, hang_s, watch)

    def run(self, slots: Sequence[Slot]) -> float:
        """Call the kernel."""
        return self._kernel.run([self._kernel.arguments(slot.buffers) for slot in slots])


class BaselineContender(Contender):
    """One form of the baseline."""

    def __init__(self, name: str, form: BaselineForm) -> None:
        self.name = name
        self._form = form

    def prove(self, grounds: Grounds, hang_s: float, watch: ProcessWatch) -> None:
        """NumPy needs no small jobs: it is only checked on the real shape."""

    def run(self, slots: Sequence[Slot]) -> float:
        """Call NumPy."""
        call = self._form.form
        with self._form.around():
            started = time.perf_counter_ns()
            for slot in slots:
                call(slot.buffers.inputs, slot.buffers.outputs)
            return (time.perf_counter_ns() - started) * 1e-9


class Match:
    """One contest: who is still in it, and what was timed."""

    def __init__(
        self, contenders: Sequence[Contender], grounds: Grounds, *, hang_s: float, floor_us: float
    ) -> None:
        self._contenders = list(contenders)
        self._grounds = grounds
        self._hang_s = hang_s
        self._floor_us = floor_us
        self._watch = ProcessWatch()
        self.failures: dict[str, str] = {}
        self.suspect = False

    def play(self, rounds: int) -> list[tuple[float, ...]]:
        """Prove all contenders, then time those that are right; one row a round, microseconds."""
        for contender in self._contenders:
            self._guarded(contender, self._prove)
        self._grounds.stage.stir(self._grounds.rng)
        rows = []
        for number in range(rounds):
            order = list(enumerate(self._contenders))
            row = [math.nan] * len(order)
            for place, contender in order if number % 2 == 0 else reversed(order):
                self._last = number == rounds - 1
                row[place] = self._guarded(contender, self._timed)
            rows.append(tuple(row))
        return self._without_failed(rows)

    def _guarded(self, contender: Contender, step: object) -> float:
        """Take one step with a contender that is still in; a refusal ends its part."""
        if contender.name in self.failures:
            return math.nan
        try:
            assert callable(step)
            return float(step(contender))
        except Refusal as refusal:
            self.failures[contender.name] = refusal.failure
            self.suspect |= refusal.suspect
            return math.nan

    def _beat(self, contender: Contender, stage: str) -> None:
        self._grounds.beat(f"{stage}\0{contender.name}", self._hang_s + FILL_S / 10)

    def _prove(self, contender: Contender) -> float:
        """Small jobs, then the real shape twice on different values; then set the launches."""
        self._beat(contender, "proving")
        grounds = replace(self._grounds, beat=lambda stage, _: self._beat(contender, stage))
        contender.prove(grounds, self._hang_s, self._watch)
        slot, rng = self._grounds.stage.next(), self._grounds.rng
        slot.fill(rng)
        self._run_alone(contender, slot)
        self._checked(slot, whole=True)
        slot.stir(rng)
        seconds = self._run_alone(contender, slot)
        self._checked(slot, whole=False)
        contender.launches = launches_for(seconds * 1e6, len(self._grounds.stage.slots))
        return seconds

    def _run_alone(self, contender: Contender, slot: Slot) -> float:
        self._beat(contender, "proving")
        time.sleep(PAUSE_S)
        seconds = contender.run([slot])
        self._watch.check()
        return seconds

    def _timed(self, contender: Contender) -> float:
        used = [self._grounds.stage.next() for _ in range(contender.launches)]
        self._beat(contender, "timing")
        time.sleep(PAUSE_S)
        time_us = contender.run(used) * 1e6 / len(used)
        self._watch.check()
        if self._last:
            self._checked(used[-1], whole=False)
        for slot in used:
            slot.stir(self._grounds.rng)
        if time_us < self._floor_us:
            raise Refusal(Status.REJECTED, FASTER_THAN_PHYSICS)
        return time_us

    def _checked(self, slot: Slot, *, whole: bool) -> None:
        """Check what a contender wrote; of large outputs all rows, or some."""
        rows_of = None if whole else self._grounds.rng
        try:
            check_run(slot, "contest", lambda: slot.compare(rows_of))
        except Refusal:
            slot.spoil()
            raise

    def _without_failed(self, rows: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        failed = [contender.name in self.failures for contender in self._contenders]
        return [
            tuple(math.nan if bad else value for value, bad in zip(row, failed, strict=True))
            for row in rows
        ]


def best_form(forms: Sequence[BaselineContender], grounds: Grounds) -> BaselineContender:
    """Return the fastest of a baseline's forms, by the median of a few interleaved rounds."""
    if len(forms) == 1:
        return forms[0]
    match = Match(forms, grounds, hang_s=FILL_S, floor_us=0.0)
    columns = list(zip(*match.play(_FORM_ROUNDS), strict=True))
    middle = [sorted(column)[len(column) // 2] for column in columns]
    right = [i for i, form in enumerate(forms) if form.name not in match.failures]
    return forms[min(right, key=lambda i: middle[i])] if right else forms[0]


def contest(
    order: ContestOrder,
    kernels: Sequence[LoadedKernel],
    baseline: Contender | None,
    grounds: Grounds,
) -> ContestOutcome:
    """Play a contest; the baseline, where it takes part, is the last column."""
    contenders: list[Contender] = [KernelContender(kernel) for kernel in kernels]
    if baseline is not None:
        contenders.append(baseline)
    match = Match(contenders, grounds, hang_s=order.hang_s, floor_us=order.floor_us)
    rows = match.play(order.rounds)
    return ContestOutcome(
        names=tuple(contender.name for contender in contenders),
        samples=tuple(rows),
        failures=match.failures,
        suspect=match.suspect,
    )
