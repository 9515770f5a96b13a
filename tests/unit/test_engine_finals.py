"""Finals, neighbours and audits over several visits: what decides is side by side."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernelarc.engine._compare import joined_contest, visited_speedup
from kernelarc.engine._ledger import Ledger
from kernelarc.engine._nearness import distance, nearest_first
from kernelarc.genomes import Contest, Estimate, Workload
from kernelarc.storage import ContestRecord


def workload(**axes: int) -> Workload:
    return Workload(operator="op", axes=axes)


def contest(names: Sequence[str], rows: Sequence[Sequence[float]]) -> Contest:
    return Contest(names=tuple(names), samples=tuple(map(tuple, rows)), failures={})


def record(purpose: str, *, upheld: bool, names: Sequence[str] = ("best", "new")) -> ContestRecord:
    timed = contest(names, [[10.0, 9.0]] * 8)
    speedup = Estimate(value=10 / 9, low=10 / 9, high=10 / 9, n=8)
    return ContestRecord(
        purpose=purpose,
        workload="w",
        subject=names[1],
        against=names[0],
        contest=timed,
        speedup=speedup,
        upheld=upheld,
    )


def test_a_heat_takes_note_of_who_was_there_and_nominates_nobody() -> None:
    ledger = Ledger()
    ledger.apply(record("heat", upheld=True), evaluated=70)
    assert (ledger.final_at, ledger.beaten, ledger.nominee) == (70, {"best", "new"}, None)
    assert ledger.bars == {"best": 10.0}


@pytest.mark.parametrize("upheld", [True, False])
def test_only_the_winner_of_a_final_is_nominated(upheld: bool) -> None:
    ledger = Ledger()
    ledger.apply(record("final", upheld=upheld), evaluated=64)
    assert ledger.nominee == ("new" if upheld else None)
    assert ledger.tried == 0, "a final is no claim: it costs no confidence"


def test_workloads_are_near_by_doublings_of_their_axes() -> None:
    here = workload(M=1024, N=2560)
    assert distance(here, workload(M=2048, N=2560)) == pytest.approx(1.0)
    assert distance(here, workload(M=512, N=5120)) == pytest.approx(2.0)
    assert distance(here, workload(M=1024)) > 4
    others = [workload(M=8192, N=2560), workload(M=1100, N=2560), workload(M=256, N=2560)]
    assert [w.axes["M"] for w in nearest_first(here, others)] == [1100, 256, 8192]


def test_an_audit_of_several_visits_holds_what_each_stretch_found() -> None:
    cool, hot = [[10.4, 10.0]] * 10, [[11.0, 10.0]] * 30
    visits = [
        contest(["baseline:first", "new"], cool + hot),
        contest(["baseline:first", "new"], hot),
    ]
    assert len(joined_contest(visits).samples) == 70
    speedup = visited_speedup(visits, "new", "baseline:first")
    assert speedup is not None
    assert speedup.value == pytest.approx(1.1)
    assert speedup.low == pytest.approx(1.04), "the device was cool at first, and so will others be"


def test_a_baseline_that_sits_rounds_out_is_compared_in_the_others() -> None:
    nan = float("nan")
    rows = [[2.0 if i % 4 == 0 else nan, 1.0] for i in range(20)]
    visits = [contest(["baseline:slow", "new"], rows)] * 2
    speedup = visited_speedup(visits, "new", "baseline:slow")
    assert speedup is not None
    assert (speedup.value, speedup.n) == (2.0, 10)
    never = contest(["baseline:slow", "new"], [[nan, 1.0]] * 9)
    assert visited_speedup([never], "new", "baseline:slow") is None


def test_who_failed_in_one_visit_has_failed() -> None:
    good = contest(["a", "b"], [[1.0, 1.0]])
    bad = Contest(names=("a", "b"), samples=((1.0, float("nan")),), failures={"b": "wrong"})
    assert joined_contest([good, bad]).failures == {"b": "wrong"}
    assert visited_speedup([good, bad], "b", "a") is None
