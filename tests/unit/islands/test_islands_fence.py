"""DEAP's two habits, fenced: global randomness and sharing by reference."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import numpy as np
from deap import tools
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import Genome
from kernelarc.islands import fenced
from kernelarc.islands._population import Individual, Population


def shuffled(seed: int) -> list[int]:
    with fenced(np.random.default_rng(seed)):
        (found,) = tools.mutShuffleIndexes(list(range(12)), 0.5)
    return list(found)


@given(seed=st.integers(0, 2**32), state=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_deap_draws_from_the_given_stream_alone(seed: int, state: int) -> None:
    random.seed(state)
    first = shuffled(seed)
    before = random.getstate()
    assert shuffled(seed) == first
    assert random.getstate() == before


def test_different_streams_differ() -> None:
    assert len({tuple(shuffled(seed)) for seed in range(20)}) > 10


def test_outside_a_fence_deap_is_as_it_was() -> None:
    random.seed(5)
    (first,) = tools.mutShuffleIndexes(list(range(12)), 0.5)
    random.seed(5)
    (again,) = tools.mutShuffleIndexes(list(range(12)), 0.5)
    assert first == again


def test_fences_nest_and_restore() -> None:
    outer = np.random.default_rng(1)
    with fenced(outer):
        tools.selRandom(list(range(9)), 1)
        with fenced(np.random.default_rng(2)):
            inner = tools.selRandom(list(range(1000)), 5)
        state = outer.bit_generator.state
        tools.selRandom(list(range(9)), 1)
        assert outer.bit_generator.state != state
    assert inner == _drawn(2)


def _drawn(seed: int) -> list[int]:
    with fenced(np.random.default_rng(seed)):
        return list(tools.selRandom(list(range(1000)), 5))


def test_threads_have_fences_of_their_own() -> None:
    found: dict[int, list[int]] = {}
    gate = threading.Barrier(4)

    def work(seed: int) -> None:
        with fenced(np.random.default_rng(seed)):
            gate.wait()
            found[seed] = list(tools.selRandom(list(range(1000)), 200))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, drawn in found.items():
        with fenced(np.random.default_rng(seed)):
            assert tools.selRandom(list(range(1000)), 200) == drawn


def test_draws_are_even_for_small_and_large_ranges() -> None:
    with fenced(np.random.default_rng(0)):
        drawn = tools.selRandom(list(range(5)), 5000)
    counts = np.bincount(drawn, minlength=5)
    assert counts.min() > 880
    assert counts.max() < 1120


def test_populations_copy_what_they_take_in() -> None:
    population = Population(4, 2)
    genome = Genome("r", {"x": 1})
    mine = Individual(genome, 0.5)
    population.add(mine)
    assert population.colony[0] is not mine
    assert population.colony[0].fitness is not mine.fitness
    assert population.colony[0] is not population.hall[0]
    mine.fitness.values = (9.0, 0.0)
    assert population.colony[0].score == 0.5


def test_copies_share_only_the_frozen_genome() -> None:
    mine = Individual(Genome("r", {"x": 1}), 0.5, bound=True)
    other = copy.deepcopy(mine)
    assert other is not mine
    assert other.genome == mine.genome
    assert other.fitness == mine.fitness
    assert other.fitness is not mine.fitness
    assert other.bound


def test_operators_leave_their_parents_alone(world: Any) -> None:
    islands = world.islands("plain")
    log = world.play(islands, 60)
    before = {i.name: [g.canonical for g in i.elites()] for i in islands}
    for island in islands:
        island.ask(6, np.random.default_rng(4), log)
    assert before == {i.name: [g.canonical for g in i.elites()] for i in islands}
