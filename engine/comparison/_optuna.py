"""Optuna's samplers alone on a table, as somebody would use them without us."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

from kernelarc.engine.comparison._play import Play
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Gene, InputError, MissingPartError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

# A sampler that proposes only what is known or illegal is given up.
_MOST_ASKS = 40


def play_tpe(table: Table, budget: int, seed: int) -> list[float]:
    """Run multivariate TPE."""
    from optuna.samplers import TPESampler  # noqa: PLC0415

    return _play(table, budget, lambda: TPESampler(seed=seed, multivariate=True))


def play_gp(table: Table, budget: int, seed: int) -> list[float]:
    """Run the Gaussian process sampler, which needs PyTorch and SciPy."""
    from optuna.samplers import GPSampler  # noqa: PLC0415

    import_module("torch").set_num_threads(1)
    return _play(table, budget, lambda: GPSampler(seed=seed, deterministic_objective=True))


def play_cma_es(table: Table, budget: int, seed: int) -> list[float]:
    """Run CMA-ES, which needs the package cmaes and draws genes without an order at random."""
    from optuna.samplers import CmaEsSampler  # noqa: PLC0415

    return _play(table, budget, lambda: CmaEsSampler(seed=seed, warn_independent_sampling=False))


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


def _play(table: Table, budget: int, sampler: Callable[[], BaseSampler]) -> list[float]:
    """Ask and tell until the budget is used. Failures are told as pruned.

    What is illegal or known is dropped and another proposal drawn: told as pruned, such proposals
    crowd TPE's model and slow it down, with far worse results.
    """
    import optuna  # noqa: PLC0415
    from optuna.trial import TrialState  # noqa: PLC0415

    play = Play(table, budget)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=sampler(), direction="minimize")
        distributions = {g.name: _distribution(g) for g in table.genes if g.cardinality > 1}
        for _ in range(_MOST_ASKS * budget):
            trial = study.ask(distributions)
            row = play.find([int(trial.params.get(gene.name, 0)) for gene in table.genes])
            if row is None or play.known(row):
                study.tell(trial, state=TrialState.FAIL)  # drawn again, as if never proposed
                continue
            objective = play.evaluate(row)
            if math.isnan(objective):
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, objective)
            if play.spent:
                break
    return play.objectives


def _distribution(gene: Gene) -> BaseDistribution:
    """Return a gene as Optuna knows it: by place, ordered or not."""
    from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415

    if gene.cardinality > 10_000:
        raise InputError(f"gene {gene.name!r} has too many alleles for Optuna's samplers")
    if gene.ordered:
        return IntDistribution(0, gene.cardinality - 1)
    return CategoricalDistribution(list(range(gene.cardinality)))
