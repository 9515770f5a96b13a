"""What the judge of compiled kernels makes of a wall clock that saw more than the device's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from tests.unit.host_device import Graph
from tests.unit.test_kernel_judge import HostBench

from kernelarc.bench.cuda._clock import Segment, Span
from kernelarc.bench.cuda._judge import ESCAPED_CLOCK
from kernelarc.genomes import Status


class Late:
    """A graph of which some replays are late on the wall."""

    def __init__(self, graph: Graph, late: Iterator[bool]) -> None:
        self._graph, self._late, self.calls = graph, late, graph.calls

    def replay(self) -> Span:
        return replace(self._graph.replay(), escaped=next(self._late))


@pytest.mark.parametrize(
    ("pattern", "escapes"),
    [((False,), False), ((True, True, False), False), ((True,), True)],
    ids=["never", "now and then", "every time"],
)
def test_work_that_escapes_every_time_is_refused(
    pattern: tuple[bool, ...], escapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 18: a host that is late now and then is no fault of the candidate's."""
    bench = HostBench("product")
    clock: Any = bench.bench.tools.clock
    graph = clock.graph

    def late(segments: list[Segment]) -> Late:
        return Late(graph(segments), cycle(pattern))

    monkeypatch.setattr(clock, "graph", late)
    outcome = bench.evaluate(bench.honest)
    if escapes:
        assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, ESCAPED_CLOCK)
    else:
        assert outcome.status is Status.OK, outcome.message
