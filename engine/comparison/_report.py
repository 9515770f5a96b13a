"""Files of a comparison: every trajectory as CSV, and the curves as a picture."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernelarc.engine.comparison._figures import Curves
from kernelarc.engine.comparison._methods import OURS
from kernelarc.engine.comparison._play import Trajectory
from kernelarc.engine.comparison._runs import Run
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import MissingPartError

_HEADINGS = ("space", "method", "seed", "evaluations", "best", "best_over_optimum")


def require_plotting() -> None:
    """Check before the first run that the picture can be drawn after the last.

    Raises:
        MissingPartError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingPartError(
            "matplotlib is missing: comparing needs pip install 'kernelarc[peers]'"
        ) from error


def write_report(
    out: Path,
    runs: Mapping[Run, Trajectory],
    curves: Mapping[str, Mapping[str, Curves]],
    tables: Sequence[Table],
    budgets: Sequence[int],
) -> list[Path]:
    """Write the trajectories and the picture; return their paths."""
    optima = {table.name: table.optimum for table in tables}
    files = [out / "trajectories.csv", out / "curves.png"]
    with files[0].open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADINGS)
        for (space, method, seed), found in sorted(runs.items()):
            ends = [] if not found.steps else [(found.evaluations, found.steps[-1][1])]
            for count, best in dict.fromkeys((*found.steps, *ends)):
                ratio = f"{best / optima[space]:.6f}"
                writer.writerow((space, method, seed, count, f"{best:.9g}", ratio))
    _draw(files[1], curves, budgets)
    return files


def _draw(path: Path, curves: Mapping[str, Mapping[str, Curves]], budgets: Sequence[int]) -> None:
    """Draw the geometric mean over spaces of the median, by evaluations, one line a method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    evaluations = np.arange(1, budgets[-1] + 1)
    for name, by_space in curves.items():
        medians = np.array([np.median(c, axis=0) for c in by_space.values()])
        mean = np.exp(np.log(medians).mean(axis=0))
        axes.plot(evaluations, mean - 1.0, label=name, linewidth=2.5 if name == OURS else 1.2)
    for budget in budgets:
        axes.axvline(budget, color="0.85", linewidth=0.8, zorder=0)
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("unique evaluations, failed ones included")
    axes.set_ylabel("best / optimum - 1: geometric mean over spaces of medians")
    axes.set_title(f"{len(next(iter(curves.values())))} recorded spaces")
    axes.legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=120)
