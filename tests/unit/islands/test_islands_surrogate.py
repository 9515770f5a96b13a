"""The Gaussian process: what it believes, and that it is a function of the log alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from kernelarc.genomes import Proposal
from kernelarc.islands import IslandSettings
from kernelarc.islands._traps import Traps
from kernelarc.islands._turn import Turn
from kernelarc.islands.models import Surrogate, SurrogateProposer, _threads, one_thread
from kernelarc.islands.models._features import Features
from kernelarc.islands.models._gaussian import Posterior, _evidence, fit_scales, planes_of
from kernelarc.islands.models._surrogate import expected_improvement, targets


def filled(world: Any, space: str, n: int, objective: Any = None) -> Any:
    log, rng = world.log(), np.random.default_rng(0)
    while log.count() < n:
        genome = world.spaces[space].sample(rng)
        if not log.evaluated(genome.fingerprint):
            found = (objective or world.objective)(genome)
            proposal = Proposal(genome=genome, mutation="sample")
            log.add(world.judge(proposal, found, number=log.count()))
    return log


def ask(world: Any, surrogate: Surrogate, log: Any, seed: int, space: str = "plain") -> Any:
    proposer = SurrogateProposer("model.surrogate", surrogate, world.spaces[space])
    turn = Turn(np.random.default_rng(seed), log, Traps("w"), 0.05)
    return proposer.propose(turn, None, lambda: None)


@pytest.mark.parametrize("space", ["plain", "dependent", "orders", "huge"])
def test_proposals_are_legal_new_and_follow_the_stream(world: Any, space: str) -> None:
    log, where = filled(world, space, 20), world.spaces[space]
    surrogate = Surrogate(where, IslandSettings())
    for seed in range(3):
        found = ask(world, surrogate, log, seed, space)
        assert found is not None
        assert where.contains(found)
        assert not log.evaluated(found.fingerprint)
        assert found == ask(world, Surrogate(where, IslandSettings()), log, seed, space)


def test_what_it_remembers_changes_no_answer(world: Any) -> None:
    log, part = filled(world, "plain", 40), world.log()
    old = Surrogate(world.spaces["plain"], IslandSettings())
    for judged in log.judged:
        part.add(judged)
        if part.count() % 9 == 0:
            ask(world, old, part, part.count())
    new = Surrogate(world.spaces["plain"], IslandSettings())
    assert ask(world, old, log, 7) == ask(world, new, log, 7)


def test_it_finds_better_genomes_than_it_was_shown(world: Any) -> None:
    log = filled(world, "plain", 60)
    surrogate = Surrogate(world.spaces["plain"], IslandSettings())
    shown = np.median([j.evaluation.measurement.objective for j in log.best(60)])
    found = [world.objective(ask(world, surrogate, log, seed)) for seed in range(5)]
    assert np.mean([one for one in found if one is not None]) < shown


def test_too_little_or_only_failures_say_nothing(world: Any) -> None:
    surrogate = Surrogate(world.spaces["plain"], IslandSettings())
    assert ask(world, surrogate, filled(world, "plain", 5), 0) is None
    assert ask(world, surrogate, filled(world, "plain", 30, lambda genome: None), 0) is None


def test_equal_objectives_are_no_fault(world: Any) -> None:
    log = filled(world, "plain", 20, lambda genome: 3.0)
    assert ask(world, Surrogate(world.spaces["plain"], IslandSettings()), log, 0) is not None


def test_the_posterior_passes_through_what_was_seen() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((30, 3))
    y = np.sin(3 * rows[:, 0]) + rows[:, 1]
    y = (y - y.mean()) / y.std()
    groups = (slice(0, 1), slice(1, 2), slice(2, 3))
    posterior = Posterior(rows, y, groups, fit_scales(rows, y, groups))
    mean, spread = posterior.at(rows)
    assert np.abs(mean - y).max() < 0.1
    assert spread.max() < 0.2
    far, unsure = posterior.at(np.full((1, 3), 9.0))
    assert abs(far[0]) < 0.5
    assert unsure[0] > 0.5


def test_columns_that_do_not_matter_get_the_least_weight() -> None:
    rng = np.random.default_rng(1)
    rows = rng.random((60, 3))
    y = np.sin(5 * rows[:, 0])
    y = (y - y.mean()) / y.std()
    weights = fit_scales(rows, y, (slice(0, 1), slice(1, 2), slice(2, 3))).weights
    assert weights[0] > 4 * weights[1]
    assert weights[0] > 4 * weights[2]


def test_the_slope_of_the_evidence_is_its_derivative() -> None:
    rng = np.random.default_rng(2)
    rows, y = rng.random((12, 2)), rng.normal(size=12)
    planes = planes_of(rows, (slice(0, 1), slice(1, 2)))
    theta = np.array([0.3, -0.4, -2.0])
    _, slope = _evidence(theta, planes, y)
    for place in range(3):
        step = np.zeros(3)
        step[place] = 1e-5
        rise = _evidence(theta + step, planes, y)[0] - _evidence(theta - step, planes, y)[0]
        assert slope[place] == pytest.approx(rise / 2e-5, rel=1e-3)


@given(best=st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_improvement_grows_with_promise_and_with_doubt(best: float) -> None:
    mean, spread = np.array([0.0, -1.0, 0.0]), np.array([1.0, 1.0, 2.0])
    base, better, unsure = expected_improvement(mean, spread, best)
    assert 0 <= base <= better
    assert base <= unsure


def test_failures_count_as_poor_but_not_as_the_worst(world: Any) -> None:
    log = filled(world, "plain", 60)
    y = targets(log.judged)
    failed = [y[i] for i, j in enumerate(log.judged) if j.evaluation.measurement is None]
    assert len(set(failed)) == 1
    assert np.median(y) < failed[0] < y.max()


def test_alleles_are_one_apart_by_identity_and_nearer_by_order(world: Any) -> None:
    space = world.spaces["line"]
    features = Features(space)
    rows = features.rows(space.genome({"x": x}) for x in (3, 4, 30))
    order, identity = features.groups
    assert np.square(rows[0, identity] - rows[1, identity]).sum() == pytest.approx(1.0)
    assert np.square(rows[0, identity] - rows[2, identity]).sum() == pytest.approx(1.0)
    assert abs(rows[0, order] - rows[1, order])[0] < abs(rows[0, order] - rows[2, order])[0]


def test_switched_off_genes_have_features_too(world: Any) -> None:
    space = world.spaces["dependent"]
    features = Features(space)
    off = features.row(space.genome({"algo": "c", "swizzle": True}))
    on = features.row(space.genome({"algo": "a", "tile": 8, "swizzle": True}))
    assert off.shape == on.shape == (features.width,)
    assert not np.array_equal(off, on)


def test_models_compute_on_one_thread_and_give_the_others_back() -> None:
    def threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    _threads._libraries.cache_clear()  # other tests loaded libraries that are none of NumPy's
    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        with one_thread():
            assert set(threads()) == {1}
        assert threads() == before
