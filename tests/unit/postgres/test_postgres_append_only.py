"""Append-only, whoever writes: every table, every way that PostgreSQL has to change a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.errors import RestrictViolation, UniqueViolation
from tests.unit.postgres.server import Server
from tests.unit.store_records import HERE, SPEC, telling_entries

from kernelarc.storage import open_writer
from kernelarc.storage._postgres_schema import TABLES
from kernelarc.storage._schema import keys_of

Foreign = psycopg.Connection[Any]
NAMES = sorted(table.name for table in TABLES)
COLUMNS = {table.name: [column.name for column in table.c] for table in TABLES}
KEYS = {table.name: keys_of(table) for table in TABLES}
every = pytest.mark.parametrize("table", NAMES)


@pytest.fixture(scope="module")
def filled(server: Server) -> str:
    schema = server.schema()
    with open_writer(server.inside(schema), create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), telling_entries())
        writer.begin(SPEC, HERE)
    return schema


@pytest.fixture
def foreign(server: Server, filled: str) -> Iterator[Foreign]:
    """Open the database as a superuser's program that knows nothing of us."""
    with server.connect() as connection:
        connection.execute(f"SET search_path TO {filled}".encode())
        yield connection


def _rows(connection: Foreign, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall()


def _refused(connection: Foreign, table: str, statement: str, values: Sequence[Any] = ()) -> None:
    before = _rows(connection, table)
    assert before, f"the fixture must fill {table}"
    with pytest.raises(RestrictViolation, match=f"{table} is append-only"):
        connection.execute(statement.encode(), values)
    assert _rows(connection, table) == before


def test_every_table_of_the_models_is_in_the_schema(foreign: Foreign, filled: str) -> None:
    found = foreign.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [filled])
    assert sorted(row[0] for row in found) == NAMES


@every
def test_update_is_refused(foreign: Foreign, table: str) -> None:
    for column in COLUMNS[table]:
        _refused(foreign, table, f"UPDATE {table} SET {column} = {column}")
        _refused(foreign, table, f"UPDATE {table} SET {column} = {column} WHERE false")


@every
def test_delete_and_truncate_are_refused(foreign: Foreign, table: str) -> None:
    _refused(foreign, table, f"DELETE FROM {table}")
    _refused(foreign, table, f"DELETE FROM ONLY {table} WHERE ctid = '(0,1)'")
    _refused(foreign, table, f"TRUNCATE {table} CASCADE")
    others = ", ".join(name for name in NAMES if name != table)
    _refused(foreign, table, f"TRUNCATE {table}, {others}")


@every
def test_triggers_cannot_be_skipped_by_playing_replica(foreign: Foreign, table: str) -> None:
    foreign.execute("SET session_replication_role = replica")
    _refused(foreign, table, f"DELETE FROM {table}")
    _refused(foreign, table, f"TRUNCATE {table} CASCADE")


@every
def test_insert_over_any_key_changes_nothing(foreign: Foreign, table: str) -> None:
    """Each key by itself: the other columns, the other keys among them, hold new values."""
    before = _rows(foreign, table)
    columns = COLUMNS[table]
    row = dict(zip(columns, before[0], strict=True))
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"
    foreign.execute("SET session_replication_role = replica")  # references do not matter here
    for key in KEYS[table]:
        fresh = [row[name] if name in key else _other(row[name]) for name in columns]
        with pytest.raises(UniqueViolation):
            foreign.execute(insert.encode(), fresh)
        foreign.execute(f"{insert} ON CONFLICT DO NOTHING".encode(), fresh)
        assert _rows(foreign, table) == before
        upsert = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {key[0]} = EXCLUDED.{key[0]}"
        _refused(foreign, table, f"{insert} {upsert}", fresh)


def _other(value: object) -> object:
    """Return a value that no row holds."""
    if isinstance(value, str):
        return value + " other"
    return value if isinstance(value, bytes) else 987_654


@every
def test_merge_is_refused(foreign: Foreign, table: str) -> None:
    if foreign.info.server_version < 150_000:
        pytest.skip("this server does not know MERGE")
    key = KEYS[table][0][0]
    into = f"MERGE INTO {table} AS old USING {table} AS new ON old.{key} = new.{key}"
    _refused(foreign, table, f"{into} WHEN MATCHED THEN UPDATE SET {key} = new.{key}")
    _refused(foreign, table, f"{into} WHEN MATCHED THEN DELETE")


def test_a_new_row_is_accepted(foreign: Foreign) -> None:
    before = len(_rows(foreign, "event"))
    with foreign.transaction(force_rollback=True):
        foreign.execute(
            "INSERT INTO event (campaign_id, position, kind, unix_s, payload) "
            "VALUES (2, 1, 'foreign', 0.0, '{}')"
        )
        assert len(_rows(foreign, "event")) == before + 1
