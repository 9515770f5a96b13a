"""Drafting for a library that refuses much: many cheap drafts, then a choice among the legal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from deap import tools

from kernelarc.genomes import (
    AllowedAlleles,
    Choice,
    Genome,
    GridHint,
    MatmulJob,
    Proposal,
    Space,
    Strategy,
)
from kernelarc.islands import Habitat, IslandSettings, build_islands
from kernelarc.islands._branches import arm, branch_genes
from kernelarc.islands._fence import fenced
from kernelarc.islands._hint_order import HintOrder, hint_order
from kernelarc.islands._population import Population, individual_of
from kernelarc.islands.models import Ranker

TILES = tuple(range(16, 257, 16))
JOB = MatmulJob(m=512, n=2048, k=512, dtype="bfloat16", out_dtype="bfloat16")
HINT = GridHint.of(JOB, 132)


def library() -> Space:
    """Make a space whose domains hang on an algorithm, with tile shapes that a hint orders."""
    genes = [
        Choice(name="algo", options=("1", "2", "3"), strategy=Strategy.LIBRARY),
        Choice(name="tile_m", options=TILES, strategy=Strategy.TENSOR_CORE),
        Choice(name="tile_n", options=TILES, strategy=Strategy.TENSOR_CORE),
        Choice(name="custom", options=tuple(range(8)), strategy=Strategy.LIBRARY),
        Choice(name="cluster", options=(1, 2, 4), strategy=Strategy.SCHEDULING),
        Choice(name="splitk", options=(1, 2, 3, 4), strategy=Strategy.REDUCTION),
    ]
    depends: dict[str, dict[Any, Any]] = {
        "custom": {"1": range(8), "2": [0], "3": [0, 1]},
        "cluster": {"1": [1, 2, 4], "2": [1], "3": [1, 2]},
        "splitk": {"1": [1], "2": [1, 2, 3, 4], "3": [1, 2]},
    }
    rules = [AllowedAlleles(gene, "algo", allowed) for gene, allowed in depends.items()]
    return Space("library", genes, rules, hint=HINT)


def time_us(genome: Genome) -> float:
    """Time by the waves of the grid, a secret option and the algorithm."""
    secret = 0.03 * abs(int(str(genome["custom"])) - 5) + 0.05 * (genome["cluster"] != 2)
    slow = {"1": 1.0, "2": 1.4, "3": 1.8}[str(genome["algo"])]
    return HINT(genome.alleles()) * slow * (1.0 + secret) / 1e6


def accepts(genome: Genome) -> bool:
    """Refuse what a library refuses: options that do not go with the tile's orientation."""
    wide = int(str(genome["tile_n"])) > int(str(genome["tile_m"]))
    return (int(str(genome["custom"])) % 2 == 1) is wide or genome["algo"] != "1"


def search(world: Any, space: Space, evaluations: int, *, models: bool, seed: int = 0) -> list[Any]:
    """Let islands draft, sift and choose in turn; return what was judged, in order."""
    habitat = Habitat(spaces={space.route: space}, workload=world.workload)
    settings = IslandSettings(models=models)
    islands = [i for i in build_islands(habitat, settings=settings) if i.asleep() is None]
    log, turn = world.log(), 0
    while log.count() < evaluations:
        island = islands[turn % len(islands)]
        turn += 1
        drafts = island.draft(24, np.random.default_rng([seed, turn, 0]), log)
        legal = [draft for draft in drafts if accepts(draft.genome)]
        chosen = island.choose(legal, 2, np.random.default_rng([seed, turn, 1]), log)
        judged = [
            world.judge(p, time_us(p.genome), number=log.count() + i, island=island.name)
            for i, p in enumerate(chosen)
        ]
        for one in judged:
            log.add(one)
        island.tell(judged)
    judged_in_order: list[Any] = log.judged
    return judged_in_order


def best(judged: list[Any]) -> float:
    return min(float(one.evaluation.measurement.objective) for one in judged)


@pytest.mark.parametrize("models", [False, True])
def test_drafts_are_legal_new_and_different(world: Any, models: bool) -> None:
    space = library()
    judged = search(world, space, 60, models=models)
    genomes = [one.evaluation.candidate.genome for one in judged]
    assert len({genome.fingerprint for genome in genomes}) == len(genomes)
    assert all(space.contains(genome) for genome in genomes)


def test_the_model_finds_what_chance_does_not(world: Any) -> None:
    space = library()
    rng = np.random.default_rng(0)
    optimum = min(time_us(g) for g in space.enumerate() if accepts(g))
    found, drawn = [], []
    for seed in range(3):
        found.append(best(search(world, space, 90, models=True, seed=seed)) / optimum)
        samples = (space.sample(rng) for _ in range(10_000))
        legal = [genome for genome in samples if accepts(genome)][:90]
        drawn.append(min(time_us(genome) for genome in legal) / optimum)
    assert max(found) < 1.1
    assert np.median(found) < np.median(drawn)


