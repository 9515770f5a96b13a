"""The schema on PostgreSQL: creating it, keeping it append-only, telling it from other programs'.

No trigger watches INSERT: no INSERT of PostgreSQL can replace a row. Over an existing key it fails,
or does nothing where it says ON CONFLICT DO NOTHING; with ON CONFLICT DO UPDATE, as with MERGE, it
is an UPDATE too and meets that trigger, which is why it stands for the statement and not for rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

from sqlalchemy import BigInteger, Column, MetaData, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from kernelarc.genomes import InputError
from kernelarc.storage._models import Base
from kernelarc.storage._postgres_session import Session
from kernelarc.storage._schema import APPLICATION_ID, SCHEMA_VERSION

MIGRATIONS: Mapping[int, Sequence[LiteralString]] = {}
"""By the version that a step starts from, the statements that lead to the next one. None yet."""

_VERSIONS = Table(
    "kernelarc_schema",
    MetaData(),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
)
TABLES = (_VERSIONS, *Base.metadata.sorted_tables)

# A session with session_replication_role = replica skips triggers that are not ALWAYS.
_REFUSAL = """
CREATE FUNCTION kernelarc_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$
"""
_TRIGGERS = (
    "CREATE TRIGGER {0}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {0} "
    "FOR EACH STATEMENT EXECUTE FUNCTION kernelarc_append_only()",
    "ALTER TABLE {0} ENABLE ALWAYS TRIGGER {0}_append_only",
)
_OURS = "SELECT to_regclass('kernelarc_schema') IS NOT NULL"
# Views and tables that an extension brought are no sign of another program.
_OTHERS = """
SELECT relname FROM pg_class AS c
WHERE relnamespace = to_regnamespace(quote_ident(current_schema()))
  AND relkind IN ('r', 'p', 'f', 'm', 'v')
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e')
ORDER BY relname LIMIT 3
"""
_WRITABLE = """
SELECT current_setting('transaction_read_only') = 'off',
       (SELECT min(name) FROM unnest(%s::text[]) AS name
        WHERE NOT has_table_privilege(name, 'INSERT'))
"""


def postgres_statements() -> Iterator[str]:
    """Yield everything that makes an empty schema a store of this version."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    yield _REFUSAL
    for table in TABLES:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda i: str(i.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
        for trigger in _TRIGGERS:
            yield trigger.format(table.name)
    yield f"INSERT INTO kernelarc_schema VALUES ({SCHEMA_VERSION})"


def stored_version(session: Session, store: str) -> int | None:
    """Return the schema version; None where there is nothing at all.

    Raises:
        InputError: Another program's tables are there, or a newer schema.
    """
    if not _one(session, _OURS):
        others = [row[0] for row in session.execute(_OTHERS)]
        if not others:
            return None
        if not _one(session, _OURS):  # unless they are ours, made between the two questions
            raise InputError(
                f"store {store}: not a kernelarc store: it is another program's database (it has "
                f"{', '.join(others)}): make one of its own with createdb"
            )
    version = int(_one(session, "SELECT max(version) FROM kernelarc_schema") or 0)
    if version > SCHEMA_VERSION:
        raise InputError(
            f"store {store}: written by a newer kernelarc (schema {version}, this one knows up to "
            f"{SCHEMA_VERSION}): upgrade kernelarc"
        )
    return version


def _one(session: Session, statement: LiteralString) -> Any:
    row = session.execute(statement).fetchone()
    assert row is not None
    return row[0]


def make_current(session: Session, store: str) -> None:
    """Create the schema where there is none, or bring an older one up to date, whole or not at all.

    Processes that do it at the same time wait for one another.
    """
    with session.transaction():
        session.execute("SELECT pg_advisory_xact_lock(%s, 0)", [APPLICATION_ID])
        version = stored_version(session, store)
        if version is None:
            if _one(session, "SELECT current_schema()") is None:
                raise InputError(f"store {store}: its search_path names no schema that exists")
            for statement in postgres_statements():
                session.execute(statement.encode())
            return
        for step in range(version, SCHEMA_VERSION):
            for statement in MIGRATIONS[step]:
                session.execute(statement)
            session.execute("INSERT INTO kernelarc_schema VALUES (%s)", [step + 1])


def check_writable(session: Session, store: str) -> None:
    """Refuse a store that only can be read.

    Raises:
        InputError: The server is read-only, or the role may not add rows.
    """
    row = session.execute(_WRITABLE, [[table.name for table in Base.metadata.sorted_tables]])
    writable, denied = row.fetchone() or (False, None)
    if not writable:
        raise InputError(f"store {store}: the server is read-only: give the primary server's URL")
    if denied:
        raise InputError(
            f"store {store}: no permission to add rows to {denied}: ask the owner of the tables to "
            f"grant INSERT on all of them and USAGE on their sequences"
        )
