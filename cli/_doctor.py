"""``kernelarc doctor``: what is installed, and what is missing."""

from __future__ import annotations

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON
from kernelarc.cli._text import print_json, table

MISSING = 4


@click.command("doctor")
@AS_JSON
def command(as_json: bool) -> int:
    """Say what is installed, and what each missing part would enable.

    Ends with exit code 4 when something is missing that the cpu device needs.
    """
    parts = engine.doctor()
    lacking = [part for part in parts if part.needed and part.found is None]
    if as_json:
        shown = [part.to_json() for part in parts]
        print_json({"schema": 1, "ready": not lacking, "parts": shown})
    else:
        click.echo(_report(parts, lacking))
    return MISSING if lacking else 0


def _report(parts: list[engine.Part], lacking: list[engine.Part]) -> str:
    there = [(part.name, str(part.found), part.enables) for part in parts if part.found]
    absent = [
        (part.name + " (needed)" * part.needed, part.enables, part.get)
        for part in parts
        if part.found is None
    ]
    lines = [table(("part", "found", "for"), there)]
    if absent:
        lines += ["", table(("missing", "would enable", "how to get it"), absent)]
    verdict = (
        "Missing for a search on cpu: " + ", ".join(part.name for part in lacking)
        if lacking
        else f"Ready to search on {_ready(parts)}."
    )
    return "\n".join([*lines, "", verdict])


def _ready(parts: list[engine.Part]) -> str:
    gpu = any(part.name == "cuBLASLt" and part.found for part in parts)
    return "cpu, cuda:0 and recorded spaces" if gpu else "cpu and on recorded spaces"
