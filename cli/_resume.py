"""``kernelarc resume``: go on with a campaign."""

from __future__ import annotations

from pathlib import Path

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, STORE
from kernelarc.cli._campaign_flags import BASELINES
from kernelarc.cli._deliver import deliver
from kernelarc.cli._watching import watching


@click.command("resume")
@STORE
@click.argument("campaign", metavar="[CAMPAIGN]", type=int, required=False)
@click.option("--budget", type=int, metavar="N", help="Evaluate N more than were allowed before.")
@click.option("--seconds", type=float, metavar="S", help="Search for S more seconds.")
@BASELINES
@click.option("--log", metavar="FILE", help="Append one line per verdict and event.")
@AS_JSON
def command(
    store: str,
    campaign: int | None,
    *,
    budget: int | None,
    seconds: float | None,
    baselines: str | None,
    log: str | None,
    as_json: bool,
) -> int:
    """Continue a campaign where it stopped, or extend a finished one.

    CAMPAIGN is the newest by default. Nothing that was acknowledged is evaluated again. A finished
    campaign prints its result again; --budget and --seconds extend it: give what is used up.
    --baselines holds from now on: bests that were audited beside others are audited again.
    """
    with watching(None if log is None else Path(log)) as observer:
        result = engine.resume(
            store,
            campaign,
            budget=budget,
            seconds=seconds,
            baselines=baselines,
            observer=observer,
        )
    return deliver(result, as_json=as_json)
