"""``kernelarc status``: how far a store's campaigns are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, STORE
from kernelarc.cli._stores import reading
from kernelarc.cli._text import count, duration, number, print_json, quantity, table

_NO_ISLANDS = {
    "user": "seed genomes that were given",
    "device": "what the device would try first",
    "store": "what earlier campaigns of this store measured",
    "prior": "what did well on another workload or machine",
}


@click.command("status")
@STORE
@AS_JSON
def command(store: str, as_json: bool) -> None:
    """Say how far the campaigns of a store are, and what each island did.

    Reads only, so it works beside a running campaign. Shows each island's share of the proposals
    and of the KEEPs (new bests), the credit that decides its share of the next ones (1 is an
    average island), why the others sleep, and how candidates failed.
    """
    with reading(store) as reader:
        found = engine.status(reader, store=store)
    if as_json:
        print_json(found)
        return
    sections = [_section(campaign) for campaign in found["campaigns"]]
    size = (
        f"{found['store']}: {count(len(sections), 'campaign')}, {found['size_bytes'] / 1e6:.1f} MB"
    )
    click.echo("\n\n".join([size, *sections]))


def _section(campaign: Mapping[str, Any]) -> str:
    counts = campaign["evaluations"]
    of = "" if campaign["budget"] is None else f" of {campaign['budget']}"
    state = campaign["status"] + (f" ({campaign['reason']})" if campaign["reason"] else "")
    where = f"{campaign['target']} on {campaign['device']}"
    lines = [
        f"campaign {campaign['campaign_id']}: {where}: {state}",
        f"  {counts['unique']}{of} evaluated ({counts['measured']} measured, "
        f"{counts['failed']} failed){_spent(campaign)}; {counts['asked']} "
        f"proposed, {counts['rejected']} illegal, {counts['duplicate']} known already; "
        f"{count(counts['confirmations'], 'confirmation')}, {count(counts['audits'], 'audit')}",
        *(f"  best {_best(best)}" for best in campaign["bests"]),
        f"  conclusions: {_numbers(campaign['conclusions'])}",
    ]
    if campaign["failures"]:
        lines.append(f"  failures: {_numbers(campaign['failures'])}")
    lines.append(f"  controller: {_controller(campaign['controller'])}")
    lines += [f"  Note: {remark}." for remark in campaign.get("remarks", ())]
    return "\n".join([*lines, "", _islands(campaign["islands"])])


def _controller(found: Mapping[str, Any]) -> str:
    """Say whether it learns, from what, and in which situation the first workloads are."""
    if not found["learns"]:
        return "off, every island has the same share"
    contexts = Counter(found["contexts"].values())
    where = "; ".join(
        context if len(contexts) == 1 else f"{count(n, 'workload')} in: {context}"
        for context, n in contexts.items()
    )
    earlier = found["earlier_campaigns"]
    began = f"began with the credit of {_listed(earlier)}" if earlier else "began without credit"
    return f"{began}; now: {where}"


def _listed(campaigns: Sequence[int]) -> str:
    word = "campaign" if len(campaigns) == 1 else "campaigns"
    return f"{word} {', '.join(map(str, campaigns))}"


def _spent(campaign: Mapping[str, Any]) -> str:
    """Return the time spent; what a running process has spent it writes when it ends."""
    return "" if campaign["status"] == "running" else f" in {duration(campaign['seconds'])}"


def _best(best: Mapping[str, Any]) -> str:
    is_time = best["latency_us"] is not None
    value = quantity(best["latency_us"], "us") if is_time else number(best["objective"])
    over = best["speedup"]
    gain = f", {over['estimate']:.3f} x the baseline" if over is not None else ""
    audited = "audited" if best["audited"] else "not audited"
    return f"{best['workload']}: {value}{gain}, {audited}, genome {best['fingerprint'][:12]}"


def _numbers(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in numbers.items())


def _islands(islands: Mapping[str, Mapping[str, Any]]) -> str:
    awake = [
        (
            name,
            str(part["proposals"]),
            f"{part['proposal_share']:.0%}",
            str(part["keeps"]),
            f"{part['keep_share']:.0%}",
            number(part["credit"]) if "credit" in part else "",
            f"{part['next_share']:.0%}" if "next_share" in part else "",
        )
        for name, part in islands.items()
        if part["asleep"] is None
    ]
    headings = ("island", "proposals", "share", "KEEPs", "share of KEEPs", "credit", "next share")
    asleep = [
        f"asleep: {name}: {part['asleep']}"
        for name, part in islands.items()
        if part["asleep"] is not None
    ]
    others = [f"no island: {name}: {what}" for name, what in _NO_ISLANDS.items() if name in islands]
    return "\n".join([*([table(headings, awake)] if awake else []), *others, *asleep])
