"""What scores rest on: the baselines that an audit tried, those that failed, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kernelarc.bench import Session
from kernelarc.genomes import ALL_BASELINES, Workload
from kernelarc.storage import Event

Tried: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By a baseline's name ``{"us": …}`` or ``{"failed": …}``."""

EAGER = "torch eager"
_LONGEST = 200


def tried_by(session: Session, workloads: Iterable[Workload]) -> dict[str, Tried]:
    """Return what a session tried, by workload fingerprint; where it tried nothing, nothing."""
    found = {each.fingerprint: session.baselines_tried(each) for each in workloads}
    return {workload: tried for workload, tried in found.items() if tried}


def tried_in(events: Sequence[Event]) -> dict[str, Tried]:
    """Return what the newest audit of each workload tried."""
    found: dict[str, Tried] = {}
    for event in events:
        if event.kind == "audited":
            found |= event.payload.get("baselines", {})
    return found


def chosen_in(events: Sequence[Event], settings: Mapping[str, Any]) -> Any:
    """Return which baselines a campaign is to be compared with, as a setting's value.

    Args:
        events: The campaign's; the newest resumption that said it counts.
        settings: Those that it was begun with.
    """
    for event in reversed(events):
        if event.kind == "resumed" and "baselines" in event.payload:
            return event.payload["baselines"]
    return settings.get("baselines", ALL_BASELINES)


def left_out_of(tried: Tried) -> tuple[str, ...]:
    """Return the names that a choice kept out, where an audit could have tried them."""
    return tuple(name for name, one in tried.items() if one.get("left_out"))


def compared_otherwise(
    session: Session, workloads: Iterable[Workload], tried: Mapping[str, Tried]
) -> set[str]:
    """Return the workloads whose newest audit left out other baselines than a session does."""
    return {
        each.fingerprint
        for each in workloads
        if each.fingerprint in tried
        and set(left_out_of(tried[each.fingerprint])) != set(session.baselines_left_out(each))
    }


def only_eager(against: str | None, tried: Tried) -> bool:
    """Tell whether eager mode is the baseline because nothing else could be one, or was wanted."""
    others = [name for name, one in tried.items() if name != EAGER and "us" in one]
    return against == f"baseline:{EAGER}" and not others


def baseline_remarks(
    scored: Mapping[str, str], tried: Mapping[str, Tried], eager: Sequence[str]
) -> tuple[str, ...]:
    """Say what scores rest on and what could not be a baseline.

    Args:
        scored: By workload label the baseline of each that has a score.
        tried: By workload label.
        eager: Labels of those for which there is eager mode alone.
    """
    told = []
    if scored:
        names = Counter(scored.values()).most_common()
        rest = f"scores rest on {', '.join(f'{name} ({n})' for name, n in names)}"
        told.append(rest + _by_choice({each: tried.get(each, {}) for each in scored}, "scores"))
    elif kept := _by_choice(tried, "speed-ups"):
        told.append(f"speed-ups are over some of the baselines{kept}")
    failed: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for label, each in tried.items():
        for name, one in each.items():
            if "failed" in one:
                failed[name, str(one["failed"])].append(label)
    for (name, cause), labels in failed.items():
        short = cause if len(cause) <= _LONGEST else f"{cause[:_LONGEST]}…"
        told.append(f"no baseline for {_listed(labels)}: {name}: {short}")
    for label, each in tried.items():
        if off := each.get(EAGER, {}).get("off"):
            told.append(
                f"{label}: the reference itself, in its own types, misses the workload's tolerance "
                f"({off}): no baseline was held to it"
            )
    if eager := [label for label in eager if not left_out_of(tried.get(label, {}))]:
        told.append(
            f"{_listed(eager)}: the only baseline is torch's eager mode (~): a faster one would "
            f"lower the score"
        )
    return tuple(told)


def _by_choice(tried: Mapping[str, Tried], what: str) -> str:
    """Say which baselines a choice left out, and of which workloads where not of all."""
    without = {label: names for label, each in tried.items() if (names := left_out_of(each))}
    if not without:
        return ""
    whose = "" if len(without) == len(tried) else f" of {_listed(list(without))}"
    named = ", ".join(dict.fromkeys(name for each in without.values() for name in each))
    return (
        f": others{whose} were left out by --baselines (~): {named}; a faster one among them "
        f"would lower the {what}"
    )


def _listed(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} workloads ({labels[0]}, …)"
