"""What every island promises: legal, new, reproducible, and no trace left by asking."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import Judged, Proposal
from kernelarc.islands import Island

SPACES = ["plain", "dependent", "orders", "huge", "plain+dependent"]
BUDGETS = settings(max_examples=8, deadline=None)


def answers(island: Island, log: Any, seed: int, n: int = 3) -> list[tuple[str, str, Any]]:
    proposals = island.ask(n, np.random.default_rng(seed), log)
    return [(p.genome.fingerprint, p.mutation, p.parents) for p in proposals]


def history(world: Any, space: str, models: bool, rounds: int, seed: int) -> tuple[Any, list[Any]]:
    """Play all islands; return the log and, per island, what it was told."""
    islands = world.islands(space, models=models)
    log = world.play(islands, rounds, seed=seed)
    told: list[list[Judged]] = [
        [j for j in log.judged if j.evaluation.candidate.island == island.name]
        for island in islands
    ]
    return log, told


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("space", SPACES)
def test_a_new_island_told_the_same_answers_alike(world: Any, space: str, models: bool) -> None:
    log, told = history(world, space, models, 36, seed=3)
    twins = world.islands(space, models=models), world.islands(space, models=models)
    for one, other, heard in zip(*twins, told, strict=True):
        one.tell(heard)
        for judged in heard:
            other.tell([judged])
            other.ask(2, np.random.default_rng(99), log)
        for seed in range(2):
            assert answers(one, log, seed) == answers(other, log, seed)


@given(seed=st.integers(0, 2**32), rounds=st.integers(0, 40), n=st.integers(1, 6))
@BUDGETS
def test_asking_leaves_no_trace(world: Any, seed: int, rounds: int, n: int) -> None:
    log, told = history(world, "plain", False, rounds, seed)
    for island, heard in zip(world.islands("plain"), told, strict=True):
        island.tell(heard)
        first = answers(island, log, seed, n)
        answers(island, log, seed + 1, n)
        assert answers(island, log, seed, n) == first


@given(seed=st.integers(0, 2**32), space=st.sampled_from(SPACES), n=st.integers(1, 8))
@BUDGETS
def test_proposals_are_legal_different_and_not_evaluated(
    world: Any, seed: int, space: str, n: int
) -> None:
    log, told = history(world, space, False, 30, seed)
    for island, heard in zip(world.islands(space), told, strict=True):
        island.tell(heard)
        proposals: Sequence[Proposal] = island.ask(n, np.random.default_rng(seed), log)
        keys = [p.genome.fingerprint for p in proposals]
        assert len(keys) == len(set(keys)) == n
        assert not any(log.evaluated(key) for key in keys)
        assert all(world.spaces[p.genome.route].contains(p.genome) for p in proposals)


@pytest.mark.parametrize("models", [False, True])
def test_results_depend_on_the_stream_alone(world: Any, models: bool) -> None:
    outcomes = []
    for state in (1, 2):
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002 - the state that must not matter
        log = world.play(world.islands(models=models), 30)
        outcomes.append([j.evaluation.candidate.genome.fingerprint for j in log.judged])
    assert outcomes[0] == outcomes[1]
    other = world.play(world.islands(models=models), 30, seed=1)
    assert outcomes[0] != [j.evaluation.candidate.genome.fingerprint for j in other.judged]


@pytest.mark.parametrize("models", [False, True])
def test_the_global_random_states_are_untouched(world: Any, models: bool) -> None:
    before = random.getstate(), str(np.random.get_state(legacy=False))  # noqa: NPY002 - compared
    world.play(world.islands(models=models), 30)
    after = random.getstate(), str(np.random.get_state(legacy=False))  # noqa: NPY002 - compared
    assert before == after


def test_telling_in_one_call_or_many_is_the_same(world: Any) -> None:
    log, told = history(world, "plain", False, 60, seed=5)
    for whole, apart, heard in zip(
        world.islands("plain"), world.islands("plain"), told, strict=True
    ):
        whole.tell(heard)
        for judged in heard:
            apart.tell([judged])
        assert whole.elites() == apart.elites()
        assert whole.credit() == apart.credit()
        assert answers(whole, log, 1) == answers(apart, log, 1)


def test_credit_counts_what_was_told(world: Any) -> None:
    islands = world.islands("plain")
    log = world.play(islands, 90)
    for island in islands:
        own = [j for j in log.judged if j.evaluation.candidate.island == island.name]
        keeps = sum(j.verdict.value == "KEEP" for j in own)
        assert sum(told for told, _ in island.credit().values()) == len(own)
        assert sum(kept for _, kept in island.credit().values()) == keeps


def test_every_operator_of_an_island_comes_to_its_turn(world: Any) -> None:
    (island,) = world.islands("plain", only=["fusion"])
    world.play([island], 150)
    assert {
        "sample",
        "fusion.toggle",
        "fusion.exchange",
        "neighbour.step",
        "crossover.uniform",
        "mutate.resample",
    } <= set(island.credit())


@pytest.mark.parametrize(("models", "rounds"), [(False, 500), (True, 80)])
def test_islands_search_better_than_sampling(world: Any, models: bool, rounds: int) -> None:
    space = world.spaces["plain"]
    log = world.play(world.islands("plain", models=models), rounds)
    drawn = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tried = [world.objective(space.sample(rng)) for _ in range(rounds)]
        drawn.append(min(one for one in tried if one is not None))
    assert log.best(1)[0].evaluation.measurement.objective < min(drawn)


def test_memory_stays_bounded(world: Any) -> None:
    (island,) = world.islands("plain", only=["memory"])
    space, rng = world.spaces["plain"], np.random.default_rng(0)
    for number in range(3000):
        genome = space.sample(rng)
        proposal = Proposal(genome=genome, mutation="sample")
        island.tell([world.judge(proposal, world.objective(genome), number=number)])
    assert len(island.elites()) <= 24
    assert set(island.credit()) == {"sample"}
