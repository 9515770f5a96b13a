"""Workers and what is said when one dies: only the culprit is blamed, nothing is lost."""

from __future__ import annotations

import math

from kernelarc.bench.cpu._crew import Crew, WorkerLost
from kernelarc.bench.cpu._messages import (
    BaselineNamed,
    BaselineOrder,
    ContestOrder,
    ContestOutcome,
    JudgeOrder,
    Kernel,
    Outcome,
    Prepare,
)
from kernelarc.bench.cpu._refusal import ESCAPED_CLOCK, KILLED
from kernelarc.genomes import Problem, Status, StoppedError

_CLOCK_RATIO = 1.5
_CLOCK_SLACK_S = 0.1
_BASELINE_PREFIX = "baseline:"


class Bench:
    """Gives orders to the crew and turns deaths into outcomes.

    A worker that dies may die of what an earlier candidate did to it. So a death in a worker that
    has run something before is tried again in a fresh one, and only a second death is blamed.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._crew = Crew(
            Prepare(operator=problem.operator, workloads=problem.workloads, seed=(seed,))
        )
        self.refill = self._crew.refill
        self.settle = self._crew.settle
        self.close = self._crew.close

    @property
    def generation(self) -> int:
        """How many workers were put to work so far."""
        return self._crew.generation

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the worker and its spare."""
        return self._crew.pids()

    def judge(self, order: JudgeOrder) -> Outcome:
        """Judge one candidate; its death is an outcome."""
        try:
            outcome = self._twice(order)
        except WorkerLost as lost:
            return Outcome(status=lost.status, failure=lost.failure, message=lost.message)
        assert isinstance(outcome, Outcome)
        text = clock_fault(outcome.loop_s, self._crew.timing_wall_s())
        if outcome.suspect:
            self._crew.dismiss()
        if outcome.status is Status.OK and text is not None:
            self._crew.dismiss()
            return Outcome(status=Status.REJECTED, failure=ESCAPED_CLOCK, message=text)
        return outcome

    def _twice(self, order: object) -> object:
        """Ask; after a death that may not be this order's fault, ask once more.

        Raises:
            WorkerLost: The death is this order's.
        """
        fresh = self._crew.fresh
        try:
            return self._crew.ask(order)
        except WorkerLost as lost:
            if lost.status is Status.TIMEOUT or (fresh and lost.failure != KILLED):
                raise
            return self._crew.ask(order)

    def contest(
        self,
        kernels: tuple[Kernel, ...],
        *,
        workload: str,
        rounds: int,
        baseline: bool,
        hang_s: float,
        floor_us: float,
    ) -> ContestOutcome:
        """Play a contest; who dies in it fails, and the others play again without it."""
        failures: dict[str, str] = {}
        while kernels or baseline:
            order = ContestOrder(
                kernels=kernels,
                workload=workload,
                rounds=rounds,
                baseline=baseline,
                hang_s=hang_s,
                floor_us=floor_us,
            )
            try:
                outcome = self._twice(order)
            except WorkerLost as lost:
                failures[_blamed(lost, kernels)] = lost.failure
                kernels = tuple(kernel for kernel in kernels if kernel.name not in failures)
                continue
            assert isinstance(outcome, ContestOutcome)
            if outcome.suspect:
                self._crew.dismiss()
            return ContestOutcome(
                names=outcome.names,
                samples=outcome.samples,
                failures={**outcome.failures, **failures},
            )
        return ContestOutcome(names=(), samples=(), failures=failures)

    def baseline_name(self, workload: str) -> str:
        """Return the best baseline's name.

        Raises:
            StoppedError: The worker died of it.
        """
        try:
            named = self._twice(BaselineOrder(workload=workload))
        except WorkerLost as lost:
            raise StoppedError(f"the baseline cannot be timed: {lost.message}") from None
        assert isinstance(named, BaselineNamed)
        return named.name.removeprefix(_BASELINE_PREFIX)


def _blamed(lost: WorkerLost, kernels: tuple[Kernel, ...]) -> str:
    """Return the contender that a worker died of.

    Raises:
        StoppedError: None of the candidates: the instrument is at fault.
    """
    if lost.contender not in {kernel.name for kernel in kernels}:
        raise StoppedError(f"a contest cannot be timed: {lost.message}") from None
    return lost.contender


def clock_fault(loop_s: float, wall_s: float) -> str | None:
    """Say that a worker's clock disagrees with ours, or None.

    Args:
        loop_s: Length of the timing loop as the process that ran the candidate says.
        wall_s: The same as another process saw it; a little longer, as messages take time.
    """
    if not math.isfinite(loop_s) or wall_s > _CLOCK_RATIO * loop_s + _CLOCK_SLACK_S:
        return f"the timing loop took {wall_s:.3g} s by the clock, the worker claims {loop_s:.3g} s"
    return None
