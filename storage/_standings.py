"""How a campaign stands: bests, counters, shares. Queries over the log, nothing kept beside it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Integer, Select, case, cast, func, select

from kernelarc.genomes import Status, Verdict
from kernelarc.storage import _queries as q
from kernelarc.storage._codec import Decoder, contest_from
from kernelarc.storage._contract import Best, ContestRecord, Counts, Outcome, Share
from kernelarc.storage._log import workloads
from kernelarc.storage._texts import load

# A verification on another day is an observation: only the campaign's own audits take back.
_JUDGING = ("audit",)
_FAILED = tuple(
    status.value
    for status in Status
    if status not in (Status.OK, Status.REJECTED, Status.INTERRUPTED)
)


def _trials(connection: Connection, campaign: int) -> dict[tuple[str, str], list[ContestRecord]]:
    """Return audits by (workload, subject), newest first."""
    statement = (
        select(*q.CONTEST)
        .where(q.contest.campaign_id == campaign, q.contest.purpose.in_(_JUDGING))
        .order_by(q.contest.position.desc())
    )
    found: dict[tuple[str, str], list[ContestRecord]] = {}
    for row in connection.execute(statement):
        record = contest_from(row)
        found.setdefault((record.workload, record.subject), []).append(record)
    return found


def _over_baseline(trials: list[ContestRecord]) -> ContestRecord | None:
    for record in trials:
        if record.upheld and record.speedup is not None and record.against.startswith("baseline:"):
            return record
    return None


def _claims(campaign: int) -> Select[Any]:
    """Select the KEEPs of a campaign and each workload's first OK evaluation, newest first."""
    first = (
        select(func.min(q.evaluation.position))
        .join_from(
            q.TABLES["evaluation"],
            q.TABLES["candidate"],
            q.evaluation.candidate_id == q.candidate.id,
        )
        .where(q.evaluation.campaign_id == campaign, q.evaluation.status == Status.OK.value)
        .group_by(q.candidate.workload_id)
    )
    kept = q.evaluation.verdict == Verdict.KEEP.value
    return (
        q.told()
        .where(q.evaluation.campaign_id == campaign, kept | q.evaluation.position.in_(first))
        .order_by(q.evaluation.position.desc())
    )


def read_bests(connection: Connection, campaign: int) -> list[Best]:
    """Return the standing best of each workload; see ``Best``."""
    known = workloads(connection)
    decoder = Decoder(known)
    trials = _trials(connection, campaign)
    found: dict[str, Best] = {}
    for row in connection.execute(_claims(campaign)):
        workload = known[row[2]]
        tried = trials.get((workload, row[6]), [])
        if workload in found or (tried and not tried[0].upheld):
            continue
        judged = decoder.judged(decoder.candidate(row[: q.WIDTH]), row[q.WIDTH :])
        record = _over_baseline(tried)
        found[workload] = Best(
            workload=workload,
            evaluation=judged.evaluation,
            verdict=judged.verdict,
            speedup=None if record is None else record.speedup,
            against=None if record is None else record.against,
            audited=bool(tried),
        )
    order = (
        select(q.campaign_workload.workload_id)
        .where(q.campaign_workload.campaign_id == campaign)
        .order_by(q.campaign_workload.place)
    )
    wanted = [known[key] for key in connection.execute(order).scalars()]
    return [found[workload] for workload in dict.fromkeys(wanted) if workload in found]


def _pairs(connection: Connection, campaign: int) -> tuple[int, int]:
    """Return how many (genome, workload) pairs failed, and how many were measured."""
    ok = func.max(case((q.evaluation.status == Status.OK.value, 1), else_=0))
    pairs = (
        select(ok.label("ok"))
        .join_from(
            q.TABLES["evaluation"],
            q.TABLES["candidate"],
            q.evaluation.candidate_id == q.candidate.id,
        )
        .where(
            q.evaluation.campaign_id == campaign,
            q.evaluation.status.in_((Status.OK.value, *_FAILED)),
            q.candidate.mutation != "known",
        )
        .group_by(q.candidate.genome_id, q.candidate.workload_id)
        .subquery()
    )
    measured = func.coalesce(func.sum(pairs.c.ok), 0)
    statement = select(func.count(), cast(measured, Integer)).select_from(pairs)
    total, good = connection.execute(statement).one()
    return total - good, good


