"""``kernelarc check``: samples of a target's kernels compiled without a GPU."""

from __future__ import annotations

from typing import Any

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._campaign_flags import target_flags, values_of
from kernelarc.cli._run import settings_of
from kernelarc.cli._text import print_json, table

NOTHING_BUILT = 1


@click.command("check")
@click.argument("target", metavar="TARGET")
@click.option("--arch", required=True, metavar="A", help="sm_90a or sm_100a.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    metavar="N",
    default=engine.SAMPLES,
    show_default=True,
    help="Genomes of each route and workload.",
)
@target_flags
@AS_JSON
def command(target: str, arch: str, samples: int, as_json: bool, **flags: Any) -> int:
    """Compile samples of a target's kernels for an architecture, without a GPU.

    TARGET is as for 'run', and must be served by a compiled route (triton, cuda). Says how many
    genomes compile and would fit the device, what they need, which instructions of note they
    hold, and how the others fail. Exit code 1: a route has none that could be launched.
    """
    result = engine.check(settings_of(target, values_of(flags)), arch=arch, samples=samples)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(_report(result))
    return 0 if result.ok else NOTHING_BUILT


def _report(result: engine.CheckResult) -> str:
    headings = ("route", "workload", "built", "distinct", "registers", "shared kB", "spilling")
    lines = [table((*headings, "instructions"), [_row(one) for one in result.routes])]
    for one in result.routes:
        for failure, count in one.failures.items():
            lines.append(f"{one.route}, {one.workload}: {count} x {failure}")
            lines.append(f"  {one.examples[failure]}")
        if one.distinct == 1 < one.built:
            lines.append(
                f"{one.route}, {one.workload}: all {one.built} builds are one and the same: the "
                "genes change nothing"
            )
    lines += [f"{name}: left out: {why}" for name, why in result.missing.items()]
    lines += ["", f"{result.arch}: {result.seconds:.1f} s; registers and shared memory: least, "]
    lines[-1] += "median, most of the hungriest kernel of each build."
    return "\n".join(lines)


def _row(one: engine.RouteCheck) -> tuple[str, ...]:
    noted = " ".join(f"{name} {count}" for name, count in one.instructions.items())
    spilling = f"{one.spilling} (to {one.spill_bytes} B)" if one.spilling else "0"
    return (
        one.route,
        one.workload,
        f"{one.built} of {one.sampled}",
        str(one.distinct),
        _spread(one.registers, 1),
        _spread(one.shared_bytes, 1024),
        spilling,
        noted or "-",
    )


def _spread(spread: engine.Spread | None, unit: int) -> str:
    if spread is None:
        return "-"
    return " ".join(f"{value / unit:.0f}" for value in (spread.least, spread.median, spread.most))
