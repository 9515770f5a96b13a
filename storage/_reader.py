"""The read-only view of a store, the same for every database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import select

from kernelarc.genomes import Conclusion, Judged, Operator, Workload
from kernelarc.storage import _queries as q
from kernelarc.storage._backend import Backend
from kernelarc.storage._campaigns import (
    pick_campaign,
    read_campaigns,
    read_operators,
    read_workloads,
)
from kernelarc.storage._codec import contest_from, event_from, round_from
from kernelarc.storage._contract import (
    Best,
    CampaignRow,
    ContestRecord,
    Counts,
    Entry,
    Event,
    Known,
    Outcome,
    Round,
    Share,
    StoreReader,
)
from kernelarc.storage._knowledge import find_genome, read_known, read_priors
from kernelarc.storage._log import LogStream, read_evaluations
from kernelarc.storage._standings import (
    read_bests,
    read_counts,
    read_failures,
    read_outcomes,
    read_shares,
)
from kernelarc.storage._texts import conclusion_from


class SqlReader(StoreReader):
    """A store read through SQLAlchemy. Several threads may use it; they take turns."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def campaigns(self) -> Sequence[CampaignRow]:
        with self._backend.reading() as connection:
            return read_campaigns(connection)

    def campaign(self, campaign: int | None = None) -> CampaignRow:
        with self._backend.reading() as connection:
            (found,) = read_campaigns(
                connection, pick_campaign(connection, self._backend.name, campaign)
            )
            return found

    def log(self, campaign: int, *, after: int = 0) -> Iterator[tuple[int, Entry]]:
        return LogStream(self._backend, campaign).read(after)

    def evaluations(
        self, campaign: int, *, workload: str | None = None, newest: int | None = None
    ) -> Iterator[Judged]:
        return read_evaluations(self._backend, campaign, workload, newest)

    def outcomes(self, campaign: int, *, most: int | None = None) -> Sequence[Outcome]:
        with self._backend.reading() as connection:
            return read_outcomes(connection, campaign, most)

    def conclusions(
        self, *, campaign: int | None = None, operator: str | None = None
    ) -> Sequence[tuple[int, Conclusion]]:
        columns = q.conclusion
        statement = select(columns.campaign_id, columns.text)
        if campaign is not None:
            statement = statement.where(columns.campaign_id == campaign)
        if operator is not None:
            statement = statement.where(columns.operator == operator)
        with self._backend.reading() as connection:
            rows = connection.execute(statement.order_by(columns.id)).all()
            return [(number, conclusion_from(text)) for number, text in rows]

    def contests(self, campaign: int, *, purpose: str | None = None) -> Sequence[ContestRecord]:
        statement = select(*q.CONTEST).where(q.contest.campaign_id == campaign)
        if purpose is not None:
            statement = statement.where(q.contest.purpose == purpose)
        with self._backend.reading() as connection:
            rows = connection.execute(statement.order_by(q.contest.position)).all()
            return [contest_from(row) for row in rows]

    def events(self, campaign: int) -> Sequence[Event]:
        statement = select(*q.EVENT).where(q.event.campaign_id == campaign)
        with self._backend.reading() as connection:
            rows = connection.execute(statement.order_by(q.event.position)).all()
            return [event_from(row) for row in rows]

    def rounds(self, campaign: int) -> Sequence[Round]:
        statement = select(*q.ROUND).where(q.round_.campaign_id == campaign)
        with self._backend.reading() as connection:
            rows = connection.execute(statement.order_by(q.round_.position)).all()
            return [round_from(row) for row in rows]

    def known(self, environment: str, workload: str) -> Iterator[Known]:
        return read_known(self._backend, environment, workload)

    def priors(
        self,
        operator: str,
        workload: str,
        *,
        not_environment: str,
        n: int,
        before: int | None = None,
    ) -> Sequence[Known]:
        with self._backend.reading() as connection:
            return read_priors(
                connection,
                operator,
                workload,
                not_environment=not_environment,
                n=n,
                before=before,
            )

    def operators(self) -> Sequence[Operator]:
        with self._backend.reading() as connection:
            return read_operators(connection)

    def workloads(self, operator: str) -> Sequence[Workload]:
        with self._backend.reading() as connection:
            return read_workloads(connection, operator)

    def find(self, fingerprint: str) -> Sequence[tuple[int, Judged]]:
        with self._backend.reading() as connection:
            return find_genome(connection, self._backend.name, fingerprint)

    def bests(self, campaign: int) -> Sequence[Best]:
        with self._backend.reading() as connection:
            return read_bests(connection, campaign)

    def counts(self, campaign: int) -> Counts:
        with self._backend.reading() as connection:
            return read_counts(connection, campaign)

    def shares(self, campaign: int) -> Sequence[Share]:
        with self._backend.reading() as connection:
            return read_shares(connection, campaign)

    def failures(self, campaign: int) -> Mapping[str, int]:
        with self._backend.reading() as connection:
            return read_failures(connection, campaign)

    def size_bytes(self) -> int:
        return self._backend.size_bytes()

    def close(self) -> None:
        self._backend.close()
