"""The writer of a store: campaigns begun, entries appended, each call one transaction."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Insert, Table, bindparam, func, insert, select
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.sql.compiler import SQLCompiler

from kernelarc.genomes import (
    Candidate,
    Environment,
    Genome,
    InputError,
    Judged,
    Operator,
    Workload,
    fingerprint_of,
)
from kernelarc.storage import _queries as q
from kernelarc.storage._backend import Backend
from kernelarc.storage._campaigns import pick_campaign
from kernelarc.storage._codec import Decoder, Values, genome_row, round_from
from kernelarc.storage._contract import CampaignSpec, Entry, Round, StoreWriter
from kernelarc.storage._group import Group, Stored, Tail
from kernelarc.storage._log import last_position, workloads
from kernelarc.storage._reader import SqlReader
from kernelarc.storage._texts import dump, operator_text, workload_text

# Parents before children, so that every reference points to a row that is there.
_ORDER = ("round", "candidate", "evaluation", "contest", "conclusion", "event")
_INSERT: Mapping[str, Insert] = {name: insert(table) for name, table in q.TABLES.items()}
_COMPILED: dict[tuple[str, str], tuple[str, Callable[[Values], Any] | None]] = {}
_GENOME_IDS = select(q.genome.fingerprint, q.genome.id).where(
    q.genome.fingerprint.in_(bindparam("fingerprints", expanding=True))
)
_UNSTORABLE = (TypeError, ValueError, OverflowError, RecursionError, struct.error)


class SqlWriter(SqlReader, StoreWriter):
    """The one writer of a store, through SQLAlchemy."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._tails: dict[int, Tail] = {}
        self._environment: int | None = None

    def begin(self, spec: CampaignSpec, environment: Environment) -> int:
        try:
            with self._backend.writing() as connection:
                return self._begin(connection, spec, environment)
        except _UNSTORABLE as error:
            raise InputError(f"the campaign's settings cannot be stored: {error}") from error

    def _begin(self, connection: Connection, spec: CampaignSpec, environment: Environment) -> int:
        self._backend.take_turn(connection)
        keys = [self._workload(connection, workload) for workload in spec.problem.workloads]
        values = {
            "created_unix_s": time.time(),
            "target": spec.target,
            "device": spec.device,
            "seed": str(spec.seed),
            "settings": dump(dict(spec.settings)),
            "operator_id": self._operator(connection, spec.problem.operator),
            "environment_id": self._place(connection, environment),
            "observations": dump(dict(environment.observations)),
        }
        campaign = self._insert(connection, "campaign", values)
        for place, key in enumerate(keys):
            row = {"campaign_id": campaign, "place": place, "workload_id": key}
            self._insert(connection, "campaign_workload", row)
        self._backend.claim(connection, campaign)
        return campaign

    def _insert(self, connection: Connection, name: str, values: Values) -> int:
        (key,) = self._backend.take_keys(connection, q.TABLES[name], 1)
        connection.execute(_INSERT[name], {"id": key, **values})
        return key

    def _shared(self, connection: Connection, name: str, key: str, values: Values) -> int:
        """Return the id of the row with this content, adding it when there is none."""
        columns = q.TABLES[name].c
        found = connection.execute(select(columns.id).where(columns[key] == values[key])).scalar()
        return self._insert(connection, name, values) if found is None else int(found)

    def _operator(self, connection: Connection, operator: Operator) -> int:
        text = operator_text(operator)
        values = {
            "fingerprint": operator.fingerprint,
            "digest": fingerprint_of(text),
            "text": text,
        }
        return self._shared(connection, "operator", "digest", values)

    def _workload(self, connection: Connection, workload: Workload) -> int:
        text = workload_text(workload)
        values = {
            "operator": workload.operator,
            "fingerprint": workload.fingerprint,
            "digest": fingerprint_of(text),
            "text": text,
        }
        return self._shared(connection, "workload", "digest", values)

    def _place(self, connection: Connection, environment: Environment) -> int:
        values = {
            "fingerprint": environment.fingerprint,
            "identity": dump(dict(environment.identity)),
            "observations": dump(dict(environment.observations)),
        }
        return self._shared(connection, "environment", "fingerprint", values)

    def environment(self, environment: Environment) -> None:
        with self._backend.writing() as connection:
            self._backend.take_turn(connection)
            key = self._place(connection, environment)
        self._environment = key
        for tail in self._tails.values():
            tail.environment = key

    def claim(self, campaign: int) -> None:
        with self._backend.writing() as connection:
            self._tail(connection, campaign)

    def append(
        self, campaign: int, entries: Sequence[Entry], *, allow_repeats: bool = False
    ) -> int:
        try:
            with self._backend.writing() as connection:
                tail = self._tail(connection, campaign)
                group = self._prepare(connection, tail, entries, allow_repeats)
                self._write(connection, group)
            group.committed()
        except DBAPIError:
            raise
        except (*_UNSTORABLE, StatementError) as error:
            raise InputError(f"campaign {campaign}: an entry cannot be stored: {error}") from error
        return tail.position

    def _prepare(
        self, connection: Connection, tail: Tail, entries: Sequence[Entry], allow_repeats: bool
    ) -> Group:
        asked = sum(type(entry) is Candidate for entry in entries)
        keys = self._backend.take_keys(connection, q.TABLES["candidate"], asked)
        group = Group(tail, _StoredRows(connection, tail), keys, allow_repeats)
        group.add(entries)
        return group

    def _write(self, connection: Connection, group: Group) -> None:
        keys = self._genomes(connection, group.genomes)
        for row in group.rows.get("candidate", ()):
            row["genome_id"] = keys[row["genome_id"]]
        for name in _ORDER:
            rows = group.rows.get(name)
            if rows is None:
                continue
            if "id" not in rows[0] and name != "evaluation":
                self._number(connection, q.TABLES[name], rows)
            _insert_many(connection, name, rows)

    def _number(self, connection: Connection, table: Table, rows: list[Values]) -> None:
        keys = self._backend.take_keys(connection, table, len(rows))
        for key, row in zip(keys, rows, strict=True):
            row["id"] = key

    def _genomes(self, connection: Connection, genomes: Mapping[str, Genome]) -> dict[str, int]:
        """Return the id of every genome, adding those that the store does not hold."""
        if not genomes:
            return {}
        found = _genome_ids(connection, list(genomes))
        # In one order whoever adds them, so that no two writers wait for one another.
        new = sorted(fingerprint for fingerprint in genomes if fingerprint not in found)
        if new:
            keys = self._backend.take_keys(connection, q.TABLES["genome"], len(new))
            rows = [genome_row(genomes[name], key) for name, key in zip(new, keys, strict=True)]
            if _insert_many(connection, "genome", rows, " ON CONFLICT DO NOTHING") == len(rows):
                found.update((row["fingerprint"], row["id"]) for row in rows)
            else:  # another campaign's writer was faster with some of them
                found.update(_genome_ids(connection, new))
        return found

    def _tail(self, connection: Connection, campaign: int) -> Tail:
        if campaign not in self._tails:
            pick_campaign(connection, self._backend.name, campaign)
            self._backend.claim(connection, campaign)
            self._tails[campaign] = _read_tail(connection, campaign, self._environment)
        return self._tails[campaign]


