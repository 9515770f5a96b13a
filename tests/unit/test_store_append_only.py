"""Append-only, whoever writes: every table, every way that SQL has to change a row."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store_records import HERE, SPEC, telling_entries

from kernelarc.storage import open_writer
from kernelarc.storage._models import Base
from kernelarc.storage._schema import keys_of

TABLES = sorted(Base.metadata.tables)
Foreign = sqlite3.Connection


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("append-only") / "store.db"
    with open_writer(path, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), telling_entries())
        writer.begin(SPEC, HERE)
    return path


@pytest.fixture
def foreign(store: Path) -> Iterator[Foreign]:
    """Open the file as a program that knows nothing of us."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        yield connection


def _rows(connection: Foreign, table: str) -> list[tuple[object, ...]]:
    return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def _refused(connection: Foreign, table: str, statement: str, values: object = ()) -> None:
    before = _rows(connection, table)
    assert before, f"the fixture must fill {table}"
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
        connection.execute(statement, values)  # type: ignore[arg-type]
    connection.rollback()
    assert _rows(connection, table) == before


def test_every_table_of_the_models_is_in_the_file(foreign: Foreign) -> None:
    found = foreign.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    assert sorted(name for (name,) in found) == TABLES


@pytest.mark.parametrize("table", TABLES)
def test_update_is_refused(foreign: Foreign, table: str) -> None:
    for column in Base.metadata.tables[table].c:
        _refused(foreign, table, f"UPDATE {table} SET {column.name} = {column.name}")
        _refused(foreign, table, f"UPDATE OR REPLACE {table} SET {column.name} = 1")


@pytest.mark.parametrize("table", TABLES)
def test_delete_is_refused(foreign: Foreign, table: str) -> None:
    _refused(foreign, table, f"DELETE FROM {table}")
    _refused(foreign, table, f"DELETE FROM {table} WHERE rowid = 1")


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("table", TABLES)
def test_insert_over_any_key_is_refused(foreign: Foreign, table: str, recursive: str) -> None:
    """Each key by itself: the other columns, the other keys among them, hold new values."""
    foreign.execute(f"PRAGMA recursive_triggers = {recursive}")
    columns = [column.name for column in Base.metadata.tables[table].c]
    row = dict(zip(columns, _rows(foreign, table)[0], strict=True))
    for key in keys_of(Base.metadata.tables[table]):
        fresh = {name: row[name] if name in key else _other(row[name]) for name in columns}
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        for verb in ("INSERT", "REPLACE", *(f"INSERT OR {how}" for how in _CONFLICTS)):
            statement = f"{verb} INTO {table} ({names}) VALUES ({marks})"
            _refused(foreign, table, statement, list(fresh.values()))
        target = ", ".join(key)
        upsert = f"ON CONFLICT ({target}) DO UPDATE SET {key[0]} = {key[0]}"
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks}) {upsert}"
        _refused(foreign, table, statement, list(fresh.values()))


_CONFLICTS = ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK")


def _other(value: object) -> object:
    """Return a value that no row holds."""
    if isinstance(value, str):
        return value + " other"
    return 987_654


@pytest.mark.parametrize("table", TABLES)
def test_replacing_by_rowid_is_refused(foreign: Foreign, table: str) -> None:
    """No table has a rowid beside its declared key that could be replaced behind its back."""
    columns = [column.name for column in Base.metadata.tables[table].c]
    key = Base.metadata.tables[table].primary_key.columns[0].name
    (rowid,) = foreign.execute(f"SELECT rowid FROM {table} LIMIT 1").fetchone()
    row = dict(zip(columns, _rows(foreign, table)[0], strict=True))
    rest = [name for name in columns if name != key]
    names, marks = ", ".join(["rowid", *rest]), ", ".join("?" * len(columns))
    values = [rowid, *(_other(row[name]) for name in rest)]
    _refused(foreign, table, f"REPLACE INTO {table} ({names}) VALUES ({marks})", values)


def test_a_new_row_is_accepted(foreign: Foreign) -> None:
    before = len(_rows(foreign, "event"))
    foreign.execute(
        "INSERT INTO event (campaign_id, position, kind, unix_s, payload) "
        "VALUES (2, 1, 'foreign', 0.0, '{}')"
    )
    assert len(_rows(foreign, "event")) == before + 1
    foreign.rollback()
