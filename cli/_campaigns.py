"""``kernelarc campaigns``: what a store holds."""

from __future__ import annotations

import time
from typing import Any

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, STORE
from kernelarc.cli._stores import reading
from kernelarc.cli._text import print_json, table
from kernelarc.storage import CampaignRow, StoreReader, store_name


@click.command("campaigns")
@STORE
@AS_JSON
def command(store: str, as_json: bool) -> None:
    """List the campaigns of a store.

    The state of a campaign that was killed is 'running': 'kernelarc resume' goes on with it.
    """
    with reading(store) as reader:
        found = [_json(reader, row, store) for row in reader.campaigns()]
    if as_json:
        print_json({"schema": 1, "store": store_name(store), "campaigns": found})
        return
    rows = [
        (
            str(one["id"]),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one["created_unix_s"])),
            one["target"],
            one["device"],
            "; ".join(one["workloads"]),
            one["state"],
            str(one["unique"]),
        )
        for one in found
    ]
    headings = ("no.", "begun", "target", "device", "workloads", "state", "evaluated")
    click.echo(table(headings, rows))


def _json(reader: StoreReader, row: CampaignRow, store: str) -> dict[str, Any]:
    result = engine.result_of(reader, row.id, store=store)
    return {
        "id": row.id,
        "created_unix_s": row.created_unix_s,
        "target": row.spec.target,
        "device": row.spec.device,
        "seed": row.spec.seed,
        "operator": row.spec.problem.operator.name,
        "workloads": [workload.label for workload in row.spec.problem.workloads],
        "state": result.status,
        "reason": result.reason,
        "unique": result.evaluations.unique,
    }
