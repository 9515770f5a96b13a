"""What ``resume`` adds to a campaign's limits, and whether that lets it go on."""

from __future__ import annotations

from dataclasses import replace

from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import InputError
from kernelarc.storage import CampaignRow, StoreReader


def allowed_evaluations(reader: StoreReader, row: CampaignRow) -> int | None:
    """Return a campaign's budget with what extensions added; None is unlimited."""
    budget = row.spec.settings.get("budget")
    if budget is None:
        return None
    events = reader.events(row.id)
    return int(budget) + sum(
        int(e.payload.get("budget", 0)) for e in events if e.kind == "extended"
    )


def spent_s(reader: StoreReader, campaign: int) -> float:
    """Return the wall seconds that all processes spent on a campaign."""
    events = reader.events(campaign)
    return sum(float(event.payload.get("process_seconds", 0.0)) for event in events)


def demand_room(
    reader: StoreReader, row: CampaignRow, *, budget: int | None, seconds: float | None
) -> None:
    """Refuse to extend one limit of a campaign whose other limit is used up.

    Args:
        reader: Of its store.
        row: The campaign.
        budget: Evaluations to be added.
        seconds: Seconds to be added.

    Raises:
        InputError: The other limit is used up; says how to lift it.
    """
    reason = _ended_by(reader, row.id)
    allowed, limit_s = allowed_evaluations(reader, row), row.spec.settings.get("seconds")
    if seconds is not None and budget is None and allowed is not None:
        spent = reader.counts(row.id).unique
        if reason == "budget" or spent >= allowed:
            raise InputError(
                f"campaign {row.id} has used up its budget of {allowed} evaluations: more seconds "
                f"alone change nothing, give --budget N as well (N more evaluations)"
            )
    if budget is not None and seconds is None and limit_s is not None:
        spent_time_s = spent_s(reader, row.id)
        if reason == "seconds" or spent_time_s >= limit_s:
            raise InputError(
                f"campaign {row.id} has used up its time ({spent_time_s:.0f} s of searching and "
                f"auditing): more evaluations alone change nothing, give --seconds S as well "
                f"(S more seconds)"
            )


def _ended_by(reader: StoreReader, campaign: int) -> str:
    """Return what ended a finished campaign; nothing of one that was finished and went on."""
    reason = ""
    for event in reader.events(campaign):
        if event.kind == "finished":
            reason = str(event.payload.get("reason", ""))
        elif event.kind in {"resumed", "extended"}:
            reason = ""
    return reason


def limits_elsewhere(
    reader: StoreReader, row: CampaignRow, settings: CampaignSettings, budget: int | None
) -> CampaignSettings:
    """Return the settings for the rest of a campaign that goes on in another environment.

    Args:
        reader: Of its store.
        row: The campaign so far.
        settings: Its own, ``seconds`` extended already.
        budget: Evaluations to be added.

    Raises:
        InputError: Nothing is left to spend.
    """
    allowed = allowed_evaluations(reader, row)
    if allowed is not None:
        left = max(allowed - reader.counts(row.id).unique, 0) + (budget or 0)
        _demand(left, row.id, "budget")
        settings = replace(settings, budget=left)
    if settings.seconds is not None:
        left_s = max(settings.seconds - spent_s(reader, row.id), 0.0)
        _demand(left_s, row.id, "seconds")
        settings = replace(settings, seconds=left_s)
    return settings


def _demand(left: float, campaign: int, limit: str) -> None:
    if not left:
        raise InputError(
            f"campaign {campaign} has spent its {limit} and the environment has changed; "
            f"give --{limit} to measure here"
        )
