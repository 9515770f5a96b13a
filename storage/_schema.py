"""Creating the schema, keeping it append-only, and bringing older files up to date (SQLite)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping

from sqlalchemy import Table, UniqueConstraint
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from kernelarc.storage._models import Base

SCHEMA_VERSION = 1
APPLICATION_ID = 0x6B61_7263  # "karc": tells our files from other programs' SQLite files

Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: Mapping[int, Migration] = {}
"""By the version that a step starts from; it ends at the next one. None yet: 1 is the first."""


def keys_of(table: Table) -> list[tuple[str, ...]]:
    """Return every key of a table: the primary one first, then the unique constraints."""
    unique = [c for c in table.constraints if isinstance(c, UniqueConstraint)]
    keys = [tuple(column.name for column in table.primary_key)]
    return keys + sorted(tuple(column.name for column in c.columns) for c in unique)


def sqlite_triggers(table: Table) -> Iterator[str]:
    """Yield the triggers that refuse UPDATE, DELETE and INSERT over an existing key.

    The third is needed because ``INSERT OR REPLACE`` deletes the old row without firing a
    DELETE trigger unless the connection asks for it, and a foreign connection does not.
    """
    name = table.name
    for action in ("UPDATE", "DELETE"):
        yield (
            f"CREATE TRIGGER {name}_no_{action.lower()} BEFORE {action} ON {name} "
            f"BEGIN SELECT RAISE(ABORT, '{name} is append-only: {action} refused'); END"
        )
    tests = (" AND ".join(f"{c} = NEW.{c}" for c in key) for key in keys_of(table))
    exists = " OR ".join(f"EXISTS (SELECT 1 FROM {name} WHERE {test})" for test in tests)
    yield (
        f"CREATE TRIGGER {name}_no_replace BEFORE INSERT ON {name} WHEN {exists} "
        f"BEGIN SELECT RAISE(ABORT, '{name} is append-only: the key exists'); END"
    )


def sqlite_statements() -> Iterator[str]:
    """Yield everything that makes an empty SQLite file a store of this version."""
    dialect = sqlite.dialect()
    for table in Base.metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda i: str(i.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
        yield from sqlite_triggers(table)
    yield f"PRAGMA application_id = {APPLICATION_ID}"
    yield f"PRAGMA user_version = {SCHEMA_VERSION}"


def create_schema(connection: sqlite3.Connection) -> None:
    """Create all tables, indexes and triggers in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in sqlite_statements():
        connection.execute(statement)
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a *copy* of an older store to the current version, one committed step at a time."""
    for step in range(version, SCHEMA_VERSION):
        connection.execute("BEGIN IMMEDIATE")
        MIGRATIONS[step](connection)
        connection.execute(f"PRAGMA user_version = {step + 1}")
        connection.execute("COMMIT")
