"""A gain that two workloads agree on says between which shapes it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelarc.engine._pool import ConclusionPool
from kernelarc.engine._predicates import shape_predicate, with_predicate
from kernelarc.genomes import Conclusion, ConclusionKind, Estimate, GeneChange, Workload
from kernelarc.islands._wins import Wins, holds_on

SHAPES = {m: Workload(operator="op", axes={"M": m, "N": 2560}) for m in (256, 1024, 4096)}


def arenas() -> Mapping[str, Any]:
    return {w.fingerprint: SimpleNamespace(workload=w) for w in SHAPES.values()}


def win(m: int, *, before: int = 1, after: int = 4) -> Conclusion:
    return Conclusion(
        kind=ConclusionKind.WIN,
        operator="op",
        workload=SHAPES[m].fingerprint,
        route="r",
        island="library",
        why="seen in a test",
        changes=(GeneChange(gene="custom", before=before, after=after),),
        speedup=Estimate(value=1.02, low=1.01, high=1.03, n=20),
    )


def test_a_predicate_spans_the_shapes() -> None:
    shapes = [SHAPES[m].axes for m in (1024, 256)]
    assert shape_predicate(shapes) == "256 <= M <= 1024 and N == 2560"


def test_one_workload_alone_says_nothing_of_shapes() -> None:
    pool = ConclusionPool(None)
    assert with_predicate(win(256), pool, arenas()).predicate is None
    pool.admit(win(256))
    assert with_predicate(win(256, before=2), pool, arenas()).predicate is None


def test_another_workload_confirms_whatever_it_changed_from() -> None:
    pool = ConclusionPool(None)
    pool.admit(win(256, before=1))
    assert with_predicate(win(1024, after=5), pool, arenas()).predicate is None
    confirmed = with_predicate(win(1024, before=2), pool, arenas())
    assert confirmed.predicate == "256 <= M <= 1024 and N == 2560"
    assert confirmed.fingerprint == win(1024, before=2).fingerprint


@pytest.mark.parametrize(
    ("axes", "holds"), [({"M": 512, "N": 2560}, True), ({"M": 8192, "N": 2560}, False), ({}, False)]
)
def test_islands_know_whether_it_is_said_of_their_shape(
    axes: Mapping[str, int], holds: bool
) -> None:
    assert holds_on("256 <= M <= 1024 and N == 2560", axes) is holds
    assert not holds_on(None, axes)


def test_a_confirmed_win_is_tried_more_often() -> None:
    pool = ConclusionPool(None)
    pool.admit(win(256))
    confirmed = with_predicate(win(1024), pool, arenas())
    wins, rng = Wins({"M": 512, "N": 2560}), np.random.default_rng(0)
    wins.receive(confirmed)
    wins.receive(win(4096, after=7))
    drawn = [wins.draw(rng) for _ in range(400)]
    often = sum(one is not None and one.conclusion is confirmed for one in drawn)
    assert 260 < often < 340, "three to one, at equal gains"