def test_equal_histories_draft_and_choose_alike(world: Any) -> None:
    first, again = (search(world, library(), 40, models=True, seed=3) for _ in range(2))
    assert [j.evaluation.candidate.genome for j in first] == [
        j.evaluation.candidate.genome for j in again
    ]


def test_the_hint_orders_what_stands_beside_the_others() -> None:
    space = library()
    order = HintOrder(space, (space.gene("tile_m"), space.gene("tile_n")))
    genome = space.sample(np.random.default_rng(1))
    listed = order.beside(genome)
    costs = [HINT({**genome.alleles(), **assignment}) for assignment in listed]
    assert costs == sorted(costs) and len(listed) == len(TILES) ** 2
    assert not HintOrder(Space("r", space.genes), (space.gene("tile_m"),))


def test_what_domains_hang_on_is_a_branch() -> None:
    assert [gene.name for gene in branch_genes(library())] == ["algo"]


def test_the_bandit_prefers_good_arms_and_forgets_none(world: Any) -> None:
    space = library()
    rng = np.random.default_rng(0)
    log, played = [], Counter[str]()
    for number in range(30):
        genome = space.pin({"algo": "123"[number % 3]}).sample(rng)
        log.append(world.judge(Proposal(genome=genome, mutation="sample"), time_us(genome)))
    for _ in range(200):
        allele = arm(space.gene("algo"), log, rng)
        played[str(allele)] += 1
        genome = space.pin({"algo": str(allele)}).sample(rng)
        log.append(world.judge(Proposal(genome=genome, mutation="sample"), time_us(genome)))
    assert played.most_common(1)[0][0] == "1"
    assert arm(space.gene("algo"), [], rng) is None


def test_a_ranker_says_nothing_before_it_knows_something(world: Any) -> None:
    space = library()
    ranker, log, rng = Ranker(space), world.log(), np.random.default_rng(2)
    drafts = [space.sample(rng) for _ in range(40)]
    assert ranker.pick(log, drafts, 4) is None
    for number in range(60):
        genome = space.sample(rng)
        judged = world.judge(Proposal(genome=genome, mutation="sample"), time_us(genome))
        log.add(judged)
        assert number < 11 or ranker.pick(log, drafts, 4) is not None
    chosen = ranker.pick(log, drafts, 4)
    assert chosen is not None and len(set(chosen)) == len(chosen) <= 4
    ranked = np.argsort(np.argsort([time_us(genome) for genome in drafts]))
    assert ranked[chosen[0]] < 10, "the first pick is among the better ones"


def test_a_guess_is_the_best_of_as_many_samples() -> None:
    space = library()
    for seed in range(20):
        rng, same = np.random.default_rng(seed), np.random.default_rng(seed)
        expected = min((space.sample(same) for _ in range(7)), key=HINT)
        assert space.guessed(rng, 7) == expected
        assert rng.random() == same.random()  # as many numbers were drawn


def test_without_a_hint_a_guess_is_the_first_sample() -> None:
    space = Space("library", library().genes, library().constraints)
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    assert space.guessed(rng, 3) == space.sample(same)


def test_what_was_asked_before_is_as_legal_as_at_first() -> None:
    space, other, rng = library(), library(), np.random.default_rng(0)
    drawn = [{gene.name: gene.sample(rng) for gene in space.genes} for _ in range(6000)]
    first = [space.legal(alleles) for alleles in drawn]
    assert [space.legal(alleles) for alleles in drawn] == first
    assert [genome is None for genome in first] == [
        other.violation(alleles) is not None for alleles in drawn
    ]
    assert 0 < sum(genome is None for genome in first) < len(first)


def test_a_parent_is_who_wins_deaps_tournament(world: Any) -> None:
    population, space = Population(8, 8), library()
    for number in range(30):
        genome = space.sample(np.random.default_rng(number))
        found = individual_of(world.judge(Proposal(genome=genome, mutation="x"), time_us(genome)))
        assert found is not None
        population.add(found)
    for seed in range(50):
        with fenced(np.random.default_rng(seed)):
            parent = population.parent(3)
        with fenced(np.random.default_rng(seed)):
            (winner,) = tools.selTournament(list(population.colony), 1, tournsize=3)
        assert parent is winner


def test_islands_of_one_space_list_an_order_once() -> None:
    space = library()
    tiles = (space.gene("tile_m"), space.gene("tile_n"))
    order = hint_order(space, tiles)
    assert hint_order(space, tiles) is order
    assert hint_order(space, tiles[:1]) is not order
    assert hint_order(library(), tiles) is not order
