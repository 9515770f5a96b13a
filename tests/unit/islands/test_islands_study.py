"""Optuna's part: studies rebuilt from evaluations, nothing left running, nothing announced."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from kernelarc.genomes import Judged, Proposal
from kernelarc.islands import IslandSettings
from kernelarc.islands._traps import Traps
from kernelarc.islands._turn import Turn
from kernelarc.islands.models import StudyProposer, window
from kernelarc.islands.models._axes import Axis


def filled(world: Any, space: str, n: int) -> Any:
    log, rng = world.log(), np.random.default_rng(0)
    while log.count() < n:
        genome = world.spaces[space].sample(rng)
        if not log.evaluated(genome.fingerprint):
            proposal = Proposal(genome=genome, mutation="sample")
            log.add(world.judge(proposal, world.objective(genome), number=log.count()))
    return log


def proposer(world: Any, space: str = "plain") -> StudyProposer:
    where = world.spaces[space]
    return StudyProposer("tensor_core.study", where, where.genes, IslandSettings())


def nothing() -> None:
    """Draft nothing: studies need no drafts."""


def turn(log: Any, seed: int = 0) -> Turn:
    return Turn(np.random.default_rng(seed), log, Traps("w"), 0.05)


def test_a_study_holds_finished_trials_only(world: Any) -> None:
    log, made = filled(world, "plain", 60), proposer(world)
    asked = [made.propose(turn(log, seed), None, nothing) for seed in range(6)]
    assert any(genome is not None for genome in asked)
    trials = made.study(log.judged).trials
    assert len(trials) == 60
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    failed = sum(j.evaluation.measurement is None for j in log.judged)
    assert sum(trial.state is TrialState.PRUNED for trial in trials) == failed > 0


@pytest.mark.parametrize("space", ["plain", "dependent", "orders"])
def test_suggestions_are_legal_new_and_follow_the_stream(world: Any, space: str) -> None:
    log = filled(world, space, 24 if space == "dependent" else 40)
    for seed in range(4):
        found = proposer(world, space).propose(turn(log, seed), None, nothing)
        again = proposer(world, space).propose(turn(log, seed), None, nothing)
        assert found == again
        if found is not None:
            assert world.spaces[space].contains(found)
            assert not log.evaluated(found.fingerprint)


def test_a_study_extended_equals_one_rebuilt(world: Any) -> None:
    log, old = filled(world, "plain", 60), proposer(world)
    growing = world.log()
    for judged in log.judged:
        growing.add(judged)
        if growing.count() % 7 == 0:
            old.propose(turn(growing, growing.count()), None, nothing)
    assert old.propose(turn(log, 5), None, nothing) == proposer(world).propose(
        turn(log, 5), None, nothing
    )


def test_too_few_trials_say_nothing(world: Any) -> None:
    log = filled(world, "plain", 9)
    assert proposer(world).propose(turn(log), None, nothing) is None


def test_a_study_over_tiles_keeps_the_other_genes(world: Any) -> None:
    log, space = filled(world, "plain", 60), world.spaces["plain"]
    tiles = [space.gene(name) for name in ("tile_m", "tile_n", "warps")]
    made = StudyProposer("tensor_core.study", space, tiles, IslandSettings())
    parent = log.best(1)[0].evaluation.candidate.genome
    kept = 0
    for seed in range(10):
        found = made.propose(turn(log, seed), parent, nothing)
        if found is not None:
            others = [name for name in parent if name not in {"tile_m", "tile_n", "warps"}]
            kept += all(found[name] == parent[name] for name in others)
    assert kept >= 5


def test_optuna_keeps_its_voice_and_its_settings(
    world: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    level = logging.getLogger().level
    proposer(world).propose(turn(filled(world, "plain", 30)), None, nothing)
    assert optuna.logging.get_verbosity() == before
    assert logging.getLogger().level == level
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


def test_windows_are_bounded_and_hold_the_best_and_the_newest(world: Any) -> None:
    log = filled(world, "plain", 300)
    for count in range(100, 301, 7):
        part = world.log()
        for judged in log.judged[:count]:
            part.add(judged)
        found = window(part, "plain", 120)
        keys = [j.evaluation.candidate.number for j in found]
        assert len(found) <= 120
        assert keys == sorted(set(keys))
        assert part.judged[-1] in found
        assert part.best(1)[0] in found


def test_windows_mostly_grow_at_their_end(world: Any) -> None:
    log, part = filled(world, "plain", 300), world.log()
    before: list[Judged] = []
    extended = 0
    for judged in log.judged:
        part.add(judged)
        found = window(part, "plain", 120)
        extended += found[: len(before)] == before
        before = found
    assert extended > 150


def test_switches_silence_models_together_or_one_kind_alone(world: Any) -> None:
    def asked(**switches: Any) -> set[str]:
        settings = IslandSettings(study_share=0.6, **switches)
        islands = world.islands(only=["tensor_core"], settings=settings)
        log = world.play(islands, 40)
        return {judged.evaluation.candidate.mutation for judged in log.judged}

    studies, process = {"tensor_core.study", "tensor_core.whole_study"}, {"model.surrogate"}
    assert studies | process <= asked()
    assert (studies | process).isdisjoint(asked(models=False))
    assert studies.isdisjoint(without := asked(studies=False))
    assert process <= without
    assert process.isdisjoint(without := asked(surrogate=False))
    assert studies <= without


def test_alleles_and_parameters_are_each_others_inverse(world: Any) -> None:
    for space in world.spaces.values():
        for gene in space.genes:
            axis, rng = Axis(gene), np.random.default_rng(0)
            for _ in range(5):
                allele = gene.sample(rng)
                assert axis.allele(axis.parameters(allele)) == allele
