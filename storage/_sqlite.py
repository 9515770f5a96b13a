"""SQLite: opening for reading without leaving a trace, and for writing as the only writer.

At rest a store is one file in rollback-journal mode, so it can be copied and read from read-only
media. While a writer has it open it is in WAL mode, so readers and the writer do not wait for
each other. After a crash the WAL stays beside it until the next writer; readers use it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, StaticPool, Table, create_engine, func, select

from kernelarc.genomes import InputError
from kernelarc.storage._backend import Backend
from kernelarc.storage._faults import (
    SALVAGE,
    SQLITE_ERRORS,
    code_of,
    reading_fault,
    writing_fault,
)
from kernelarc.storage._lock import WriterLock
from kernelarc.storage._schema import SCHEMA_VERSION
from kernelarc.storage._sqlite_files import (
    beside,
    connect,
    create_file,
    examine,
    migrate_file,
    readable_copy,
    stored_version,
    unfinished,
)

Synchronous = Literal["FULL", "NORMAL"]

_CANNOT_WRITE_BESIDE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class SqliteBackend(Backend):
    """A store in one SQLite file, opened for reading."""

    salvage = SALVAGE

    def __init__(self, shown: Path, file: Path, connection: sqlite3.Connection) -> None:
        engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
        super().__init__(str(shown), engine)
        self.file = file
        self._keys: dict[str, int] = {}

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        return self._transaction("BEGIN IMMEDIATE", lambda error: writing_fault(self.name, error))

    def reading_fault(self, error: BaseException) -> InputError:
        return reading_fault(self.name, error)

    def take_keys(self, connection: Connection, table: Table, n: int) -> Sequence[int]:
        # The only writer may count by itself. A group that fails leaves a gap, which is harmless.
        if table.name not in self._keys:
            last = connection.execute(select(func.max(table.c.id))).scalar()
            self._keys[table.name] = (last or 0) + 1
        first = self._keys[table.name]
        self._keys[table.name] = first + n
        return range(first, first + n)

    def take_turn(self, connection: Connection) -> None:
        """Nothing to wait for: the file has one writer."""

    def claim(self, connection: Connection, campaign: int) -> None:
        """Nothing to claim: the one writer of the file is the writer of all its campaigns."""

    def size_bytes(self) -> int:
        files = (self.file, beside(self.file, "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())


class SqliteWriterBackend(SqliteBackend):
    """A store in one SQLite file, opened by its only writer."""

    def __init__(
        self, shown: Path, file: Path, connection: sqlite3.Connection, lock: WriterLock
    ) -> None:
        super().__init__(shown, file, connection)
        self._raw = connection
        self._lock = lock
        self._open = True

    def close(self) -> None:
        with self._turn:
            if self._open:
                self._open = False
                # Back to one file. Where a reader is in the way, or the disk is full, the WAL
                # stays: nothing is lost, the next writer tries again.
                with contextlib.suppress(*SQLITE_ERRORS):
                    self._raw.execute("PRAGMA busy_timeout = 100")
                    self._raw.execute("PRAGMA journal_mode = DELETE")
            super().close()
            self._lock.release()


def open_reading(shown: Path, *, wait_s: float) -> SqliteBackend:
    """Open a store read-only; a file that a crash or an older version left is read as a copy."""
    file = shown.resolve()
    examine(shown, file)
    version = stored_version(shown, file, wait_s)
    if version < SCHEMA_VERSION:
        opened = readable_copy(shown, file, wait_s, version=version)
    else:
        opened = _open_read_only(shown, file, wait_s)
    return SqliteBackend(shown, file, opened)


def _open_read_only(shown: Path, file: Path, wait_s: float) -> sqlite3.Connection:
    try:
        return _probed(connect(file, "mode=ro", wait_s))
    except SQLITE_ERRORS as error:
        if code_of(error) not in _CANNOT_WRITE_BESIDE:
            raise reading_fault(shown, error) from error
    # Nothing may be written beside it (read-only media, another user's folder).
    if unfinished(file):
        return readable_copy(shown, file, wait_s, version=SCHEMA_VERSION)
    try:
        # Without a WAL the file alone is everything: reading it without locks loses nothing.
        return _probed(connect(file, "mode=ro&immutable=1", wait_s))
    except SQLITE_ERRORS as error:
        raise reading_fault(shown, error) from error


def _probed(connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        connection.execute("SELECT count(*) FROM campaign").fetchone()
    except SQLITE_ERRORS:
        connection.close()
        raise
    return connection


def open_writing(
    shown: Path, *, create: bool, synchronous: Synchronous, wait_s: float
) -> SqliteWriterBackend:
    """Take the writer's lock, make or migrate the file where needed, and open it."""
    file = shown.resolve()
    if not (create and not file.exists()):
        examine(shown, file)
        stored_version(shown, file, wait_s)
    elif not file.parent.is_dir():
        raise InputError(f"store {shown}: the folder {file.parent} does not exist")
    lock = WriterLock(file, movable=create)
    try:
        if create and not file.exists():
            create_file(shown, file)
        version = stored_version(shown, file, wait_s)
        if version < SCHEMA_VERSION:
            migrate_file(shown, file, version, wait_s)
        connection = _open_writable(shown, file, synchronous, wait_s)
        return SqliteWriterBackend(shown, file, connection, lock)
    except BaseException:
        lock.release()
        raise


def _open_writable(
    shown: Path, file: Path, synchronous: Synchronous, wait_s: float
) -> sqlite3.Connection:
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(file, "mode=rw", wait_s)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA journal_mode = WAL")
        # A write lock taken and given back: read-only media and other programs show here.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except SQLITE_ERRORS as error:
        if connection is not None:
            connection.close()
        raise reading_fault(shown, error) from error
    return connection
