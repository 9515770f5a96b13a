"""``kernelarc verify``: do the claims still hold?"""

from __future__ import annotations

import click

from kernelarc.cli._arguments import AS_JSON, CAMPAIGN, STORE
from kernelarc.cli._text import print_json, table
from kernelarc.cli._watching import watching
from kernelarc.engine import verify


@click.command("verify")
@STORE
@CAMPAIGN
@AS_JSON
def command(store: str, campaign: int | None, as_json: bool) -> int:
    """Measure the bests again, beside the baseline, in a fresh worker.

    Says of each claim whether it still holds on this machine, now.
    """
    with watching(None) as observer:
        result = verify(store, campaign, observer=observer)
    print_json(result.to_json()) if as_json else click.echo(result)
    return result.exit_code
