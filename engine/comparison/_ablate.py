"""Ablations: our search beside itself with one thing changed, same spaces, seeds and budgets."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.comparison._arms import arm_settings, arms_named
from kernelarc.engine.comparison._compare import Comparison
from kernelarc.engine.comparison._figures import (
    Resampled,
    estimate,
    geometric_means,
    optimal_shares,
)
from kernelarc.engine.comparison._methods import METHODS, OURS
from kernelarc.engine.comparison._paired import blocks, differences, holm, ratio_of, sign_flip_p
from kernelarc.engine.comparison._play import Trajectory
from kernelarc.engine.comparison._runs import Run, RunLog, Task, run_all, tasks_of
from kernelarc.engine.comparison._table import Table, load_table, space_files
from kernelarc.genomes import Estimate

FULL = "full"
ROWS_FILE = "ablations.csv"
_HEADINGS = ("arm", "space", "seed", "budget", "value")
# Seeds that are played on all spaces before the next ones are: an interruption leaves whole seeds.
_SEEDS_AT_ONCE = 10

Values = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""By arm and space: best over the optimum, shape (seeds, budgets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """What one arm reached, and how it stands to the full program.

    Attributes:
        means: Geometric mean over spaces of the median best / optimum, by budget.
        shares: Share of all runs at the optimum, by budget.
        ratios: Geometric mean of best over the full program's best with the same seed, kernels
            weighing alike, by budget; above 1 the full program is better. Empty for it itself.
        chances: By budget, how likely equal searches would differ so much: signs of the paired
            differences flipped at random, spaces of one kernel together.
        corrected: ``chances`` corrected for the number of arms (Holm), by budget.
        spaces: On how many spaces the arm changes anything; elsewhere it is the full program.
    """

    means: Mapping[int, Estimate]
    shares: Mapping[int, Estimate]
    ratios: Mapping[int, Estimate]
    chances: Mapping[int, float]
    corrected: Mapping[int, float]
    spaces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationResult:
    """What ablations found.

    Attributes:
        comparison: What was asked for.
        arms: By name, the full program first.
        kernels: By space.
        version: Hash of the sources that searched.
        seconds: Wall seconds.
    """

    comparison: Comparison
    arms: Mapping[str, ArmFigures]
    kernels: Mapping[str, str]
    version: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "schema": 1,
            "repeats": self.comparison.repeats,
            "budgets": list(self.comparison.budgets),
            "seed": self.comparison.seed,
            "spaces": dict(self.kernels),
            "arms": {name: asdict(found) for name, found in self.arms.items()},
            "version": self.version,
            "seconds": round(self.seconds, 1),
        }


def ablate(
    comparison: Comparison, *, telling: Callable[[int, int], None] = lambda done, wanted: None
) -> AblationResult:
    """Run what is missing of the full program and its arms, and write rows and figures.

    Runs are cut off at the optimum, and an arm that changes nothing on a space is not played there
    but has the full program's runs: neither changes a value.

    Args:
        comparison: ``peers`` names the arms; none is all of them.
        telling: Told of runs done and wanted.

    Raises:
        InputError: A space or an arm is wrong; nothing was written.
    """
    began = time.monotonic()
    arms = arms_named(comparison.peers)
    tables = [load_table(path) for path in space_files(comparison.spaces)]
    changing = {arm: [t for t in tables if arm_settings(t, arm) is not None] for arm in arms}
    tasks = _tasks(comparison, tables, changing)
    comparison.out.mkdir(parents=True, exist_ok=True)
    log = RunLog(comparison.out / "runs.jsonl")
    jobs = comparison.jobs or len(os.sched_getaffinity(0))
    runs = run_all(tasks, log, jobs=jobs, telling=telling)
    values = _values(comparison, tables, arms, runs)
    _write_rows(comparison, values)
    kernels = {table.name: table.kernel for table in tables}
    result = AblationResult(
        comparison=comparison,
        arms=_figures(values, kernels, comparison.budgets, changing),
        kernels=kernels,
        version=METHODS[OURS].version(),
        seconds=time.monotonic() - began,
    )
    text = json.dumps(result.to_json(), indent=1) + "\n"
    (comparison.out / "ablations.json").write_text(text)
    return result


def _method(arm: str) -> str:
    return OURS if arm == FULL else f"{OURS}:{arm}"


def _tasks(
    comparison: Comparison, tables: Sequence[Table], changing: Mapping[str, Sequence[Table]]
) -> list[Task]:
    first, last = comparison.seed, comparison.seed + comparison.repeats
    names = [table.name for table in tables]
    found: list[Task] = []
    for begin in range(first, last, _SEEDS_AT_ONCE):
        seeds = range(begin, min(begin + _SEEDS_AT_ONCE, last))
        for name in names:
            at = [table for table in tables if table.name == name]
            played = [FULL, *(arm for arm, where in changing.items() if at[0] in where)]
            methods = [METHODS[_method(arm)] for arm in played]
            found += tasks_of(at, methods, seeds, comparison.budgets[-1], None, until_optimum=True)
    return found


def _values(
    comparison: Comparison,
    tables: Sequence[Table],
    arms: Sequence[str],
    runs: Mapping[Run, Trajectory],
) -> Values:
    seeds = range(comparison.seed, comparison.seed + comparison.repeats)
    places = [budget - 1 for budget in comparison.budgets]

    def of(arm: str, table: Table) -> NDArray[np.float64]:
        method = _method(arm)
        if (table.name, method, seeds[0]) not in runs:
            method = OURS
        curves = [
            runs[table.name, method, seed].curve(places[-1] + 1, table.worst) for seed in seeds
        ]
        found: NDArray[np.float64] = np.array(curves)[:, places] / table.optimum
        return found

    return {arm: {table.name: of(arm, table) for table in tables} for arm in (FULL, *arms)}


def _write_rows(comparison: Comparison, values: Values) -> None:
    with (comparison.out / ROWS_FILE).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADINGS)
        for arm, spaces in values.items():
            for space, found in spaces.items():
                for seed, row in enumerate(found, comparison.seed):
                    for budget, value in zip(comparison.budgets, row, strict=True):
                        writer.writerow((arm, space, seed, budget, f"{value:.9g}"))


def _figures(
    values: Values,
    kernels: Mapping[str, str],
    budgets: Sequence[int],
    changing: Mapping[str, Sequence[Table]],
) -> dict[str, ArmFigures]:
    blocked = {
        arm: {
            b: blocks(differences(_at(spaces, place), _at(values[FULL], place)), kernels)
            for place, b in enumerate(budgets)
        }
        for arm, spaces in values.items()
        if arm != FULL
    }
    chances = {
        arm: {b: sign_flip_p(block) for b, block in by.items()} for arm, by in blocked.items()
    }
    corrected = {
        b: dict(zip(chances, holm([p[b] for p in chances.values()]), strict=True)) for b in budgets
    }
    return {
        arm: ArmFigures(
            **_reached(spaces, budgets),
            ratios={b: ratio_of(block) for b, block in blocked.get(arm, {}).items()},
            chances=chances.get(arm, {}),
            corrected={b: corrected[b][arm] for b in budgets if arm in chances},
            spaces=len(changing[arm]) if arm in changing else len(spaces),
        )
        for arm, spaces in values.items()
    }


def _at(spaces: Mapping[str, NDArray[np.float64]], place: int) -> dict[str, NDArray[np.float64]]:
    return {space: found[:, place] for space, found in spaces.items()}


def _reached(
    spaces: Mapping[str, NDArray[np.float64]], budgets: Sequence[int]
) -> dict[str, Mapping[int, Estimate]]:
    drawn = [Resampled.of(found, stream) for stream, found in enumerate(spaces.values())]
    runs = sum(one.runs for one in drawn)
    at = list(enumerate(budgets))
    return {
        "means": {b: estimate(geometric_means(drawn, place), runs) for place, b in at},
        "shares": {b: estimate(optimal_shares(drawn, place), runs) for place, b in at},
    }
