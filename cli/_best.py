"""``kernelarc best``: what stands."""

from __future__ import annotations

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, CAMPAIGN, STORE
from kernelarc.cli._report import result_text
from kernelarc.cli._stores import reading
from kernelarc.cli._text import print_json

NOTHING = 1


@click.command("best")
@STORE
@CAMPAIGN
@AS_JSON
def command(store: str, campaign: int | None, as_json: bool) -> int:
    """Show the best genome of every workload.

    Of the newest campaign unless --campaign says otherwise. Ends with exit code 1 when nothing
    valid was found.
    """
    with reading(store) as reader:
        result = engine.result_of(reader, campaign, store=store)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(result_text(result))
    return 0 if result.bests else NOTHING
