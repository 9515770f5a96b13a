"""Handing a campaign's result to whoever ran it: one JSON object, or a report in words."""

from __future__ import annotations

import click

from kernelarc import engine
from kernelarc.cli._report import result_text
from kernelarc.cli._text import print_json

RESUMABLE = 3


def deliver(result: engine.CampaignResult, *, as_json: bool) -> int:
    """Print a result and return the exit code. What was stopped says how it goes on."""
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(result_text(result))
    if result.exit_code == RESUMABLE:
        why = "interrupted" if result.reason == "signal" else f"stopped: {result.reason}"
        again = f"kernelarc resume {result.store} {result.campaign_id}"
        click.echo(f"kernelarc: {why}; go on with: {again}", err=True)
    return result.exit_code
