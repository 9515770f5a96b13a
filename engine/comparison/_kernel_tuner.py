"""Kernel Tuner's strategies on a table, in its simulation mode."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version as version_of
from types import ModuleType
from typing import Any

import numpy as np

from kernelarc.engine.comparison._play import Play, SpentError
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Gene, MissingPartError

# Strategies that need nothing beyond what the extra installs. Left out are brute force, the
# random sample (ours is exact), those for several objectives, and the wrappers of other packages.
STRATEGIES = (
    "adaptive_tabu_greywolf",
    "genetic_algorithm",
    "hybrid_vndx",
    "pso",
    "bayes_opt",
    "basinhopping",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
    "greedy_ils",
    "greedy_mls",
    "mls",
    "ordered_greedy_mls",
    "simulated_annealing",
)
_NEEDS = {"bayes_opt": ("scikit-learn",)}
_FAILED = 1e20  # what bayes_opt knows as "not valid"


def play_strategy(table: Table, budget: int, seed: int, strategy: str) -> list[float]:
    """Run one strategy with its defaults; it may end before the budget is used.

    Every run has a search space object of its own: one that is shared keeps state between runs.
    ``bayes_opt`` is repaired: as shipped it takes failed genomes for measurements.

    Raises:
        MissingPartError: Kernel Tuner is not installed.
    """
    interface = _module("kernel_tuner.interface")
    play = Play(table, budget)
    values = [_values(gene) for gene in table.genes]
    names = [gene.name for gene in table.genes]
    rows = np.maximum(table.rows, 0)
    listed = [tuple(v[p] for v, p in zip(values, row, strict=True)) for row in rows.tolist()]
    space = _module("kernel_tuner.searchspace").Searchspace(
        None,
        None,
        None,
        from_cache={
            "tune_params": dict(zip(names, values, strict=True)),
            "cache": {str(i): dict(zip(names, row, strict=True)) for i, row in enumerate(listed)},
        },
    )
    options = _options(interface, space, listed, table, min(budget, len(listed)))
    runner = _runner(interface, play, {_key(row): place for place, row in enumerate(listed)})
    with _seeded(seed), _repaired(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the strategies' own libraries deprecate
        try:
            interface.strategy_map[strategy].tune(space, runner, options)
        except (SpentError, _module("kernel_tuner.util").StopCriterionReached):
            pass
        except ValueError:
            # Some strategies complain once the budget is used; before that it is an error.
            if not play.spent:
                raise
    return play.objectives


def version(strategy: str) -> str:
    """Return the versions of Kernel Tuner and of what a strategy needs beside it.

    Raises:
        MissingPartError: A package is not installed.
    """
    needs = ("kernel_tuner", *_NEEDS.get(strategy, ()))
    for name in needs:
        _module({"scikit-learn": "sklearn"}.get(name, name))
    return " ".join(f"{name} {version_of(name)}" for name in needs)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPartError(
            f"{error.name or name} is missing: Kernel Tuner's strategies need "
            f"pip install 'kernelarc[peers]'"
        ) from error


def _values(gene: Gene) -> list[Any]:
    """Return a domain in values that Kernel Tuner tells apart by their text."""
    values = list(gene.values())
    plain = all(isinstance(value, int | float | str) for value in values)
    return (
        values if plain and len(set(map(str, values))) == len(values) else list(range(len(values)))
    )


def _key(row: tuple[Any, ...]) -> str:
    return ",".join(map(str, row))


def _options(
    interface: ModuleType, space: Any, listed: list[tuple[Any, ...]], table: Table, budget: int
) -> Any:
    cache = {}
    failure = _module("kernel_tuner.util").RuntimeFailedConfig()
    for row, objective in zip(listed, table.objectives.tolist(), strict=True):
        result = dict(zip(space.param_names, row, strict=True))
        result |= {"time": objective, "compile_time": 0, "verification_time": 0}
        result["benchmark_time"] = 0
        if np.isnan(objective):
            result["time"] = result["__error__"] = failure
        cache[_key(row)] = result
    return interface.Options(
        strategy_options=interface.Options(max_fevals=budget),
        max_fevals=budget,
        budget=_module("kernel_tuner.util").TuningBudget(None, budget),
        cache=cache,
        tune_params=space.tune_params,
        restrictions=None,
        objective=["time"],
        objective_higher_is_better=[False],
        metrics=None,
        verbose=False,
        simulated_time=0,
        snap=True,
    )


def _runner(interface: ModuleType, play: Play, places: dict[str, int]) -> Any:
    """Return a simulation runner whose answers are counted by ``play``."""
    options = interface.Options(kernel_name="recorded", quiet=True)
    runner = _module("kernel_tuner.runners.simulation").SimulationRunner(
        None, options, options, 1, None
    )
    simulate = runner.run

    def run(configurations: Any, tuning: Any) -> Any:
        results = simulate(configurations, tuning)
        for configuration, result in zip(configurations, results, strict=True):
            if result is not None and (row := places.get(_key(tuple(configuration)))) is not None:
                play.evaluate(row)
        return results

    runner.run = run
    return runner


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global streams that the strategies draw from, and leave them as they were found.

    Some depend on the order of sets as well, and so on the process; two cannot be seeded at all.
    """
    ours, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 - the peers draw from it
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(arrays)  # noqa: NPY002


@contextmanager
def _repaired() -> Iterator[None]:
    """Let bayes_opt see a failure as what it takes for one."""
    module: Any = _module("kernel_tuner.strategies.bayes_opt")
    shipped: Any = module.CostFunc

    def evaluate(self: Any, x: Any, check_restrictions: bool = True) -> Any:
        return min(shipped.__call__(self, x, check_restrictions), _FAILED)

    module.CostFunc = type("CostFunc", (shipped,), {"__call__": evaluate})
    try:
        yield
    finally:
        module.CostFunc = shipped
