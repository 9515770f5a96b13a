"""What islands learn from: elites, failures, traps, wins, plateaus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    ConclusionKind,
    GeneChange,
    Genome,
    Proposal,
    Verdict,
)
from kernelarc.islands import IslandSettings
from kernelarc.islands._credit import Credit
from kernelarc.islands._population import Individual, Population


def told(world: Any, island: Any, genomes: list[Genome], objectives: Sequence[float | None]) -> Any:
    log = world.log()
    for number, (genome, objective) in enumerate(zip(genomes, objectives, strict=True)):
        judged = world.judge(
            Proposal(genome=genome, mutation="sample"), objective, number=number, island=island.name
        )
        island.tell([judged])
        log.add(judged)
    return log


def samples(world: Any, n: int, space: str = "plain", seed: int = 0) -> list[Genome]:
    rng = np.random.default_rng(seed)
    drawn = {g.fingerprint: g for g in (world.spaces[space].sample(rng) for _ in range(4 * n))}
    return list(drawn.values())[:n]


# -- elites ------------------------------------------------------------------------------------


@given(scores=st.lists(st.floats(-5, 5), min_size=1, max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_population_is_bounded_sorted_and_never_loses_its_best(scores: list[float]) -> None:
    population = Population(8, 4)
    best = -math.inf
    for number, score in enumerate(scores):
        population.add(Individual(Genome("r", {"x": number}), score))
        best = max(best, round(score, 9))
        assert population.hall[0].score == best
    assert len(population.colony) <= 8
    ranked = [individual.score for individual in population.colony]
    assert ranked == sorted(ranked, reverse=True)


def test_ties_go_by_fingerprint_whatever_the_order() -> None:
    individuals = [Individual(Genome("r", {"x": x}), 1.0) for x in range(12)]
    forward, backward = Population(6, 6), Population(6, 6)
    for one, other in zip(individuals, reversed(individuals), strict=True):
        forward.add(one)
        backward.add(other)
    assert forward.genomes() == backward.genomes()
    keys = [genome.fingerprint for genome in forward.genomes()]
    assert keys == sorted(keys)


def test_failures_are_never_parents(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    genomes = samples(world, 30)
    log = told(world, island, genomes, [None if i % 3 else 2.0 + i for i in range(30)])
    failed = {g.fingerprint for i, g in enumerate(genomes) if i % 3}
    assert failed.isdisjoint(g.fingerprint for g in island.elites())
    for seed in range(20):
        for proposal in island.ask(4, np.random.default_rng(seed), log):
            assert failed.isdisjoint(proposal.parents)


def test_a_space_where_everything_fails_is_still_sampled(world: Any) -> None:
    islands = world.islands(models=True)
    log = world.play(islands, 60, objective=lambda genome: None)
    assert log.count() == 60
    assert all(not island.elites() for island in islands)


def test_censored_measurements_are_bounds_not_elites(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    slow, real = samples(world, 2)
    bound = world.judge(Proposal(genome=slow, mutation="sample"), 1.0, censored=True)
    island.tell([bound])
    assert island.elites() == [slow]
    island.tell([world.judge(Proposal(genome=real, mutation="sample"), 5.0)])
    assert island.elites() == [real]
    island.tell([bound])
    assert island.elites() == [real]


def test_results_without_a_positive_number_are_no_elites(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    told(world, island, samples(world, 3), [0.0, -1.0, 3.0])
    assert len(island.elites()) == 1


# -- credit ------------------------------------------------------------------------------------


def test_operators_that_bring_gains_are_drawn_more_often() -> None:
    credit = Credit(memory=40, floor=0.02)
    for _ in range(30):
        credit.record("good", Verdict.KEEP, better=True)
        credit.record("bad", Verdict.REVERT, better=False)
    chances = credit.chances({"good": 0.5, "bad": 0.5})
    assert chances["good"] > 0.8
    assert chances["bad"] >= 0.019
    assert math.isclose(sum(chances.values()), 1.0)
    assert credit.counts() == {"good": (30, 30), "bad": (30, 0)}


def test_unknown_operators_start_from_their_prior_weight() -> None:
    chances = Credit(memory=40, floor=0.0).chances({"a": 0.75, "b": 0.25})
    assert math.isclose(chances["a"], 0.75)


# -- traps -------------------------------------------------------------------------------------


def test_trapped_genomes_are_avoided_until_retracted(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    log = told(world, island, samples(world, 20), [2.0 + i for i in range(20)])
    trap = world.conclusion(ConclusionKind.TRAP, region={"fast_math": True}, failure="wrong result")
    free = _share(island, log)
    island.receive([trap])
    closed = _share(island, log)
    retraction = world.conclusion(
        ConclusionKind.RETRACTION, retracts=trap.fingerprint, evidence=(3,)
    )
    island.receive([retraction])
    assert free > 0.2
    assert closed < 0.12
    assert _share(island, log) == free


def _share(island: Any, log: Any) -> float:
    asked = [
        proposal.genome["fast_math"]
        for seed in range(60)
        for proposal in island.ask(2, np.random.default_rng(seed), log)
    ]
    return sum(bool(value) for value in asked) / len(asked)


def test_one_in_twenty_trapped_proposals_is_tried_anyway(world: Any) -> None:
    (island,) = world.islands("pair", only=["fusion"])
    for x in (False, True):
        trapped = world.spaces["pair"].genome({"x": x})
        island.receive([world.conclusion(ConclusionKind.TRAP, trapped, route="pair")])
    tries = [len(island.ask(1, np.random.default_rng(s), world.log())) for s in range(400)]
    assert 8 <= sum(tries) <= 36


def test_traps_of_another_workload_close_nothing(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    log = told(world, island, samples(world, 20), [2.0 + i for i in range(20)])
    free = _share(island, log)
    island.receive(
        [world.conclusion(ConclusionKind.TRAP, region={"fast_math": True}, workload="other")]
    )
    assert _share(island, log) == free


# -- wins --------------------------------------------------------------------------------------


def win(world: Any, genome: Genome | None, name: str, before: Any, after: Any) -> Any:
    change = GeneChange(gene=name, before=before, after=after)
    return world.conclusion(ConclusionKind.WIN, genome, changes=(change,))


def test_wins_are_applied_to_the_receivers_own_elites(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    log = told(world, island, samples(world, 20), [2.0 + i for i in range(20)])
    own = {genome.fingerprint: genome for genome in island.elites()}
    assert {genome["raster"] for genome in own.values()} == {"row", "column"}
    island.receive([win(world, None, "raster", "row", "column")])
    applied = [
        proposal
        for seed in range(60)
        for proposal in island.ask(1, np.random.default_rng(seed), log)
        if proposal.mutation == "win.apply"
    ]
    assert len(applied) >= 5
    for proposal in applied:
        assert proposal.genome["raster"] == "column"
        assert own[proposal.parents[0]]["raster"] == "row"


def test_a_wins_genome_is_proposed_while_nobody_evaluated_it(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    *known, best = samples(world, 21)
    log = told(world, island, known, [2.0 + i for i in range(20)])
    island.receive([win(world, best, "vector", 1, best["vector"])])

    def proposed() -> int:
        return sum(
            proposal.mutation == "win.genome" and proposal.genome == best
            for seed in range(80)
            for proposal in island.ask(1, np.random.default_rng(seed), log)
        )

    assert proposed() > 0
    log.seen.add(best.fingerprint)
    assert proposed() == 0


def test_retracted_wins_are_applied_no_more(world: Any) -> None:
    (island,) = world.islands(only=["memory"])
    log = told(world, island, samples(world, 20), [2.0 + i for i in range(20)])
    gain = win(world, None, "fast_math", False, True)
    island.receive([gain])
    island.receive(
        [world.conclusion(ConclusionKind.RETRACTION, retracts=gain.fingerprint, evidence=(1,))]
    )
    for seed in range(30):
        assert all(
            proposal.mutation != "win.apply"
            for proposal in island.ask(2, np.random.default_rng(seed), log)
        )


# -- plateaus ----------------------------------------------------------------------------------


def stale(world: Any, space: str, plateau: int) -> tuple[Any, Any]:
    island = world.islands(space, plateau=plateau)[0]
    route = space.split("+", maxsplit=1)[0]
    genomes = samples(world, plateau + 1, route)
    return island, told(world, island, genomes, [1.0] + [2.0] * plateau)


def test_only_measured_non_improvements_advance_the_counter(world: Any) -> None:
    (island,) = world.islands(only=["memory"], plateau=10)
    genomes = samples(world, 40)
    log = told(world, island, genomes, [1.0] + [None] * 39)
    asked = island.ask(4, np.random.default_rng(0), log)
    assert not any(proposal.mutation.startswith("plateau.") for proposal in asked)


def test_at_the_threshold_an_island_restarts_far_away(world: Any) -> None:
    island, log = stale(world, "plain", 15)
    space = world.spaces["plain"]
    elites = np.array([space.encode(genome) for genome in island.elites()])
    rng = np.random.default_rng(0)

    def gap(genome: Genome) -> float:
        return float(np.square(elites - space.encode(genome)).sum(axis=1).min())

    usual = np.median([gap(space.sample(rng)) for _ in range(200)])
    for seed in range(5):
        (proposal,) = island.ask(1, np.random.default_rng(seed), log)
        assert proposal.mutation == "plateau.restart"
        assert gap(proposal.genome) > usual


def test_a_told_restart_begins_a_new_colony_and_keeps_the_best(world: Any) -> None:
    island, log = stale(world, "plain", 15)
    best = island.elites()[0]
    (proposal,) = island.ask(1, np.random.default_rng(0), log)
    judged = world.judge(proposal, 9.0, number=99, island=island.name)
    island.tell([judged])
    log.add(judged)
    assert island.elites()[0] == best
    (following,) = island.ask(1, np.random.default_rng(1), log)
    assert not following.mutation.startswith("plateau.")
    assert following.parents in {(), (proposal.genome.fingerprint,)}


def test_with_several_routes_a_plateau_changes_the_route(world: Any) -> None:
    island, log = stale(world, "plain+orders", 15)
    (proposal,) = island.ask(1, np.random.default_rng(0), log)
    assert proposal.mutation == "plateau.route"
    assert proposal.genome.route == "orders"


def test_with_conditional_genes_a_plateau_changes_the_algorithm(world: Any) -> None:
    island, log = stale(world, "dependent", 15)
    (proposal,) = island.ask(1, np.random.default_rng(0), log)
    assert proposal.mutation == "plateau.algorithm"
    assert proposal.genome["algo"] != island.elites()[0]["algo"]


# -- priors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mutation", "fills"), [("prior", True), ("seed", False)])
def test_priors_replace_none_of_the_space_filling_start(
    mutation: str, fills: bool, world: Any
) -> None:
    start = IslandSettings().start
    (island,), log = world.islands(only=["memory"]), world.log()
    for number, genome in enumerate(samples(world, start + 2)):
        found = mutation if number < 4 else "sample"
        judged = world.judge(Proposal(genome=genome, mutation=found), 2.0, number=number)
        island.tell([judged])
        log.add(judged)
    rng = np.random.default_rng(0)
    made = {island.ask(1, rng, log)[0].mutation for _ in range(12)}
    assert (made == {"sample"}) is fills
