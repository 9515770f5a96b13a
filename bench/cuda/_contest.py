"""Contests: contenders timed interleaved, each checked before and after on new inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelarc.bench.cuda._arena import FILLINGS, PLAIN
from kernelarc.bench.cuda._clock import TimedGraph
from kernelarc.bench.cuda._jobbench import Contender, FindingError, JobBench
from kernelarc.bench.cuda._judge import OUT_OF_BOUNDS, Finding, Slot
from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.genomes import LtRow


class ContestRing:
    """Holds contests on one job.

    Args:
        bench: The job's.
    """

    def __init__(self, bench: JobBench) -> None:
        self._bench = bench

    def run(self, rows: Sequence[LtRow], rounds: int, cache: str, seed: int) -> ContestReply:
        """Time contenders interleaved on fresh inputs, each checked before and after."""
        failures: dict[int, str] = {}
        self._bench.forget()
        contenders = self._admitted(rows, failures)
        for buffers in self._bench.arena.sets:
            self._bench.arena.fill(buffers, self._bench.next_seed())
        self._bench.prepare_all(aliased=self._bench.task.job.in_place)
        graphs = {
            i: self._bench.graphs(contender, call_us, cache)
            for i, (contender, call_us) in contenders.items()
        }
        for graph in (graph for made in graphs.values() for graph in made * 2):
            graph.replay()
        samples = self._interleaved(len(rows), graphs, rounds, seed)
        self._still_right(contenders, graphs, failures, warm=cache == "warm")
        for i in failures:
            samples[:, i] = math.nan
        launches = max((made[0].calls for made in graphs.values()), default=1)
        return ContestReply(
            samples=tuple(tuple(float(v) for v in row) for row in samples),
            failures=failures,
            launches=launches,
        )

    def _admitted(
        self, rows: Sequence[LtRow], failures: dict[int, str]
    ) -> dict[int, tuple[Contender, float]]:
        """Check every contender on every kind of input; name those that fail."""
        made = {i: self._bench.contender(row) for i, row in enumerate(rows)}
        failures |= {i: "illegal algorithm" for i, c in made.items() if c is None}
        good = {i: (c, 0.0) for i, c in made.items() if c is not None}
        buffers = self._bench.arena.sets[0]
        for name in FILLINGS:
            rms = self._inputs(name)
            for i, (contender, _) in list(good.items()):
                try:
                    good[i] = (contender, self._bench.verify(contender, buffers, rms)[0])
                except FindingError as error:
                    failures[i] = error.finding.failure
                    del good[i]
                    rms = self._inputs(name)  # the culprit may have written to them
        return good

    def _inputs(self, name: str) -> float:
        """Fill the canary and the first set anew; return the root mean square of its reference."""
        bench = self._bench
        bench.new_canary(ones=name == "negated")
        bench.arena.fill(bench.arena.sets[0], bench.next_seed(), FILLINGS[name])
        return bench.arena.refer(bench.arena.sets[0], bench.arena.reference)

    def _interleaved(
        self, width: int, graphs: dict[int, list[TimedGraph]], rounds: int, seed: int
    ) -> Any:
        """Return samples, shape (rounds, width): each round every contender once, in new order."""
        rng = np.random.default_rng(seed)
        samples = np.full((rounds, width), math.nan)
        for turn in range(rounds):
            for i in rng.permutation(list(graphs)):
                made = graphs[int(i)]
                samples[turn, int(i)] = made[turn % len(made)].replay().call_us
        return samples

    def _still_right(
        self,
        contenders: dict[int, tuple[Contender, float]],
        graphs: dict[int, list[TimedGraph]],
        failures: dict[int, str],
        *,
        warm: bool,
    ) -> None:
        """Check the outputs of the very graphs that were timed, on the first set."""
        arena, kernels = self._bench.arena, self._bench.tools.kernels
        buffers = arena.sets[0]
        arena.fill(buffers, self._bench.next_seed(), PLAIN)
        rms = arena.refer(buffers, arena.reference)
        bounds = self._bench.ruler.bounds(rms)
        for i, (contender, _) in contenders.items():
            kernels.clear()
            self._bench.prepare_all(aliased=contender.aliased)
            graph = graphs[i][0]
            # An aliased graph that visits the set more than once adds its product repeatedly.
            once = not warm and graph.calls <= arena.count
            if once or not contender.aliased:
                graph.replay()
            else:
                self._bench.call(contender, buffers)()
            kernels.compare(buffers.out, int(arena.reference.data.ptr), bounds, Slot.LAST)
            self._bench.check_bands(contender)
            reports = kernels.read()
            found = self._bench.ruler.judge(
                reports[Slot.LAST], buffers.out.count, rms, "after timing"
            )
            if reports[Slot.BANDS]["damaged"] or reports[Slot.SCRATCH_BAND]["damaged"]:
                arena.mend()
                found = Finding(OUT_OF_BOUNDS, "guard bands changed while timing")
            if found is not None:
                failures[i] = found.failure