class _StoredRows(Stored):
    """Looks keys up in the database."""

    def __init__(self, connection: Connection, tail: Tail) -> None:
        self._connection = connection
        self._campaign = tail.campaign
        self._decoder = Decoder({key: print_ for print_, key in tail.workloads.items()})

    def round(self, number: int) -> Round | None:
        statement = select(*q.ROUND).where(
            q.round_.campaign_id == self._campaign, q.round_.number == number
        )
        row = self._connection.execute(statement).first()
        return None if row is None else round_from(row)

    def candidate(self, number: int) -> Candidate | None:
        statement = q.asked().where(
            q.candidate.campaign_id == self._campaign, q.candidate.number == number
        )
        row = self._connection.execute(statement).first()
        return None if row is None else self._decoder.candidate(row)

    def judged(self, number: int) -> Judged | None:
        statement = q.told().where(
            q.candidate.campaign_id == self._campaign, q.candidate.number == number
        )
        row = self._connection.execute(statement).first()
        if row is None:
            return None
        candidate = self._decoder.candidate(row[: q.WIDTH])
        return self._decoder.judged(candidate, row[q.WIDTH :])


def _genome_ids(connection: Connection, fingerprints: list[str]) -> dict[str, int]:
    found = connection.execute(_GENOME_IDS, {"fingerprints": fingerprints})
    return {row[0]: row[1] for row in found}


def _insert_many(connection: Connection, name: str, rows: list[Values], more: str = "") -> int:
    """Insert rows that name every column: compiled once, then prepared by the driver.

    Binding row by row in Python would cost as much as SQLite itself. Returns how many there are
    of them now: ``more`` may say to pass over some.
    """
    dialect = connection.dialect
    known = _COMPILED.get((dialect.name, name))
    if known is None:
        compiled = _INSERT[name].compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        order = compiled.positiontup
        known = str(compiled), itemgetter(*order) if order is not None else None
        _COMPILED[dialect.name, name] = known
    text, ordered = known
    values = rows if ordered is None else [ordered(row) for row in rows]
    return connection.exec_driver_sql(text + more, values).rowcount


def _highest(connection: Connection, name: str, campaign: int) -> int:
    columns = q.TABLES[name].c
    statement = select(func.max(columns.number)).where(columns.campaign_id == campaign)
    highest = connection.execute(statement).scalar()
    return -1 if highest is None else int(highest)


def _read_tail(connection: Connection, campaign: int, environment: int | None) -> Tail:
    begun = select(q.campaign.environment_id).where(q.campaign.id == campaign)
    own = (
        select(q.workload.fingerprint, q.workload.id)
        .join_from(
            q.TABLES["workload"],
            q.TABLES["campaign_workload"],
            q.campaign_workload.workload_id == q.workload.id,
        )
        .where(q.campaign_workload.campaign_id == campaign)
    )
    waiting = (
        q.asked(q.candidate.id)
        .outerjoin(q.TABLES["evaluation"], q.evaluation.candidate_id == q.candidate.id)
        .where(q.candidate.campaign_id == campaign, q.evaluation.candidate_id.is_(None))
    )
    decoder = Decoder(workloads(connection))
    rows = connection.execute(waiting).all()
    unjudged = ((row[0], decoder.candidate(row[1:])) for row in rows)
    return Tail(
        campaign=campaign,
        position=last_position(connection, campaign),
        environment=environment or connection.execute(begun).scalar_one(),
        workloads={row[0]: row[1] for row in connection.execute(own)},
        candidate=_highest(connection, "candidate", campaign),
        round=_highest(connection, "round", campaign),
        open={candidate.number: (key, candidate) for key, candidate in unjudged},
    )
