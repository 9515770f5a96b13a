"""``kernelarc bench``: comparing our search with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import kernelarc.engine.comparison as comparing
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._bench_report import comparison_text
from kernelarc.cli._text import print_json
from kernelarc.genomes import InputError

_LEADING = "optuna_tpe,adaptive_tabu_greywolf,genetic_algorithm,random"


@click.group("bench")
def command() -> None:
    """Compare our search with others on recorded spaces."""


@command.command("search")
@click.option(
    "--spaces", required=True, type=Path, metavar="DIR", help="Folder of recorded spaces."
)
@click.option(
    "--repeats", type=int, default=20, show_default=True, metavar="N", help="Runs of each method."
)
@click.option(
    "--budgets",
    default="50,100,220",
    show_default=True,
    metavar="N,N,...",
    help="Unique evaluations at which figures are given.",
)
@click.option(
    "--peers",
    default=_LEADING,
    show_default=True,
    metavar="A,B,...",
    help="Methods, or the families kernel_tuner, optuna and ablations (ours, one thing changed).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first run.")
@click.option("--jobs", type=int, metavar="N", help="Processes (default: one a core).")
@click.option(
    "--permute",
    "permute_seed",
    type=int,
    metavar="SEED",
    help="Exchange the recorded times at random, as a control.",
)
@click.option(
    "-o", "--output", required=True, type=Path, metavar="DIR", help="Where results are written."
)
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
