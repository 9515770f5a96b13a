"""Optuna's samplers alone on a table, as somebody would use them without us."""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

import numpy as np

from kernelarc.engine.comparison._play import Play
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Gene, InputError, MissingPartError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

# A sampler that proposed only what is known or illegal so many times is handed a legal genome.
_MOST_MISSES = 12


def play_tpe(table: Table, budget: int, seed: int) -> list[float]:
    """Run multivariate TPE."""
    from optuna.samplers import TPESampler  # noqa: PLC0415

    return _play(table, budget, seed, TPESampler(seed=seed, multivariate=True))


def play_gp(table: Table, budget: int, seed: int) -> list[float]:
    """Run the Gaussian process sampler, which needs PyTorch and SciPy."""
    from optuna.samplers import GPSampler  # noqa: PLC0415

    import_module("torch").set_num_threads(1)
    return _play(table, budget, seed, GPSampler(seed=seed, deterministic_objective=True))


def play_cma_es(table: Table, budget: int, seed: int) -> list[float]:
    """Run CMA-ES, which needs the package cmaes and draws genes without an order at random."""
    from optuna.samplers import CmaEsSampler  # noqa: PLC0415

    return _play(table, budget, seed, CmaEsSampler(seed=seed, warn_independent_sampling=False))


def version(*needs: str) -> str:
    """Return the versions of Optuna and of what a sampler needs beside it.

    Raises:
        MissingPartError: A needed package is not installed.
    """
    return " ".join(f"{name} {_version(name)}" for name in ("optuna", *needs))


def _version(name: str) -> str:
    try:
        return version_of(name)
    except PackageNotFoundError as error:
        raise MissingPartError(
            f"{name} is missing: this sampler of Optuna needs pip install 'kernelarc[peers]'"
        ) from error


def _play(table: Table, budget: int, seed: int, sampler: BaseSampler) -> list[float]:
    """Ask and tell until the budget is used. Failures are told as pruned.

    What is illegal or known is dropped and another proposal drawn: told as pruned, such proposals
    crowd TPE's model and slow it down, with far worse results. A sampler that only repeats itself
    is helped on with a new legal genome, drawn evenly.
    """
    import optuna  # noqa: PLC0415
    from optuna.trial import TrialState  # noqa: PLC0415

    play = Play(table, budget)
    free = [gene for gene in table.genes if gene.cardinality > 1]
    others = iter(np.random.default_rng(seed).permutation(len(table.objectives)))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=sampler, direction="minimize")
        distributions = {gene.name: _distribution(gene) for gene in free}
        misses = 0
        while not play.spent:
            if misses >= _MOST_MISSES:
                row = next(int(place) for place in others if not play.known(int(place)))
                study.enqueue_trial(_parameters(table, row))
            trial = study.ask(distributions)
            found = play.find([int(trial.params.get(gene.name, 0)) for gene in table.genes])
            misses = misses + 1 if found is None or play.known(found) else 0
            if found is None or misses:
                study.tell(trial, state=TrialState.FAIL)  # drawn again, as if never proposed
                continue
            objective = play.evaluate(found)
            if math.isnan(objective):
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, objective)
    return play.objectives


def _parameters(table: Table, row: int) -> dict[str, int]:
    """Return a row in Optuna's words: places by gene."""
    places = table.rows[row].tolist()
    return {
        gene.name: max(place, 0)
        for gene, place in zip(table.genes, places, strict=True)
        if gene.cardinality > 1
    }


def _distribution(gene: Gene) -> BaseDistribution:
    """Return a gene as Optuna knows it: by place, ordered or not."""
    from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415

    if gene.cardinality > 10_000:
        raise InputError(f"gene {gene.name!r} has too many alleles for Optuna's samplers")
    if gene.ordered:
        return IntDistribution(0, gene.cardinality - 1)
    return CategoricalDistribution(list(range(gene.cardinality)))
