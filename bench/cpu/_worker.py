"""The worker: a process of its own that runs candidates and may die of them.

Started as ``python -c "from kernelarc.bench.cpu._worker import main; main(...)"``. It ends when the
coordinator's end of its pipe closes, even in the middle of a candidate that hangs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from kernelarc.bench.cpu._algebra import value_source
from kernelarc.bench.cpu._baseline import baseline_forms
from kernelarc.bench.cpu._contest import BaselineContender, best_form, contest
from kernelarc.bench.cpu._judge import FILL_S, Grounds, judge
from kernelarc.bench.cpu._library import LoadedKernel
from kernelarc.bench.cpu._messages import (
    BaselineNamed,
    BaselineOrder,
    Beat,
    ContestOrder,
    ContestOutcome,
    Fault,
    JudgeOrder,
    Kernel,
    Outcome,
    Prepare,
    Ready,
)
from kernelarc.bench.cpu._refusal import Refusal
from kernelarc.bench.cpu._small import SmallJobs
from kernelarc.bench.cpu._stage import Stage
from kernelarc.genomes import KernelarcError, StoppedError, axis_values

_STAGES_KEPT = 2
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Workbench:
    """Carries out orders on one problem."""

    def __init__(self, prepare: Prepare, say: Callable[[object], None]) -> None:
        self._operator = prepare.operator
        self._workloads = {w.fingerprint: w for w in prepare.workloads}
        self._rng = np.random.default_rng(prepare.seed)
        self._say = say
        self._grounds: dict[str, Grounds] = {}
        self._baselines: dict[str, BaselineContender] = {}

    def carry_out(self, order: object) -> object:
        """Carry out one order and return the answer."""
        if isinstance(order, JudgeOrder):
            return self._judge(order)
        if isinstance(order, ContestOrder):
            return self._contest(order)
        assert isinstance(order, BaselineOrder)
        return BaselineNamed(name=self._baseline(order.workload).name)

    def _beat(self, stage: str, allowance_s: float) -> None:
        stage, _, contender = stage.partition("\0")
        self._say(Beat(stage=stage, allowance_s=allowance_s, contender=contender))

    def _on(self, workload: str) -> Grounds:
        """Return what a workload is judged on, made when first needed; few are kept."""
        if workload not in self._grounds:
            while len(self._grounds) >= _STAGES_KEPT:
                del self._grounds[next(iter(self._grounds))]
            bound = self._workloads[workload]
            self._beat("making buffers", FILL_S)
            self._grounds[workload] = Grounds(
                stage=Stage(self._operator, bound, value_source(self._operator, bound)),
                small=SmallJobs(self._operator, bound),
                rng=self._rng,
                beat=self._beat,
            )
        return self._grounds[workload]

    def _load(self, kernel: Kernel, workload: str) -> LoadedKernel:
        axes = axis_values(self._operator, self._workloads[workload])
        return LoadedKernel(kernel, tuple(axes))

    def _judge(self, order: JudgeOrder) -> Outcome:
        grounds = self._on(order.workload)
        self._beat("loading", order.hang_s)
        try:
            kernel = self._load(order.kernel, order.workload)
        except Refusal as refusal:
            return refusal.outcome()
        outcome = judge(kernel, order, grounds)
        if not outcome.suspect:  # unloading code that still runs would end this process
            kernel.close()
        return outcome

    def _contest(self, order: ContestOrder) -> ContestOutcome:
        grounds = self._on(order.workload)
        baseline = self._baseline(order.workload) if order.baseline else None
        kernels, refused = [], {}
        for kernel in order.kernels:
            self._say(Beat(stage="loading", allowance_s=order.hang_s, contender=kernel.name))
            try:
                kernels.append(self._load(kernel, order.workload))
            except Refusal as refusal:
                refused[kernel.name] = refusal.failure
        outcome = contest(order, kernels, baseline, grounds)
        if not outcome.suspect:
            for loaded in kernels:
                loaded.close()
        return _with_refused(outcome, refused, [kernel.name for kernel in order.kernels])

    def _baseline(self, workload: str) -> BaselineContender:
        if workload not in self._baselines:
            forms = baseline_forms(self._operator).items()
            contenders = [BaselineContender(f"baseline:{name}", form) for name, form in forms]
            self._baselines[workload] = best_form(contenders, self._on(workload))
        return self._baselines[workload]


def _with_refused(
    outcome: ContestOutcome, refused: dict[str, str], names: list[str]
) -> ContestOutcome:
    """Put back the columns of kernels that could not even be loaded."""
    if not refused:
        return outcome
    order = [*names, *(n for n in outcome.names if n.startswith("baseline:"))]
    places = {name: place for place, name in enumerate(outcome.names)}
    rows = tuple(
        tuple(row[places[name]] if name in places else float("nan") for name in order)
        for row in outcome.samples
    )
    return ContestOutcome(
        names=tuple(order),
        samples=rows,
        failures={**outcome.failures, **refused},
        suspect=outcome.suspect,
    )


def _end_with(pipe: int) -> None:
    """End this process when the other end of a pipe closes, whatever it is doing."""
    watched = select.poll()
    watched.register(pipe, 0)  # errors and the hang-up are reported unasked
    watched.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def _attach(parent: int, pipe: int) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _serve(orders: Connection[Any, Any], answers: Connection[Any, Any]) -> None:
    answers.send(Ready())
    bench = Workbench(orders.recv(), answers.send)
    answers.send(Ready())
    while True:
        order = orders.recv()
        try:
            answers.send(bench.carry_out(order))
        except KernelarcError as error:
            answers.send(Fault(message=str(error), exit_code=error.exit_code))
        except MemoryError:
            text = "not enough memory for the inputs of the workload: make room, then resume"
            answers.send(Fault(message=text, exit_code=StoppedError.exit_code))
        gc.collect()


def main(orders: int, answers: int, parent: int) -> None:
    """Serve orders until the pipe closes."""
    _attach(parent, orders)
    gc.freeze()
    gc.disable()
    try:
        _serve(Connection(orders, writable=False), Connection(answers, readable=False))
    except (EOFError, BrokenPipeError):
        os._exit(0)
