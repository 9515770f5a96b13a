"""``kernelarc run``: start a campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernelarc import engine
from kernelarc.cli._campaign_flags import campaign_flags, values_of
from kernelarc.cli._deliver import deliver
from kernelarc.cli._plan import show_plan
from kernelarc.cli._watching import watching


@click.command("run")
@click.argument("target", metavar="TARGET")
@campaign_flags
@click.option("--dry-run", is_flag=True, help="Say what would be searched, and write nothing.")
def command(target: str, dry_run: bool, **flags: Any) -> int:
    """Search for the fastest correct genome of a target.

    TARGET is an operator or problem ('kernelarc operators' lists them), a problem folder
    (definition.json and workload.jsonl, as SOL-ExecBench has them), a Python file with a Triton
    kernel (FILE.py, or FILE.py:NAME for one of several), a recorded space (.json or .json.gz, or a
    folder of them), or a campaign file (.toml), in which every flag has a key; flags win over the
    file.

    The search ends when its budget or time is used, when every legal genome was tried, or when
    you interrupt it; 'kernelarc resume' goes on. Whatever stands at the end is measured again in a
    fresh process, beside what you would run without us: only that is called audited.
    """
    settings = settings_of(target, values_of(flags))
    if dry_run:
        return show_plan(engine.plan(settings), as_json=settings.json)
    with watching(settings.log_file) as observer:
        result = engine.run(settings, observer=observer)
    return deliver(result, as_json=settings.json)


def settings_of(target: str, values: dict[str, Any]) -> engine.CampaignSettings:
    """Return the settings of a target and its flags; a campaign file lies below the flags."""
    if target.endswith(".toml"):
        return engine.CampaignSettings.from_toml(Path(target), values)
    return engine.CampaignSettings.from_values({"target": target, **values})
