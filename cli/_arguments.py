"""Arguments that several commands share."""

from __future__ import annotations

import click

STORE = click.argument("store", metavar="STORE")
CAMPAIGN = click.option(
    "--campaign", type=int, metavar="N", help="Which campaign of the store (default: the newest)."
)
AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)
