"""Contests: contenders of any route timed interleaved, each checked before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernelarc.bench.cuda._clock import TimedCalls, TimedGraph
from kernelarc.bench.cuda._jobbench import FindingError
from kernelarc.bench.cuda._judge import OUT_OF_BOUNDS, Slot
from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.bench.kernels._bench import OperatorBench
from kernelarc.bench.kernels._filling import FILLINGS
from kernelarc.bench.kernels._launchable import REFUSED, Launchable
from kernelarc.bench.kernels._program import LaunchRefusedError

Timed: TypeAlias = TimedGraph | TimedCalls
_BASELINE_US, _LEAST_ROUNDS = 1e6, 8  # of a contest, for a slow baseline
_OF_ANY = ("plain", "tripled", "negated")  # what is not linear may not bear the wilder ones


class OperatorRing:
    """Holds contests on one job.

    Args:
        bench: The job's.
    """

    def __init__(self, bench: OperatorBench) -> None:
        self._bench = bench

    def run(
        self, made: Mapping[int, Launchable | str], rounds: int, cache: str, seed: int
    ) -> ContestReply:
        """Time contenders interleaved on fresh inputs, each checked before and after.

        Args:
            made: By column a contender, or the class of the failure that it could not be made.
            rounds: How often each is timed.
            cache: ``"cold"`` or ``"warm"``.
            seed: Of the order within each round.
        """
        failures = {i: one for i, one in made.items() if isinstance(one, str)}
        self._bench.forget()
        good = {i: one for i, one in made.items() if not isinstance(one, str)}
        admitted = self._admitted(good, failures)
        for buffers in self._bench.memory.sets:
            self._bench.fill(buffers)
            self._bench.memory.prepare(buffers, {})
        graphs = {i: self._recorded(good[i], call_us, cache) for i, call_us in admitted.items()}
        rare = dict.fromkeys(graphs, 1)
        for i, graph in [*graphs.items()] * 2:
            span_us = graph.replay().call_us * graph.calls
            rare[i] = 1 if good[i].checked else self._stride(span_us, rounds)
        samples = self._interleaved(len(made), graphs, rounds, seed, rare)
        self._still_right({i: good[i] for i in admitted}, failures)
        for i in failures:
            samples[:, i] = math.nan
        return ContestReply(
            samples=tuple(tuple(float(v) for v in row) for row in samples),
            failures=failures,
            launches=max((graph.calls for graph in graphs.values()), default=1),
        )

    def _fillings(self) -> Sequence[str]:
        job = self._bench.job
        if job.custom:
            return ("plain",)
        return tuple(FILLINGS) if job.product is not None else _OF_ANY

    def _admitted(
        self, good: Mapping[int, Launchable], failures: dict[int, str]
    ) -> dict[int, float]:
        """Check every contender on every kind of input; return the microseconds of one call."""
        admitted = dict.fromkeys(good, 0.0)
        buffers = self._bench.memory.sets[0]
        for name in self._fillings():
            rms = self._inputs(name)
            for i in list(admitted):
                try:
                    admitted[i] = self._tried(good[i], buffers, rms)
                except FindingError as error:
                    failures[i] = error.finding.failure
                    del admitted[i]
                    rms = self._inputs(name)  # the culprit may have written to them
                except LaunchRefusedError:
                    failures[i] = REFUSED
                    del admitted[i]
        return admitted

    def _recorded(self, one: Launchable, call_us: float, cache: str) -> Timed:
        """Return a contender's span; a baseline that no capture takes is launched directly."""
        try:
            return self._bench.graph(one, call_us, cache)
        except Exception:
            if one.checked:
                raise
            return self._bench.uncaptured(one, cache)

    def _tried(self, one: Launchable, buffers: Any, rms: Mapping[str, float]) -> float:
        if one.checked:
            return self._bench.verify(one, buffers, rms)[0]
        tools = self._bench.tools
        one.call(buffers)()  # warms what it allocates
        return tools.clock.once(one.call(buffers), lambda: tools.kernels.sweep(*tools.sweep))

    def _inputs(self, name: str) -> dict[str, float]:
        """Fill the canary and the first set anew; return the reference's root mean squares."""
        bench = self._bench
        bench.new_canary(ones=name == "negated")
        buffers = bench.memory.sets[0]
        bench.fill(buffers, FILLINGS[name])
        return bench.refer(buffers, bench.memory.reference)

    @staticmethod
    def _stride(span_us: float, rounds: int) -> int:
        """Return in every how many-th round a baseline takes part: a slow one in some only."""
        allowed = max(_LEAST_ROUNDS, int(_BASELINE_US / max(span_us, 1.0)))
        return max(1, rounds // allowed)

    @staticmethod
    def _interleaved(
        width: int, graphs: Mapping[int, Timed], rounds: int, seed: int, rare: Mapping[int, int]
    ) -> Any:
        """Return samples, shape (rounds, width): each round every contender once, in new order.

        One that is rare takes part in every so many-th; in the others its place holds NaN.
        """
        rng = np.random.default_rng(seed)
        samples = np.full((rounds, width), math.nan)
        for turn in range(rounds):
            for i in map(int, rng.permutation(list(graphs))):
                if turn % rare[i] == 0:
                    samples[turn, i] = graphs[i].replay().call_us
        return samples

    def _still_right(self, good: Mapping[int, Launchable], failures: dict[int, str]) -> None:
        """Check every contender once more, on inputs that it has not seen."""
        bench = self._bench
        buffers = bench.memory.sets[-1]
        bench.fill(buffers)
        rms = bench.refer(buffers, bench.memory.reference)
        for i, one in good.items():
            if not one.checked:
                continue
            bench.tools.kernels.clear()
            bench.checked_run(one, buffers, rms, Slot.LAST)
            bench.check_bands(one)
            found = bench.found_after(bench.tools.kernels.read(), rms)
            if found is not None:
                failures[i] = found.failure
                if found.failure == OUT_OF_BOUNDS:
                    bench.memory.mend()