def read_counts(connection: Connection, campaign: int) -> Counts:
    """Return the campaign's counters; see ``Counts``."""
    sums = {"asked": 0, "rejected": 0, "duplicate": 0}
    rounds = select(q.round_.counts).where(q.round_.campaign_id == campaign)
    for text in connection.execute(rounds).scalars():
        for counts in load(text).values():
            for name in sums:
                sums[name] += counts.get(name, 0)
    late = select(func.count()).where(
        q.evaluation.campaign_id == campaign, q.evaluation.status == Status.REJECTED.value
    )
    sums["rejected"] += connection.execute(late).scalar_one()
    purposes = (
        select(q.contest.purpose, func.count())
        .where(q.contest.campaign_id == campaign)
        .group_by(q.contest.purpose)
    )
    contests = {row[0]: row[1] for row in connection.execute(purposes)}
    failed, measured = _pairs(connection, campaign)
    return Counts(
        **sums,
        unique=failed + measured,
        failed=failed,
        measured=measured,
        confirmations=contests.get("confirm", 0),
        audits=contests.get("audit", 0),
    )


def read_failures(connection: Connection, campaign: int) -> dict[str, int]:
    """Return how often each failure class was met, the most frequent first."""
    n = func.count()
    statement = (
        select(q.evaluation.failure, n)
        .where(q.evaluation.campaign_id == campaign, q.evaluation.failure.is_not(None))
        .group_by(q.evaluation.failure)
        .order_by(n.desc(), q.evaluation.failure)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def read_shares(connection: Connection, campaign: int) -> list[Share]:
    """Return each island's part, by name; see ``Share``."""
    kept = func.sum(case((q.evaluation.verdict == Verdict.KEEP.value, 1), else_=0))
    statement = (
        select(q.candidate.island, func.count(), func.count(q.evaluation.candidate_id), kept)
        .select_from(
            q.TABLES["candidate"].outerjoin(
                q.TABLES["evaluation"], q.evaluation.candidate_id == q.candidate.id
            )
        )
        .where(q.candidate.campaign_id == campaign)
        .group_by(q.candidate.island)
        .order_by(q.candidate.island)
    )
    rows = connection.execute(statement).all()
    asked, keeps = sum(row[1] for row in rows), sum(row[3] for row in rows)
    return [
        Share(
            island=island,
            proposals=proposals,
            evaluations=evaluations,
            keeps=won,
            proposal_share=proposals / asked if asked else 0.0,
            keep_share=won / keeps if keeps else 0.0,
        )
        for island, proposals, evaluations, won in rows
    ]


def read_outcomes(connection: Connection, campaign: int, most: int | None) -> list[Outcome]:
    """Return outcomes in the order of the verdicts; see ``Outcome``."""
    statement = (
        select(
            q.workload.fingerprint,
            q.candidate.island,
            q.candidate.mutation,
            q.evaluation.verdict,
            q.evaluation.status,
            q.evaluation.objective,
        )
        .select_from(
            q.TABLES["evaluation"]
            .join(q.TABLES["candidate"], q.evaluation.candidate_id == q.candidate.id)
            .join(q.TABLES["workload"], q.candidate.workload_id == q.workload.id)
        )
        .where(q.evaluation.campaign_id == campaign)
        .order_by(q.evaluation.position)
        .limit(most)
    )
    return [
        Outcome(
            workload=row[0],
            island=row[1],
            mutation=row[2],
            verdict=Verdict(row[3]),
            objective=row[5] if row[4] == Status.OK.value else None,
        )
        for row in connection.execute(statement)
    ]
