"""``kernelarc verify``: do the claims still hold?"""

from __future__ import annotations

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, CAMPAIGN, STORE
from kernelarc.cli._text import interval, print_json, table


@click.command("verify")
@STORE
@CAMPAIGN
@AS_JSON
def command(store: str, campaign: int | None, as_json: bool) -> int:
    """Measure the bests again, beside the baseline, in a fresh worker.

    Says of each claim whether it still holds, on this machine and now; ends with exit code 1 when
    one does not. On another machine than the campaign's it says so and takes nothing back.
    """
    result = engine.verify(store, campaign)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(_report(result))
    return result.exit_code


def _report(result: engine.VerifyResult) -> str:
    rows = [
        (
            one.workload,
            "holds" if one.holds else "DOES NOT HOLD",
            interval(one.claimed),
            interval(one.speedup),
            one.why,
        )
        for one in result.verified
    ]
    headings = ("workload", "claim", "claimed speed-up", "measured now", "in words")
    lines = [table(headings, rows)]
    if result.environment_changed:
        lines += ["", "This is not the campaign's environment:"]
        lines += [f"  {change}" for change in result.environment_changed]
    return "\n".join(lines)
