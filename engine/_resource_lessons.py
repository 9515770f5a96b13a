"""Bandits for a campaign's workloads, taught by what earlier campaigns of the store measured."""

from __future__ import annotations

from collections.abc import Iterator

from kernelarc.bench import Session
from kernelarc.engine._resources import (
    Lesson,
    ResourceBandit,
    intensity_of,
    lessons_from,
)
from kernelarc.engine._state import CampaignState
from kernelarc.storage import CampaignRow, StoreReader

_CAMPAIGNS, _LESSONS = 8, 400
_WEIGHT = 0.5


def bandits_of(
    state: CampaignState, session: Session, reader: StoreReader, campaign: int
) -> dict[str, list[ResourceBandit]]:
    """Return the bandits of each workload, one for every route that has genes for it."""
    earlier = _earlier(session, reader, campaign)
    found: dict[str, list[ResourceBandit]] = {}
    for key, arena in state.arenas.items():
        intensity = intensity_of(session.problem.operator, arena.workload)
        made = [ResourceBandit(space, intensity, earlier) for space in arena.spaces.values()]
        found[key] = [bandit for bandit in made if not bandit.idle]
    return found


def _earlier(session: Session, reader: StoreReader, campaign: int) -> list[Lesson]:
    """Return lessons of the newest campaigns before this one on the same model of device.

    Later ones do not count: they must not change a campaign that is resumed.
    """
    device = session.environment.identity.get("device")
    rows = [
        row
        for row in reader.campaigns()
        if row.id < campaign and row.environment.identity.get("device") == device
    ]
    return [lesson for row in rows[-_CAMPAIGNS:] for lesson in _taught(reader, row)][-_LESSONS:]


def _taught(reader: StoreReader, row: CampaignRow) -> Iterator[Lesson]:
    operator = row.spec.problem.operator
    for workload in row.spec.problem.workloads:
        judged = reader.evaluations(row.id, workload=workload.fingerprint)
        evaluations = [one.evaluation for one in judged]
        yield from lessons_from(evaluations, intensity_of(operator, workload), weight=_WEIGHT)
