"""Opening a store for reading, for as long as a command needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from kernelarc import storage


@contextmanager
def reading(store: str) -> Iterator[storage.StoreReader]:
    """Open a store read-only and close it afterwards; nothing is ever created."""
    with closing(storage.open_reader(store)) as reader:
        yield reader


def workload_labels(row: storage.CampaignRow) -> dict[str, str]:
    """Return what people call each workload of a campaign, by fingerprint."""
    problem = row.spec.problem
    return {w.fingerprint: f"{problem.operator.name} {w.label}" for w in problem.workloads}


def chosen(reader: storage.StoreReader, campaign: int | None) -> list[storage.CampaignRow]:
    """Return the one campaign that was asked for, or all of them."""
    return list(reader.campaigns()) if campaign is None else [reader.campaign(campaign)]
