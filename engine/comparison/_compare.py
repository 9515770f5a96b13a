"""A whole comparison: spaces and methods in, runs, figures and files out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.engine.comparison._figures import (
    Curves,
    MethodFigures,
    Resampled,
    advantage,
    figures_of,
    ground_of,
    permutation_p,
)
from kernelarc.engine.comparison._methods import OURS, methods_named
from kernelarc.engine.comparison._play import Trajectory
from kernelarc.engine.comparison._random import chance_of_optimum, median_best
from kernelarc.engine.comparison._report import require_plotting, write_report
from kernelarc.engine.comparison._runs import Run, RunLog, run_all, tasks_of
from kernelarc.engine.comparison._table import Table, load_table, space_files
from kernelarc.genomes import Estimate, InputError

RUNS_FILE = "runs.jsonl"
_MOST_BUDGET = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What to compare.

    Attributes:
        spaces: Folder of recorded spaces.
        peers: Names or families of methods beside our own.
        budgets: Unique evaluations at which figures are given.
        repeats: Runs of each method on each space.
        seed: Seed of the first run; the others follow on.
        out: Folder for the results; runs that stand there already are not made again.
        jobs: Processes; None is one a core.
        permute_seed: Exchange the recorded objectives at random, as a control: no method can then
            do better than random search.
    """

    spaces: Path
    peers: tuple[str, ...]
    budgets: tuple[int, ...]
    repeats: int
    seed: int
    out: Path
    jobs: int | None = None
    permute_seed: int | None = None

    def __post_init__(self) -> None:
        if not self.budgets or sorted(set(self.budgets)) != list(self.budgets):
            raise InputError(f"--budgets must rise, as 50,100,220, not {_listed(self.budgets)}")
        if not 1 <= self.budgets[0] <= self.budgets[-1] <= _MOST_BUDGET:
            raise InputError(
                f"--budgets must lie between 1 and {_MOST_BUDGET}, not {_listed(self.budgets)}"
            )
        if self.repeats < 1 or self.seed < 0 or (self.jobs is not None and self.jobs < 1):
            raise InputError("--repeats and --jobs must be at least 1, --seed at least 0")
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"-o {self.out}: is a file; a folder is wanted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What a comparison found.

    Attributes:
        comparison: What was asked for.
        methods: Figures by method, ours first.
        exact: Random search without chance: by space, its median best / optimum at each budget and
            its chance to stand at the optimum.
        advantages: Our geometric mean over each peer's, by peer and budget; below 1 is better.
        chances: By peer and budget, how likely methods of equal worth would differ so much: a
            permutation test within spaces, kernels weighing alike.
        spaces: By space: kernel, legal genomes, how many of them fail, evaluations at which the
            methodology score is cut.
        files: What was written.
        seconds: Wall seconds.
    """

    comparison: Comparison
    methods: Mapping[str, MethodFigures]
    exact: Mapping[str, Mapping[int, tuple[float, float]]]
    advantages: Mapping[str, Mapping[int, Estimate]]
    chances: Mapping[str, Mapping[int, float]]
    spaces: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str]
    files: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "schema": 1,
            "repeats": self.comparison.repeats,
            "budgets": list(self.comparison.budgets),
            "seed": self.comparison.seed,
            "permuted": self.comparison.permute_seed is not None,
            "spaces": {name: dict(found) for name, found in self.spaces.items()},
            "methods": {name: asdict(found) for name, found in self.methods.items()},
            "random_exact": {
                space: {str(b): list(pair) for b, pair in found.items()}
                for space, found in self.exact.items()
            },
            "advantages": {
                peer: {str(b): asdict(e) for b, e in found.items()}
                for peer, found in self.advantages.items()
            },
            "chances": {
                peer: {str(b): p for b, p in found.items()} for peer, found in self.chances.items()
            },
            "versions": dict(self.versions),
            "files": list(self.files),
            "seconds": round(self.seconds, 1),
        }


def compare(
    comparison: Comparison, *, telling: Callable[[int, int], None] = lambda done, wanted: None
) -> ComparisonResult:
    """Run what is missing, work the figures out, and write them.

    Raises:
        InputError: A space or a setting is wrong; nothing was written.
        MissingPartError: A peer's package is not installed; nothing was written.
    """
    began = time.monotonic()
    methods = methods_named(comparison.peers)
    require_plotting()
    permute = comparison.permute_seed
    tables = [load_table(path, permute_seed=permute) for path in space_files(comparison.spaces)]
    length = comparison.budgets[-1]
    seeds = range(comparison.seed, comparison.seed + comparison.repeats)
    tasks = tasks_of(tables, methods, seeds, length, permute)
    comparison.out.mkdir(parents=True, exist_ok=True)
    log = RunLog(comparison.out / RUNS_FILE)
    jobs = comparison.jobs or len(os.sched_getaffinity(0))
    runs = run_all(tasks, log, jobs=jobs, telling=telling)
    curves = {m.name: _curves(tables, m.name, runs, length) for m in methods}
    files = write_report(comparison.out, runs, curves, tables, comparison.budgets)
    result = ComparisonResult(
        comparison=comparison,
        **_figures(comparison, tables, curves),
        versions={method.name: method.version() for method in methods},
        files=tuple(map(str, files)),
        seconds=time.monotonic() - began,
    )
    (comparison.out / "figures.json").write_text(json.dumps(result.to_json(), indent=1) + "\n")
    return result


def _figures(
    comparison: Comparison, tables: Sequence[Table], curves: Mapping[str, Mapping[str, Curves]]
) -> dict[str, Any]:
    budgets = comparison.budgets
    grounds = {table.name: ground_of(table, budgets[-1]) for table in tables}
    drawn = {
        method: {
            space: Resampled.of(c, stream)
            for stream, (space, c) in enumerate(by.items(), first * len(tables))
        }
        for first, (method, by) in enumerate(curves.items())
    }
    ours = list(drawn[OURS].values())
    return {
        "methods": {name: figures_of(name, by, grounds, budgets) for name, by in drawn.items()},
        "exact": {table.name: _exact(table, budgets) for table in tables},
        "advantages": {
            name: {b: advantage(ours, list(by.values()), b - 1) for b in budgets}
            for name, by in drawn.items()
            if name != OURS
        },
        "chances": {
            name: {
                b: permutation_p(
                    list(curves[OURS].values()), list(by.values()), _kernels(tables), b - 1
                )
                for b in budgets
            }
            for name, by in curves.items()
            if name != OURS
        },
        "spaces": {table.name: _about(table, grounds[table.name].cut) for table in tables},
    }


def _curves(
    tables: Sequence[Table], method: str, runs: Mapping[Run, Trajectory], length: int
) -> dict[str, Curves]:
    """Return a method's curves over the optimum by space, one row a seed in rising order."""
    return {
        table.name: np.array(
            [
                found.curve(length, table.worst) / table.optimum
                for (space, name, _), found in sorted(runs.items())
                if space == table.name and name == method
            ]
        )
        for table in tables
    }


def _kernels(tables: Sequence[Table]) -> list[str]:
    return [table.kernel for table in tables]


def _exact(table: Table, budgets: Sequence[int]) -> dict[int, tuple[float, float]]:
    medians = median_best(table, budgets[-1]) / table.optimum
    return {b: (float(medians[b - 1]), chance_of_optimum(table, b)) for b in budgets}


def _about(table: Table, cut: int) -> dict[str, Any]:
    return {
        "kernel": table.kernel,
        "legal": len(table.objectives),
        "failed": int(np.isnan(table.objectives).sum()),
        "free_genes": sum(gene.cardinality > 1 for gene in table.genes),
        "optimum": table.optimum,
        "cut": cut,
    }


def _listed(budgets: Sequence[int]) -> str:
    return ",".join(map(str, budgets)) or "none"
