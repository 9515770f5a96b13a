"""What the judge of kernels makes of a wall clock that saw more than the device's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.host_device import Graph
from tests.unit.test_kernel_judge import HostBench

from kernelarc.bench.cuda import _escapes
from kernelarc.bench.cuda._clock import Segment, Span
from kernelarc.bench.cuda._escapes import DEVICE_BUSY, DeviceBusyError, escapes, own_work
from kernelarc.bench.cuda._jobbench import FindingError, JobBench
from kernelarc.bench.cuda._judge import ESCAPED_CLOCK
from kernelarc.genomes import Status

NEVER, ALWAYS = (False,), (True,)


class Late:
    """A graph of which some replays are late on the wall."""

    def __init__(self, graph: Graph, late: Iterator[bool]) -> None:
        self._graph, self._late, self.calls = graph, late, graph.calls

    def replay(self) -> Span:
        return replace(self._graph.replay(), escaped=next(self._late))


@pytest.mark.parametrize(
    ("pattern", "own", "outcome"),
    [
        (NEVER, NEVER, (Status.OK, None)),
        ((True, True, False), NEVER, (Status.OK, None)),
        (ALWAYS, NEVER, (Status.WRONG_RESULT, ESCAPED_CLOCK)),
        (ALWAYS, ALWAYS, (Status.INTERRUPTED, DEVICE_BUSY)),
        (ALWAYS, (False, False, True), (Status.INTERRUPTED, DEVICE_BUSY)),
        ((False, True, True, True, False), NEVER, (Status.OK, None)),
    ],
    ids=["never", "now and then", "every time", "busy", "busy by turns", "a bad moment"],
)
def test_only_work_that_alone_is_late_every_time_is_refused(
    pattern: Sequence[bool],
    own: Sequence[bool],
    outcome: tuple[Status, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row 18: neither a host that is late now and then nor a busy device condemns anybody."""
    monkeypatch.setattr(_escapes, "_PAUSES_S", (0.0, 0.0))
    bench = HostBench("product")
    clock: Any = bench.bench.tools.clock
    graph = clock.graph
    patterns = chain([cycle(pattern)], repeat(cycle(own)))  # the candidate's is captured first

    def late(segments: list[Segment]) -> Late:
        return Late(graph(segments), next(patterns))

    monkeypatch.setattr(clock, "graph", late)
    found = bench.evaluate(bench.honest)
    assert (found.status, found.failure) == outcome, found.message
    if outcome[1] == DEVICE_BUSY:
        assert "other work runs on this GPU" in found.message
        assert "\n" not in found.message


def test_a_trial_ends_with_the_device_settled_before_every_replay() -> None:
    """What one left running on the device must not make the other late."""
    done: list[str] = []

    def replay(name: str, *, late: bool) -> Span:
        done.append(name)
        return Span(1.0, late)

    assert escapes(
        lambda: replay("it", late=True),
        lambda: replay("own", late=False),
        lambda: done.append("wait"),
    )
    assert done == ["wait", "it", "wait", "own"] * (len(done) // 4)
    assert len(done) == 4 * 8


def test_it_is_tried_again_after_a_pause_where_the_moment_was_bad() -> None:
    slept: list[float] = []
    own = chain([True], repeat(False))
    late = escapes(
        lambda: Span(1.0, True),
        lambda: Span(1.0, next(own)),
        lambda: None,
        sleep=slept.append,
    )
    assert late and len(slept) == 1
    with pytest.raises(DeviceBusyError, match="8 of 8 replays of the judge's own kernels"):
        escapes(lambda: Span(1.0, True), lambda: Span(1.0, True), lambda: None, sleep=slept.append)
    assert slept[1:] == [0.1, 0.4]


@pytest.mark.parametrize(("load", "most"), [(0.0, 0.0), (0.1, 0.002), (0.5, 0.002), (0.9, 0.002)])
def test_a_shared_device_hardly_ever_condemns_an_honest_candidate(load: float, most: float) -> None:
    """Each replay of whoever is late with the same chance, 4000 trials."""
    rng = np.random.default_rng(7)

    def replay() -> Span:
        return Span(1.0, bool(rng.random() < load))

    condemned = 0
    for _ in range(4000):
        try:
            condemned += escapes(replay, replay, lambda: None, sleep=lambda _: None)
        except DeviceBusyError:
            continue
    assert condemned / 4000 <= most


def test_the_judges_own_work_lasts_as_long_as_what_it_stands_beside() -> None:
    clock: Any = HostBench("product").bench.tools.clock
    stream = clock._stream

    def sweep() -> None:
        stream.launch(lambda: None)

    calls = {us: own_work(clock, sweep, us).calls for us in (10.0, 1500.0, 4000.0, 1e9)}
    assert calls == {10.0: 150, 1500.0: 150, 4000.0: 400, 1e9: 512}


class _Alternating:
    """A span that adds its product, or its twin that takes it away; late as it is told."""

    calls = 4

    def __init__(self, sign: int, added: list[int], late: Iterator[bool]) -> None:
        self._sign, self._added, self._late = sign, added, late

    def replay(self) -> Span:
        self._added.append(self._sign)
        assert sum(self._added) in {0, 1}, "values do not grow"
        return Span(600.0, next(self._late))


@pytest.mark.parametrize(
    ("pattern", "own", "ends"),
    [
        (NEVER, NEVER, None),
        ((True, True, False), NEVER, None),
        (ALWAYS, NEVER, FindingError),
        (ALWAYS, ALWAYS, DeviceBusyError),
    ],
    ids=["never", "now and then", "every time", "busy"],
)
def test_the_library_alone_is_judged_by_the_same_rule(
    pattern: Sequence[bool],
    own: Sequence[bool],
    ends: type[Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_escapes, "_PAUSES_S", (0.0, 0.0))
    stand_in: Any = HostBench("product").bench.tools
    graph, judge = stand_in.clock.graph, cycle(own)
    monkeypatch.setattr(stand_in.clock, "graph", lambda segments: Late(graph(segments), judge))
    job: Any = object.__new__(JobBench)
    job.tools, job.task = stand_in, SimpleNamespace(cache="cold")
    added: list[int] = []
    late = cycle(pattern)
    job.graphs = lambda *given: [_Alternating(sign, added, late) for sign in (1, -1)]
    if ends is None:
        spans, censored, calls = job._timed(None, 600.0, None)
        assert (spans, censored, calls) == ([600.0] * 4, False, 4)
        return
    with pytest.raises(ends) as caught:
        job._timed(None, 600.0, None)
    if ends is FindingError:
        assert caught.value.finding.failure == ESCAPED_CLOCK  # type: ignore[attr-defined]
