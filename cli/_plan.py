"""What ``kernelarc run --dry-run`` shows: what would be searched, by whom, against what."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kernelarc import engine
from kernelarc.cli._text import count, duration, print_json, table


def show_plan(plan: engine.Plan, *, as_json: bool) -> int:
    """Print a plan and return the exit code."""
    if as_json:
        print_json(plan.to_json())
    else:
        click.echo(plan_text(plan))
    return 0


def plan_text(plan: engine.Plan) -> str:
    """Return a plan in words."""
    limits = [] if plan.budget is None else [count(plan.budget, "unique evaluation")]
    limits += [] if plan.seconds is None else [duration(plan.seconds)]
    return "\n".join(
        [
            f"{plan.target} on {plan.device}: at most {' or '.join(limits)}, seed {plan.seed}",
            "",
            _spaces(plan),
            "",
            *(f"{route}: {_genes(genes)}" for route, genes in plan.genes.items()),
            "",
            f"islands awake: {', '.join(plan.awake) or 'none'}",
            *(f"asleep: {name}: {why}" for name, why in plan.asleep.items()),
            "",
            *(f"{name}: {value}" for name, value in plan.identity.items()),
            "",
            "Nothing was written.",
        ]
    )


def _spaces(plan: engine.Plan) -> str:
    rows = [
        (
            label,
            route,
            f"{size.raw:,}",
            f"{size.legal:,}" if size.exact else f"at most {size.legal:,}",
            plan.baseline.get(label) or "none",
        )
        for label, sizes in plan.spaces.items()
        for route, size in sizes.items()
    ]
    headings = ("workload", "route", "combinations", "legal genomes", "baseline")
    return table(headings, rows)


def _genes(genes: Mapping[str, int]) -> str:
    return " ".join(f"{name}({alleles})" for name, alleles in genes.items())
