"""How the campaigns of a store stand, from the store alone: works beside a running campaign."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kernelarc.engine._extending import allowed_evaluations
from kernelarc.engine._results import result_of
from kernelarc.genomes import ConclusionKind
from kernelarc.storage import CampaignRow, StoreReader, store_name


def status(reader: StoreReader, *, store: str) -> dict[str, Any]:
    """Return every campaign's standing as JSON values.

    Per campaign: its result so far; per island its share of the proposals and of the KEEPs, or
    why it sleeps; failures by class; conclusions in force by kind.
    """
    return {
        "schema": 1,
        "store": store_name(store),
        "size_bytes": reader.size_bytes(),
        "campaigns": [_campaign(reader, row, store) for row in reader.campaigns()],
    }


def _campaign(reader: StoreReader, row: CampaignRow, store: str) -> dict[str, Any]:
    return {
        **result_of(reader, row.id, store=store).to_json(),
        "target": row.spec.target,
        "device": row.spec.device,
        "created_unix_s": row.created_unix_s,
        "budget": allowed_evaluations(reader, row),
        "islands": _islands(reader, row),
        "failures": dict(reader.failures(row.id)),
        "conclusions": _conclusions(reader, row),
    }


def _islands(reader: StoreReader, row: CampaignRow) -> dict[str, Any]:
    """Return by island its part, or why it sleeps. Sources that are no island come last."""
    asleep: dict[str, str] = {}
    for event in reader.events(row.id):
        if event.kind == "started":
            asleep = dict(event.payload.get("asleep", {}))
    found: dict[str, Any] = {
        share.island: {
            "asleep": None,
            "proposals": share.proposals,
            "proposal_share": round(share.proposal_share, 4),
            "keeps": share.keeps,
            "keep_share": round(share.keep_share, 4),
        }
        for share in reader.shares(row.id)
    }
    return {**found, **{name: {"asleep": why} for name, why in asleep.items()}}


def _conclusions(reader: StoreReader, row: CampaignRow) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for _, conclusion in reader.conclusions(campaign=row.id):
        counts[conclusion.kind.value] += 1
    return {kind.value: counts[kind.value] for kind in ConclusionKind}
