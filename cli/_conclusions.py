"""``kernelarc conclusions``: what the islands learned."""

from __future__ import annotations

import click

from kernelarc.cli._arguments import AS_JSON, STORE
from kernelarc.cli._lessons import gather, lesson_text
from kernelarc.cli._stores import chosen, reading, workload_labels
from kernelarc.cli._text import print_json
from kernelarc.storage import store_name


@click.command("conclusions")
@STORE
@click.option(
    "--campaign", type=int, metavar="N", help="Only of this campaign (default: of all together)."
)
@AS_JSON
def command(store: str, campaign: int | None, as_json: bool) -> None:
    """Say what the islands learned: wins, traps, retractions.

    Without --campaign, of all campaigns of the store together. Wins are grouped by the gene
    change that made a genome faster than its parent, each with its gain, the interval of the
    gain and how often it was found. Traps are regions in which every genome tried failed in the
    same way. What a later measurement took back is listed as such.
    """
    with reading(store) as reader:
        rows = chosen(reader, campaign)
        told = list(reader.conclusions(campaign=campaign))
    lessons = gather(told)
    if as_json:
        parts = {"wins": lessons.wins, "traps": lessons.traps, "retracted": lessons.retracted}
        found = {name: [lesson.to_json() for lesson in part] for name, part in parts.items()}
        print_json({"schema": 1, "store": store_name(store), **found})
        return
    labels: dict[str, str] = {}
    for row in rows:
        labels.update(workload_labels(row))
    click.echo(lesson_text(lessons, labels))
