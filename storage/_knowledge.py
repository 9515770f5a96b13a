"""What other campaigns left: known results of this place, priors from elsewhere, one genome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, case, func, select, true

from kernelarc.genomes import InputError, Judged, Status
from kernelarc.storage import _queries as q
from kernelarc.storage._backend import Backend
from kernelarc.storage._codec import Decoder
from kernelarc.storage._contract import Known
from kernelarc.storage._log import PAGE, no_collection, workloads

_REPRODUCIBLE = tuple(
    status.value
    for status in (Status.OK, Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT)
)
_NAMED = 5


def _known(decoder: Decoder, row: Sequence[Any]) -> Known:
    campaign, rest = row[0], row[1:]
    judged = decoder.judged(decoder.candidate(rest[: q.WIDTH]), rest[q.WIDTH :])
    evaluation = judged.evaluation
    return Known(genome=evaluation.candidate.genome, evaluation=evaluation, campaign=campaign)


def _here(statement: Select[Any], environment: str, workload: str) -> Select[Any]:
    places = select(q.environment.id).where(q.environment.fingerprint == environment)
    jobs = select(q.workload.id).where(q.workload.fingerprint == workload)
    return statement.where(
        q.evaluation.environment_id.in_(places),
        q.candidate.workload_id.in_(jobs),
        q.evaluation.status.in_(_REPRODUCIBLE),
    )


def _chosen(environment: str, workload: str) -> Select[Any]:
    """Select the one candidate id that says most about each genome."""
    rank = case(
        (q.evaluation.status != Status.OK.value, 2), (q.evaluation.censored == 1, 1), else_=0
    )
    order = func.row_number().over(
        partition_by=q.candidate.genome_id, order_by=(rank, q.candidate.id.desc())
    )
    outcomes = q.TABLES["candidate"].join(
        q.TABLES["evaluation"], q.evaluation.candidate_id == q.candidate.id
    )
    all_ranked = select(q.candidate.id, order.label("place")).select_from(outcomes)
    ranked = _here(all_ranked, environment, workload).subquery()
    return select(ranked.c.id).where(ranked.c.place == 1).order_by(ranked.c.id)


def read_known(backend: Backend, environment: str, workload: str) -> Iterator[Known]:
    """Yield what is known of each genome; see the contract."""
    with backend.reading() as connection:
        ids = list(connection.execute(_chosen(environment, workload)).scalars())
        decoder = Decoder(workloads(connection))
    statement = _here(q.told(q.candidate.id, q.candidate.campaign_id), environment, workload)
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        span = statement.where(q.candidate.id.between(page[0], page[-1]))
        wanted = set(page)
        with backend.reading() as connection, no_collection():
            rows = connection.execute(span.order_by(q.candidate.id)).all()
            known = [_known(decoder, row[1:]) for row in rows if row[0] in wanted]
        yield from known


def read_priors(
    connection: Connection,
    operator: str,
    workload: str,
    *,
    not_environment: str,
    n: int,
    before: int | None = None,
) -> list[Known]:
    """Return the best of elsewhere, groups taking turns; see the contract."""
    here = (q.workload.fingerprint == workload) & (q.environment.fingerprint == not_environment)
    best = func.row_number().over(
        partition_by=(q.evaluation.environment_id, q.workload.fingerprint),
        order_by=(q.evaluation.objective, q.genome.fingerprint, q.candidate.id),
    )
    ranked = (
        select(
            q.candidate.id,
            q.candidate.genome_id,
            best.label("place"),
            case((q.workload.fingerprint == workload, 0), else_=1).label("other"),
        )
        .select_from(
            q.TOLD.join(
                q.TABLES["environment"], q.evaluation.environment_id == q.environment.id
            ).join(q.TABLES["workload"], q.candidate.workload_id == q.workload.id)
        )
        .where(
            q.workload.operator == operator,
            ~here,
            q.evaluation.status == Status.OK.value,
            q.evaluation.censored == 0,
            true() if before is None else q.candidate.campaign_id < before,
        )
        .subquery()
    )
    order = select(ranked.c.id, ranked.c.genome_id).order_by(
        ranked.c.place, ranked.c.other, ranked.c.id
    )
    chosen: dict[int, int] = {}
    for key, genome in connection.execute(order):
        chosen.setdefault(genome, key)
        if len(chosen) >= n:
            break
    return _in_order(connection, list(chosen.values())[:n])


def _in_order(connection: Connection, ids: list[int]) -> list[Known]:
    decoder = Decoder(workloads(connection))
    found: dict[int, Known] = {}
    for start in range(0, len(ids), PAGE):
        statement = q.told(q.candidate.id, q.candidate.campaign_id).where(
            q.candidate.id.in_(ids[start : start + PAGE])
        )
        for row in connection.execute(statement):
            found[row[0]] = _known(decoder, row[1:])
    return [found[key] for key in ids]


def find_genome(connection: Connection, store: str, prefix: str) -> list[tuple[int, Judged]]:
    """Return (campaign, evaluation) of the one genome whose fingerprint starts so.

    Raises:
        InputError: None matches, or several do.
    """
    starts = q.genome.fingerprint.startswith(prefix, autoescape=True)
    statement = select(q.genome.fingerprint).where(starts).order_by(q.genome.fingerprint)
    matches = list(connection.execute(statement.limit(_NAMED + 1)).scalars())
    if not prefix or not matches:
        raise InputError(f"store {store}: no genome's fingerprint starts with {prefix!r}")
    if len(matches) > 1:
        more = ", ..." if len(matches) > _NAMED else ""
        named = ", ".join(matches[:_NAMED]) + more
        raise InputError(f"store {store}: {prefix!r} is the start of several genomes: {named}")
    decoder = Decoder(workloads(connection))
    told = q.told(q.candidate.campaign_id).where(q.genome.fingerprint == matches[0])
    return [
        (row[0], decoder.judged(decoder.candidate(row[1 : q.WIDTH + 1]), row[q.WIDTH + 1 :]))
        for row in connection.execute(told.order_by(q.candidate.id))
    ]
