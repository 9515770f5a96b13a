"""Reading campaigns, and what is shared between them: operators and workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from kernelarc.genomes import Environment, InputError, Operator, Problem, Workload
from kernelarc.storage import _queries as q
from kernelarc.storage._contract import CampaignRow, CampaignSpec
from kernelarc.storage._texts import load, operator_from, workload_from

_COLUMNS = (
    q.campaign.id,
    q.campaign.created_unix_s,
    q.campaign.target,
    q.campaign.device,
    q.campaign.seed,
    q.campaign.settings,
    q.campaign.observations,
    q.operator.text,
    q.environment.identity,
)
_CAMPAIGNS = (
    select(*_COLUMNS)
    .join_from(q.TABLES["campaign"], q.TABLES["operator"], q.campaign.operator_id == q.operator.id)
    .join(q.TABLES["environment"], q.campaign.environment_id == q.environment.id)
    .order_by(q.campaign.id)
)
_WORKLOADS = (
    select(q.campaign_workload.campaign_id, q.workload.text)
    .join_from(
        q.TABLES["campaign_workload"],
        q.TABLES["workload"],
        q.campaign_workload.workload_id == q.workload.id,
    )
    .order_by(q.campaign_workload.campaign_id, q.campaign_workload.place)
)


def read_campaigns(connection: Connection, campaign: int | None = None) -> list[CampaignRow]:
    """Return all campaigns, or the one that is asked for, oldest first."""
    workloads: dict[int, list[Workload]] = {}
    for key, text in connection.execute(_WORKLOADS):
        if campaign is None or key == campaign:
            workloads.setdefault(key, []).append(workload_from(text))
    wanted = _CAMPAIGNS if campaign is None else _CAMPAIGNS.where(q.campaign.id == campaign)
    return [_campaign(row, workloads.get(row[0], [])) for row in connection.execute(wanted)]


def _campaign(row: Sequence[Any], workloads: Sequence[Workload]) -> CampaignRow:
    key, created, target, device, seed, settings, observations, operator, identity = row
    spec = CampaignSpec(
        target=target,
        device=device,
        seed=int(seed),
        problem=Problem(operator=operator_from(operator), workloads=tuple(workloads)),
        settings=load(settings),
    )
    environment = Environment(identity=load(identity), observations=load(observations))
    return CampaignRow(id=key, created_unix_s=created, spec=spec, environment=environment)


def pick_campaign(connection: Connection, store: str, campaign: int | None) -> int:
    """Return the id of the campaign that is asked for, the newest when none is.

    Raises:
        InputError: There is no such campaign, or none at all.
    """
    known = list(connection.execute(select(q.campaign.id).order_by(q.campaign.id)).scalars())
    if not known:
        raise InputError(f"store {store}: it holds no campaign yet")
    if campaign is None:
        return int(known[-1])
    if campaign not in known:
        there = f"1 to {known[-1]}" if len(known) > 1 else "1"
        raise InputError(f"store {store}: there is no campaign {campaign} (known: {there})")
    return campaign


def read_operators(connection: Connection) -> list[Operator]:
    """Return every operator once; of several wordings the newest."""
    rows = connection.execute(select(q.operator.text).order_by(q.operator.id)).scalars()
    found = (operator_from(text) for text in rows)
    return list({operator.fingerprint: operator for operator in found}.values())


def read_workloads(connection: Connection, operator: str) -> list[Workload]:
    """Return every workload of an operator once; of several labels the newest."""
    statement = select(q.workload.text).where(q.workload.operator == operator)
    rows = connection.execute(statement.order_by(q.workload.id)).scalars()
    found = (workload_from(text) for text in rows)
    return list({workload.fingerprint: workload for workload in found}.values())
