"""Handing a campaign's result to whoever ran it: one JSON object, or a report in words."""

from __future__ import annotations

import click

from kernelarc.cli._report import result_text
from kernelarc.cli._text import print_json
from kernelarc.engine import CampaignResult


def deliver(result: CampaignResult, *, as_json: bool) -> int:
    """Print a result and return the exit code. What was stopped says how it goes on."""
    shown = result.to_json()
    if as_json:
        print_json(shown)
    else:
        click.echo(result_text(shown))
    if shown["status"] != "finished":
        again = f"kernelarc resume {shown['store']} {shown['campaign_id']}"
        click.echo(
            f"kernelarc: {shown['status']} ({shown['reason']}); go on with: {again}", err=True
        )
    return result.exit_code
