"""How candidates are divided among islands, and what islands are advised."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.engine._controller import advice, allocate, even, shares
from kernelarc.engine._credits import ALL, Credits, carried
from kernelarc.genomes import Verdict

ISLANDS = ("memory", "fusion", "reduction", "library")
NOW = "first 50, gaining"

outcomes = st.lists(
    st.tuples(
        st.sampled_from(ISLANDS),
        st.sampled_from(["step", "model", "sample"]),
        st.sampled_from([Verdict.KEEP, Verdict.REVERT, Verdict.FAIL]),
        st.floats(0.1, 10.0),
    ),
    max_size=120,
)
contexts = st.sampled_from([NOW, "first 50, stuck", "later, gaining", "later, stuck"])


def told(*series: tuple[str, str, Verdict, float | None]) -> Credits:
    """Return credits after outcomes on one workload: island, operator, verdict, time."""
    found = Credits()
    for island, operator, verdict, objective in series:
        found.judged("w", island, operator, verdict, objective)
    return found


def falling(name: str, n: int, *, from_us: float = 100.0) -> list[tuple[str, str, Verdict, float]]:
    """Return ``n`` gains of one island, a tenth each, and as many failures to gain of fusion."""
    found = []
    for step in range(n):
        found.append((name, "step", Verdict.KEEP, from_us * 0.9 ** (step + 1)))
        found.append(("fusion", "step", Verdict.REVERT, from_us))
    return found


START = ("engine", "sample", Verdict.ACCEPT, 100.0)


@given(outcomes, contexts, st.integers(0, 40), st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_every_slot_is_given_exactly_once(
    found: list[tuple[str, str, Verdict, float]], context: str, n: int, so_far: int
) -> None:
    wanted = shares(told(*found), ISLANDS, context)
    assert sum(allocate(wanted, so_far, n).values()) == n


@given(outcomes, contexts)
@settings(max_examples=60, deadline=None)
def test_shares_sum_to_one_and_nobody_starves(
    found: list[tuple[str, str, Verdict, float]], context: str
) -> None:
    wanted = shares(told(*found), ISLANDS, context)
    assert abs(sum(wanted.values()) - 1) < 1e-9
    assert min(wanted.values()) >= 0.5 / len(ISLANDS) - 1e-12


@given(outcomes, contexts, st.sampled_from(ISLANDS))
@settings(max_examples=60, deadline=None)
def test_advice_stays_within_its_bounds(
    found: list[tuple[str, str, Verdict, float]], context: str, island: str
) -> None:
    assert all(0.5 <= factor <= 2.0 for factor in advice(told(*found), island, context).values())


def test_without_awake_islands_nothing_is_given() -> None:
    assert allocate(shares(Credits(), (), NOW), 0, 8) == {}
    assert allocate(even(()), 0, 8) == {}


def test_who_brought_gains_gets_more() -> None:
    found = told(START, *falling("memory", 10))
    wanted = shares(found, ("memory", "fusion"), NOW)
    assert wanted["memory"] > 1.5 * wanted["fusion"]
    given_now = allocate(wanted, 0, 20)
    assert given_now["memory"] > given_now["fusion"] > 0


def test_over_many_small_rounds_everybody_gets_its_share() -> None:
    wanted, given_so_far = even(ISLANDS[:3]), Counter[str]()
    for _ in range(300):
        given_so_far.update(allocate(wanted, given_so_far.total(), 1))
    assert all(abs(n - 100) <= 3 for n in given_so_far.values())


def test_an_operator_that_brought_the_gains_is_advised_over_its_island_s_others() -> None:
    series = [START]
    for step in range(12):
        series.append(("memory", "step", Verdict.KEEP, 100.0 * 0.9 ** (step + 1)))
        series.append(("memory", "swap", Verdict.REVERT, 200.0))
    factors = advice(told(*series), "memory", NOW)
    assert factors["step"] > 1.2 > 0.8 > factors["swap"]
    assert ALL not in factors


def test_where_nothing_gains_nobody_is_better_than_another() -> None:
    found = told(START, *[("memory", "step", Verdict.REVERT, 200.0)] * 40)
    assert shares(found, ISLANDS, found.context("w")) == pytest.approx(even(ISLANDS))
    assert set(advice(found, "memory", found.context("w")).values()) == {1.0}


def test_credit_compares_within_a_situation() -> None:
    # Early gains are easy: an island that was asked early only is no better for them.
    series = [START, *falling("memory", 12)]
    series += [("fusion", "step", Verdict.KEEP, 20.0 * 0.9**n) for n in range(12)]
    found = told(*series)
    late = [("fusion", "step", Verdict.REVERT, 90.0)] * 60
    for one in late:
        found.judged("w", *one)
    assert found.context("w") == "later, stuck"
    early = found.credit(("memory", ALL), NOW)
    assert early > found.credit(("memory", ALL), "later, stuck") > 1.0


def test_a_failure_is_a_proposal_that_brought_nothing() -> None:
    found = told(START, ("memory", "step", Verdict.FAIL, None))
    assert found.count(("memory", "step")) == (1, 0)


@pytest.mark.parametrize(
    ("island", "operator"), [("device", "seed"), ("store", "known"), ("memory", "attribute.revert")]
)
def test_what_no_island_thought_of_is_credited_to_none(island: str, operator: str) -> None:
    found = told(START, (island, operator, Verdict.KEEP, 50.0))
    assert found.arms() == []
    assert found.context("w") == NOW


def test_earlier_campaigns_decide_where_credit_starts_and_are_outweighed() -> None:
    taught = told(START, *falling("memory", 20))
    handed = carried(iter([(3, taught, 1.0)]))
    assert handed["campaigns"] == [3]
    assert handed["credit"]["memory"]["step"] > 1.2 > handed["credit"]["fusion"]["step"]
    later = Credits()
    later.begin(handed)
    assert later.campaigns == (3,)
    assert later.credit(("memory", ALL), NOW) == pytest.approx(handed["credit"]["memory"][ALL])
    before = shares(later, ("memory", "fusion"), NOW)
    assert before["memory"] > before["fusion"]
    turned = {"memory": "fusion", "fusion": "memory"}
    for one in [START, *((turned[o[0]], *o[1:]) for o in falling("memory", 20))]:
        later.judged("w", *one)
    after = shares(later, ("memory", "fusion"), NOW)
    assert after["fusion"] > after["memory"]


def test_credit_is_carried_within_bounds() -> None:
    handed = {"campaigns": [1], "credit": {"memory": {ALL: 1e9}, "fusion": {ALL: 0.0}}}
    found = Credits()
    found.begin(handed)
    assert found.earlier == {("memory", ALL): 3.0, ("fusion", ALL): pytest.approx(1 / 3)}
