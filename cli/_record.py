"""``kernelarc record``: a measured space as a replayable file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._campaign_flags import target_flags, values_of
from kernelarc.cli._run import settings_of
from kernelarc.cli._text import print_json, quantity, table

STOPPED = 3
_COUNT = click.IntRange(min=1)


@click.command("record")
@click.argument("target", metavar="TARGET")
@click.option("-o", "--output", required=True, metavar="FILE", type=Path, help="Where to write it.")
@click.option(
    "--measure",
    type=_COUNT,
    metavar="N",
    default=engine.MEASURE,
    show_default=True,
    help="Genomes to measure of each workload.",
)
@click.option(
    "--check",
    type=_COUNT,
    metavar="N",
    default=engine.CHECK,
    show_default=True,
    help="Genomes to ask the device about, of each workload, at least.",
)
@target_flags
@AS_JSON
def command(
    target: str, output: Path, measure: int, check: int, as_json: bool, **flags: Any
) -> int:
    """Measure a space and write it as a file that replays it.

    TARGET is as for 'run'. Measured are the device's own seeds, genomes spread over the space, and
    steps around good ones; the best of them again. 'kernelarc run FILE' then searches without the
    device. A name that ends in .gz is compressed; of several workloads each gets a file of its own,
    with its label before the suffix. An interruption writes what there is.
    """
    settings = settings_of(target, values_of(flags))
    result = engine.record(settings, output, measure=measure, check=check, telling=_tell)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(_report(result))
    return STOPPED if result.interrupted else 0


def _tell(label: str, done: int, wanted: int) -> None:
    click.echo(f"{label}: {done} of {wanted} measured", err=True)


def _report(result: engine.RecordResult) -> str:
    headings = ("workload", "checked", "legal", "measured", "failed", "best", "file")
    lines = [table(headings, [_row(one) for one in result.recordings])]
    if result.interrupted:
        lines += ["", "Interrupted: what was measured until then is written."]
    return "\n".join(lines)


def _row(one: engine.Recorded) -> tuple[str, ...]:
    counts = (one.checked, one.legal, one.measured, one.failed)
    best = "-" if one.best is None else quantity(one.best, one.unit)
    return (one.workload, *map(str, counts), best, one.path)
