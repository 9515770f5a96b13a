"""The paired statistics against what counting by hand gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelarc.engine.comparison._paired import blocks, differences, holm, ratio_of, sign_flip_p


def by_hand(block: np.ndarray) -> float:
    """All signs of all blocks, zeros included, one at a time."""
    found = abs(float(np.mean(block)))
    tried = [
        abs(float(np.mean(np.array(signs).reshape(block.shape) * block)))
        for signs in itertools.product((-1, 1), repeat=block.size)
    ]
    return sum(one >= found - 1e-12 for one in tried) / len(tried)


@pytest.mark.parametrize("seed", range(6))
def test_few_blocks_are_tried_in_all_ways(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = rng.normal(loc=0.4, size=(2, 5))
    block[0, :seed] = 0.0
    assert sign_flip_p(block) == pytest.approx(by_hand(block))


def test_ten_equal_signs_of_ten_are_as_rare_as_two_in_1024() -> None:
    assert sign_flip_p(np.full((2, 5), 0.3)) == 2 / 2**10
    assert sign_flip_p(-np.full((2, 5), 0.3)) == 2 / 2**10
    assert sign_flip_p(np.zeros((2, 5))) == 1.0
    assert sign_flip_p(np.array([[0.5, -0.5, 0.0]])) == 1.0


def test_many_blocks_are_sampled_near_the_chance_of_all_ways() -> None:
    rng = np.random.default_rng(8)
    block = rng.normal(loc=0.35, size=(2, 8))  # 16 blocks: sampled here, still countable by hand
    assert sign_flip_p(block) == pytest.approx(by_hand(block), abs=0.01)
    assert sign_flip_p(np.full((3, 20), 1.0)) == pytest.approx(1 / 20_001)


def test_equal_searches_are_called_different_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(4)
    chances = np.array([sign_flip_p(rng.normal(size=(2, 5))) for _ in range(400)])
    assert 0.02 < float(np.mean(chances <= 0.05)) < 0.09


def test_spaces_of_one_kernel_are_one_block() -> None:
    found = {
        "a-1": np.array([1.0, 2.0]),
        "a-2": np.array([3.0, 0.0]),
        "b": np.array([-1.0, 5.0]),
    }
    kernels = {"a-1": "a", "a-2": "a", "b": "b"}
    np.testing.assert_array_equal(blocks(found, kernels), [[2.0, 1.0], [-1.0, 5.0]])


def test_two_copies_of_a_space_prove_nothing_more() -> None:
    """Four seeds that favour one side: 2 of 16 ways, however often the space is listed."""
    values = np.array([0.1, 0.2, 0.3, 0.4])
    once = blocks({"a": values}, {"a": "k"})
    thrice = blocks({"a": values, "b": values, "c": values}, dict.fromkeys("abc", "k"))
    assert sign_flip_p(once) == sign_flip_p(thrice) == 2 / 16


def test_differences_need_the_same_runs_on_both_sides() -> None:
    one, other = {"s": np.array([1.1, 1.0])}, {"s": np.array([1.0, 1.0])}
    assert differences(one, other)["s"] == pytest.approx([np.log(1.1), 0.0])
    with pytest.raises(ValueError, match="same spaces and seeds"):
        differences(one, {"s": np.array([1.0])})
    with pytest.raises(ValueError, match="same spaces and seeds"):
        differences(one, {"t": np.array([1.0, 1.0])})


def test_a_ratio_is_geometric_and_its_interval_holds_it() -> None:
    block = np.log(np.array([[1.0, 4.0], [2.0, 2.0]]))
    found = ratio_of(block)
    assert found.value == pytest.approx(2.0)
    # The first kernel's two seeds are drawn anew: means of log 1, 2 or 4; the second's is log 2.
    assert (found.low, found.high) == pytest.approx((np.sqrt(2.0), np.sqrt(8.0)))


def test_intervals_of_ratios_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        found = ratio_of(rng.normal(loc=0.1, scale=0.2, size=(3, 20)))
        held += found.low <= np.exp(0.1) <= found.high
    assert 0.88 <= held / 200 <= 0.99


def test_holm_corrects_step_by_step() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.9, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
