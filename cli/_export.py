"""``kernelarc export``: a campaign in another format."""

from __future__ import annotations

from pathlib import Path

import click

from kernelarc import storage
from kernelarc.cli._arguments import CAMPAIGN, STORE
from kernelarc.cli._stores import reading


@click.command("export")
@STORE
@CAMPAIGN
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice(storage.FORMATS),
    help="What to write.",
)
@click.option("-o", "--output", required=True, metavar="PATH", type=Path, help="Where to write it.")
def command(store: str, campaign: int | None, *, form: str, output: Path) -> None:
    """Write a campaign's result or record in another format.

    Of the newest campaign unless --campaign says otherwise. A file that is there is replaced once
    the new one is whole. A c-header holds audited genomes only.
    """
    with reading(store) as reader:
        written = storage.export(reader, campaign, form, output)
    for path in written:
        click.echo(f"wrote {path}", err=True)
