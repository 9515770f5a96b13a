"""``kernelarc bench``: comparing our search with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import kernelarc.engine.comparison as comparing
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._bench_report import ablation_text, comparison_text
from kernelarc.cli._text import print_json
from kernelarc.genomes import InputError

_LEADING = "optuna_tpe,adaptive_tabu_greywolf,genetic_algorithm,random"


_SPACES = click.option(
    "--spaces", required=True, type=Path, metavar="DIR", help="Folder of recorded spaces."
)
_REPEATS = click.option(
    "--repeats", type=int, default=20, show_default=True, metavar="N", help="Runs of each method."
)
_BUDGETS = click.option(
    "--budgets",
    default="50,100,220",
    show_default=True,
    metavar="N,N,...",
    help="Unique evaluations at which figures are given.",
)
_SEED = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the first run."
)
_JOBS = click.option("--jobs", type=int, metavar="N", help="Processes (default: one a core).")
_OUTPUT = click.option(
    "-o", "--output", required=True, type=Path, metavar="DIR", help="Where results are written."
)


@click.group("bench")
def command() -> None:
    """Compare our search with others on recorded spaces."""


@command.command("search")
@_SPACES
@_REPEATS
@_BUDGETS
@click.option(
    "--peers",
    default=_LEADING,
    show_default=True,
    metavar="A,B,...",
    help="Methods, or the families kernel_tuner, optuna and ablations (ours, one thing changed).",
)
@_SEED
@_JOBS
@click.option(
    "--permute",
    "permute_seed",
    type=int,
    metavar="SEED",
    help="Exchange the recorded times at random, as a control.",
)
@_OUTPUT
@AS_JSON
def search(output: Path, as_json: bool, budgets: str, peers: str, **asked: Any) -> None:
    """Run our search and its peers on recorded spaces, and compare them.

    Every method is counted alike: a unique legal genome costs one evaluation, whether it worked or
    failed; what is proposed again or is illegal costs nothing. Ours is a whole campaign, as 'run'
    drives it. Written are every trajectory (trajectories.csv), the curves (curves.png), the table
    (table.txt) and all figures (figures.json). Runs that the folder holds already are not made
    again: an interrupted comparison goes on where it was.

    The peers' packages come with: pip install 'kernelarc[peers]'
    """
    comparison = comparing.Comparison(
        peers=_names(peers), budgets=_numbers(budgets), out=output, **asked
    )
    result = comparing.compare(comparison, telling=_tell)
    text = comparison_text(result)
    (output / "table.txt").write_text(text + "\n")
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(text)


@command.command("ablate")
@_SPACES
@_REPEATS
@_BUDGETS
@click.option("--arms", default="", metavar="A,B,...", help="What is changed (default: all arms).")
@_SEED
@_JOBS
@_OUTPUT
@AS_JSON
def ablate(output: Path, as_json: bool, budgets: str, arms: str, **asked: Any) -> None:
    """Run our search beside itself with one thing changed.

    Every arm is a whole campaign whose settings differ in one thing from the full program's, with
    the same seeds on the same spaces: one island that owns every gene; genes divided among two,
    four or eight islands; islands isolated, with conclusions only, with the readable log only;
    unbounded retention; each strategy away; no traps, controller, Optuna, Gaussian process, models.

    A run is cut off at the optimum. Written are every value (ablations.csv: best over the optimum,
    by arm, space, seed and budget), the table (table.txt) and all figures (ablations.json). Runs
    that the folder holds already are not made again: interrupted ablations go on where they were.
    """
    comparison = comparing.Comparison(
        peers=_names(arms), budgets=_numbers(budgets), out=output, **asked
    )
    result = comparing.ablate(comparison, telling=_tell)
    text = ablation_text(result)
    (output / "table.txt").write_text(text + "\n")
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(text)


def _tell(done: int, wanted: int) -> None:
    if done in (0, wanted) or done % 50 == 0:
        click.echo(f"{done} of {wanted} runs", err=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--budgets must be whole numbers, as 50,100,220, not {text!r}") from None
