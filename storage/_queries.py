"""The tables as the statements name them, and the columns that the decoder expects."""

from __future__ import annotations

from typing import Any

from sqlalchemy import FromClause, Select, select

from kernelarc.storage._models import Base

TABLES = Base.metadata.tables
campaign = TABLES["campaign"].c
campaign_workload = TABLES["campaign_workload"].c
candidate = TABLES["candidate"].c
conclusion = TABLES["conclusion"].c
contest = TABLES["contest"].c
environment = TABLES["environment"].c
evaluation = TABLES["evaluation"].c
event = TABLES["event"].c
genome = TABLES["genome"].c
operator = TABLES["operator"].c
round_ = TABLES["round"].c
workload = TABLES["workload"].c

CANDIDATE = (
    candidate.number,
    candidate.round,
    candidate.workload_id,
    candidate.island,
    candidate.mutation,
    candidate.parents,
    genome.fingerprint,
    genome.route,
    genome.canonical,
)
EVALUATION = (
    evaluation.status,
    evaluation.verdict,
    evaluation.cost_s,
    evaluation.objective,
    evaluation.unit,
    evaluation.censored,
    evaluation.cache,
    evaluation.launches,
    evaluation.samples,
    evaluation.failure,
    evaluation.message,
    evaluation.properties,
)
CONTEST = (
    contest.purpose,
    contest.workload,
    contest.subject,
    contest.against,
    contest.upheld,
    contest.speedup,
    contest.names,
    contest.samples,
    contest.failures,
    contest.unit,
)
EVENT = (event.kind, event.unix_s, event.payload)
ROUND = (round_.number, round_.counts)

WIDTH = len(CANDIDATE)
"""How many columns of a joined row belong to the candidate."""

ASKED: FromClause = TABLES["candidate"].join(TABLES["genome"], candidate.genome_id == genome.id)
TOLD: FromClause = ASKED.join(TABLES["evaluation"], evaluation.candidate_id == candidate.id)


def asked(*more: Any) -> Select[Any]:
    """Select ``more`` and then ``CANDIDATE`` of every candidate."""
    return select(*more, *CANDIDATE).select_from(ASKED)


def told(*more: Any) -> Select[Any]:
    """Select ``more``, ``CANDIDATE`` and ``EVALUATION`` of every evaluation."""
    return select(*more, *CANDIDATE, *EVALUATION).select_from(TOLD)
