"""How the campaigns of a store stand, from the store alone: works beside a running campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kernelarc.engine._controller import even, shares
from kernelarc.engine._credits import ALL, Arm, Credits
from kernelarc.engine._earlier_credit import credits_of
from kernelarc.engine._extending import allowed_evaluations
from kernelarc.engine._results import result_of
from kernelarc.genomes import ConclusionKind
from kernelarc.storage import CampaignRow, StoreReader, store_name


def status(reader: StoreReader, *, store: str) -> dict[str, Any]:
    """Return every campaign's standing as JSON values.

    Per campaign: its result so far; per island its share of the proposals and of the KEEPs, what
    the controller thinks of it and of its operators, or why it sleeps; failures by class;
    conclusions in force by kind.
    """
    return {
        "schema": 1,
        "store": store_name(store),
        "size_bytes": reader.size_bytes(),
        "campaigns": [_campaign(reader, row, store) for row in reader.campaigns()],
    }


def _campaign(reader: StoreReader, row: CampaignRow, store: str) -> dict[str, Any]:
    credits_ = credits_of(reader, row.id)
    return {
        **result_of(reader, row.id, store=store).to_json(),
        "target": row.spec.target,
        "device": row.spec.device,
        "created_unix_s": row.created_unix_s,
        "budget": allowed_evaluations(reader, row),
        "controller": _controller(row, credits_),
        "islands": _islands(reader, row, credits_),
        "failures": dict(reader.failures(row.id)),
        "conclusions": _conclusions(reader, row),
    }


def _controller(row: CampaignRow, credits_: Credits) -> dict[str, Any]:
    """Return whether it learns, what it began with, and the situation of each workload."""
    return {
        "learns": _learns(row),
        "earlier_campaigns": list(credits_.campaigns),
        "contexts": {
            workload.fingerprint: credits_.context(workload.fingerprint)
            for workload in row.spec.problem.workloads
        },
    }


def _learns(row: CampaignRow) -> bool:
    return bool(row.spec.settings.get("controller", True))


def _islands(reader: StoreReader, row: CampaignRow, credits_: Credits) -> dict[str, Any]:
    """Return by island its part, or why it sleeps. Sources that are no island come last."""
    asleep: dict[str, str] = {}
    awake: list[str] = []
    for event in reader.events(row.id):
        if event.kind == "started":
            asleep = dict(event.payload.get("asleep", {}))
            awake = list(event.payload.get("awake", ()))
    wanted = _wanted(row, credits_, awake)
    found: dict[str, Any] = {
        share.island: {
            "asleep": None,
            "proposals": share.proposals,
            "proposal_share": round(share.proposal_share, 4),
            "keeps": share.keeps,
            "keep_share": round(share.keep_share, 4),
            **(_credit(credits_, share.island, wanted) if share.island in wanted else {}),
        }
        for share in reader.shares(row.id)
    }
    return {**found, **{name: {"asleep": why} for name, why in asleep.items()}}


def _wanted(row: CampaignRow, credits_: Credits, awake: list[str]) -> dict[str, float]:
    """Return the share of the next proposals that each awake island has, mean over workloads."""
    if not _learns(row):
        return even(awake)
    parts = [
        shares(credits_, awake, credits_.context(workload.fingerprint))
        for workload in row.spec.problem.workloads
    ]
    return {name: sum(part[name] for part in parts) / len(parts) for name in awake}


def _credit(credits_: Credits, island: str, wanted: Mapping[str, float]) -> dict[str, Any]:
    """Return what is thought of an island and its operators; 1 is an average one."""
    return {
        "next_share": round(wanted[island], 4),
        **_credit_of(credits_, (island, ALL)),
        "operators": {
            name: {
                **dict(zip(("proposals", "gains"), credits_.count((island, name)), strict=True)),
                **_credit_of(credits_, (island, name)),
            }
            for name in credits_.operators(island)
        },
    }


def _credit_of(credits_: Credits, arm: Arm) -> dict[str, float | None]:
    earlier = credits_.earlier.get(arm)
    return {
        "credit": round(credits_.credit(arm), 3),
        "earlier_credit": None if earlier is None else round(earlier, 3),
    }


def _conclusions(reader: StoreReader, row: CampaignRow) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for _, conclusion in reader.conclusions(campaign=row.id):
        counts[conclusion.kind.value] += 1
    return {kind.value: counts[kind.value] for kind in ConclusionKind}
