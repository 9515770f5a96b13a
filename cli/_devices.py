"""``kernelarc devices``: where candidates can be judged."""

from __future__ import annotations

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._text import print_json, table


@click.command("devices")
@AS_JSON
def command(as_json: bool) -> None:
    """List the devices that candidates can be judged on.

    A device that is not ready says what is missing; 'kernelarc doctor' says how to get it.
    """
    found = engine.devices()
    if as_json:
        print_json({"schema": 1, "devices": [device.to_json() for device in found]})
        return
    rows = [(device.name, device.missing or "ready", device.what) for device in found]
    click.echo(table(("device", "state", "what it is for"), rows))
    for device in found:
        for name, value in device.identity.items():
            click.echo(f"  {device.name} {name}: {value}")
