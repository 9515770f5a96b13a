"""The budget of a campaign over several workloads: by need, without starvation, from state only."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.engine._sharing import Need, memory_of, next_workload, workload_shares

NAMES = ("a", "b", "c", "d")
needs = st.lists(st.floats(0, 2, allow_subnormal=False), min_size=1, max_size=4).map(
    lambda values: dict(zip(NAMES, values, strict=False))
)


@settings(max_examples=30)
@given(needs)
def test_shares_sum_to_one_and_leave_nobody_out(found: dict[str, float]) -> None:
    shares = workload_shares(found)
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert min(shares.values()) >= 0.5 / len(found) - 1e-12


def hand_out(found: dict[str, float], rounds: int, window: int = 16) -> Counter[str]:
    handed: deque[str] = deque(maxlen=memory_of(len(found)))
    counts: Counter[str] = Counter()
    for _ in range(rounds):
        chosen = next_workload(found, handed)
        handed.extend([chosen] * window)
        counts[chosen] += 1
    return counts


@settings(max_examples=30)
@given(needs)
def test_no_workload_starves_and_need_is_followed(found: dict[str, float]) -> None:
    rounds = 400
    counts, shares = hand_out(found, rounds), workload_shares(found)
    for name, share in shares.items():
        assert abs(counts[name] / rounds - share) < 0.1
        assert counts[name] >= 0.3 * rounds / len(found)


def test_equal_needs_take_turns_in_the_problem_s_order() -> None:
    found = dict.fromkeys(NAMES, 0.05)
    handed: deque[str] = deque()
    order = []
    for _ in range(8):
        order.append(next_workload(found, handed))
        handed.extend(order[-1] * 16)
    assert order == [*NAMES, *NAMES]


def test_a_gain_gives_more_until_it_fades() -> None:
    gaining, idle = Need(), Need()
    for need in (gaining, idle):
        for _ in range(100):
            need.evaluated()
    assert gaining.value == idle.value < 0.05
    gaining.gained(0.04)
    high = workload_shares({"a": gaining.value, "b": idle.value})["a"]
    assert high > 0.6
    for _ in range(300):
        gaining.evaluated()
        idle.evaluated()
    later = workload_shares({"a": gaining.value, "b": idle.value})["a"]
    assert abs(later - high) < 1e-9  # both faded alike: only what is found anew counts
    idle.gained(0.04)
    assert workload_shares({"a": gaining.value, "b": idle.value})["b"] > 0.7


def test_a_workload_that_is_used_up_is_not_asked_again() -> None:
    handed = deque(["a"] * 32)
    assert next_workload({"a": 1.0, "b": 0.01}, handed) == "b"
    assert next_workload({"a": 1.0}, handed) == "a"
