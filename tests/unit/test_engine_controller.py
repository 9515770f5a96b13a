"""How candidates are divided among islands."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.engine._arena import Tally
from kernelarc.engine._controller import allocate, shares

tallies = st.dictionaries(
    st.sampled_from(["memory", "fusion", "reduction", "library"]),
    st.builds(
        Tally,
        judged=st.integers(0, 500),
        keeps=st.integers(0, 20),
        gain=st.floats(0, 3, allow_nan=False),
    ),
    min_size=1,
)


@given(tallies, st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_every_slot_is_given_exactly_once(found: dict[str, Tally], n: int) -> None:
    assert sum(allocate(found, {}, n).values()) == n


@given(tallies)
@settings(max_examples=60, deadline=None)
def test_shares_sum_to_one_and_nobody_starves(found: dict[str, Tally]) -> None:
    wanted = shares(found)
    assert abs(sum(wanted.values()) - 1) < 1e-9
    assert min(wanted.values()) >= 0.5 / len(found) - 1e-12


def test_without_awake_islands_nothing_is_given() -> None:
    assert allocate({}, {}, 8) == {}


def test_who_brought_gains_gets_more() -> None:
    found = {
        "memory": Tally(judged=100, keeps=5, gain=1.0),
        "fusion": Tally(judged=100, keeps=0, gain=0.0),
    }
    wanted = shares(found)
    assert wanted["memory"] > 1.5 * wanted["fusion"]
    given_now = allocate(found, {}, 20)
    assert given_now["memory"] > given_now["fusion"] > 0


def test_over_many_small_rounds_everybody_gets_its_share() -> None:
    found = {name: Tally() for name in ("memory", "fusion", "reduction")}
    for _ in range(300):
        for name, n in allocate(found, {}, 1).items():
            found[name].judged += n
    assert all(abs(tally.judged - 100) <= 3 for tally in found.values())
