"""Streaming a campaign: page by page, each page one short read transaction."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam, func, select

from kernelarc.genomes import Candidate, Judged
from kernelarc.storage import _queries as q
from kernelarc.storage._backend import Backend
from kernelarc.storage._codec import Decoder, contest_from, event_from, round_from
from kernelarc.storage._contract import Entry
from kernelarc.storage._models import POSITIONED
from kernelarc.storage._texts import conclusion_from

PAGE: Final = 4096
"""Positions, or rows, read in one go."""

Numbered = tuple[int, Entry]


def workloads(connection: Connection) -> dict[int, str]:
    """Return the fingerprint of every workload by internal id: a handful."""
    rows = connection.execute(select(q.workload.id, q.workload.fingerprint))
    return {row[0]: row[1] for row in rows}


def last_position(connection: Connection, campaign: int) -> int:
    """Return the position of the campaign's last entry, 0 when there is none."""
    tables = [q.TABLES[model.__tablename__] for model in POSITIONED]
    ends = (
        select(func.max(table.c.position)).where(table.c.campaign_id == campaign)
        for table in tables
    )
    return max(connection.execute(end).scalar() or 0 for end in ends)


def _window(table: Table, statement: Select[Any]) -> Select[Any]:
    return statement.where(
        table.c.campaign_id == bindparam("campaign"),
        table.c.position > bindparam("after"),
        table.c.position <= bindparam("until"),
    )


_CANDIDATES = _window(q.TABLES["candidate"], q.asked(q.candidate.id, q.candidate.position))
_EVALUATIONS = _window(
    q.TABLES["evaluation"],
    select(q.evaluation.candidate_id, q.evaluation.position, *q.EVALUATION),
)
_BY_ID = q.asked(q.candidate.id).where(q.candidate.id.in_(bindparam("ids", expanding=True)))


def _simple(name: str, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    table = q.TABLES[name]
    return _window(table, select(table.c.position, *columns))


_OTHERS: tuple[tuple[Select[Any], Callable[[Sequence[Any]], Entry]], ...] = (
    (_simple("round", q.ROUND), round_from),
    (_simple("contest", q.CONTEST), contest_from),
    (_simple("conclusion", [q.conclusion.text]), lambda row: conclusion_from(row[0])),
    (_simple("event", q.EVENT), event_from),
)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Make a page of records without looking for garbage among them: there is none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class LogStream:
    """Reads windows of positions. Remembers candidates until their evaluation has passed."""

    def __init__(self, backend: Backend, campaign: int) -> None:
        self._backend = backend
        self._campaign = campaign
        self._open: dict[int, Candidate] = {}
        self._decoder = Decoder({})

    def read(self, after: int) -> Iterator[Numbered]:
        """Yield the entries after a position, up to the one that is last now."""
        with self._backend.reading() as connection:
            end = last_position(connection, self._campaign)
            self._decoder.workloads = workloads(connection)
        while after < end:
            until = min(after + PAGE, end)
            yield from self._page(after, until)
            after = until

    def _page(self, after: int, until: int) -> list[Numbered]:
        place = {"campaign": self._campaign, "after": after, "until": until}
        with self._backend.reading() as connection, no_collection():
            page = self._candidates(connection.execute(_CANDIDATES, place).all())
            rows = connection.execute(_EVALUATIONS, place).all()
            self._fetch(connection, [row[0] for row in rows if row[0] not in self._open])
            page += [
                (row[1], self._decoder.judged(self._open.pop(row[0]), row[2:])) for row in rows
            ]
            for statement, decode in _OTHERS:
                found = connection.execute(statement, place).all()
                page += [(row[0], decode(row[1:])) for row in found]
        page.sort(key=itemgetter(0))
        return page

    def _candidates(self, rows: Sequence[Sequence[Any]]) -> list[Numbered]:
        page: list[Numbered] = []
        for row in rows:
            candidate = self._decoder.candidate(row[2:])
            self._open[row[0]] = candidate
            page.append((row[1], candidate))
        return page

    def _fetch(self, connection: Connection, ids: list[int]) -> None:
        """Look up candidates that were asked before this stream began."""
        for start in range(0, len(ids), 500):
            for row in connection.execute(_BY_ID, {"ids": ids[start : start + 500]}):
                self._open[row[0]] = self._decoder.candidate(row[1:])


def read_evaluations(
    backend: Backend, campaign: int, workload: str | None, newest: int | None
) -> Iterator[Judged]:
    """Yield judged evaluations in ask order; see the contract."""
    statement = q.told().where(q.candidate.campaign_id == campaign)
    with backend.reading() as connection:
        known = workloads(connection)
        if workload is not None:
            ids = [key for key, fingerprint in known.items() if fingerprint == workload]
            statement = statement.where(q.candidate.workload_id.in_(ids))
        last = -1 if newest is None else _before_newest(connection, statement, newest)
    decoder = Decoder(known)
    while True:
        page = statement.where(q.candidate.number > last).order_by(q.candidate.number).limit(PAGE)
        with backend.reading() as connection, no_collection():
            rows = connection.execute(page).all()
            told = [decoder.judged(decoder.candidate(r[: q.WIDTH]), r[q.WIDTH :]) for r in rows]
        yield from told
        if len(rows) < PAGE:
            return
        last = rows[-1][0]


def _before_newest(connection: Connection, statement: Select[Any], newest: int) -> int:
    """Return the number after which exactly the ``newest`` evaluations stand."""
    numbers = statement.with_only_columns(q.candidate.number).order_by(q.candidate.number.desc())
    before = connection.execute(numbers.offset(newest).limit(1)).scalar()
    return -1 if before is None else int(before)
