"""SQLite files: is it ours, which version, make a new one, copy one that cannot be opened."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kernelarc.genomes import InputError
from kernelarc.storage._faults import SQLITE_ERRORS, code_of, reading_fault
from kernelarc.storage._schema import APPLICATION_ID, SCHEMA_VERSION, create_schema, migrate

COMPANIONS = ("-wal", "-journal")


def beside(file: Path, suffix: str) -> Path:
    """Return the path of a file that stands beside the store."""
    return file.with_name(file.name + suffix)


def unfinished(file: Path) -> list[Path]:
    """Return what a crash left beside the store and is part of it: a WAL or a hot journal."""
    paths = [beside(file, suffix) for suffix in COMPANIONS]
    return [path for path in paths if path.exists() and path.stat().st_size > 0]


def connect(file: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    """Open an existing file; ``mode`` is the URI's query, such as ``mode=ro``."""
    return sqlite3.connect(
        f"file:{quote(os.fsencode(file))}?{mode}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
    )


def examine(shown: Path, file: Path) -> None:
    """Refuse what cannot be a store by its kind alone.

    Raises:
        InputError: It is missing, a directory, no regular file, or empty.
    """
    if not file.exists():
        raise InputError(f"store {shown}: there is no such file (`kernelarc run` makes one)")
    if file.is_dir():
        raise InputError(f"store {shown}: it is a directory, a store is a file")
    if not file.is_file():
        raise InputError(f"store {shown}: it is no regular file")
    if not os.access(file, os.R_OK):
        raise InputError(f"store {shown}: no permission to read it")
    if file.stat().st_size == 0:
        raise InputError(f"store {shown}: not a kernelarc store: it is an empty file")


def _identity(file: Path, mode: str, wait_s: float) -> tuple[int, int]:
    with contextlib.closing(connect(file, mode, wait_s)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def stored_version(shown: Path, file: Path, wait_s: float) -> int:
    """Return the schema version; takes no lock and leaves nothing beside the file.

    Raises:
        InputError: It is no SQLite file, another program's, or of a newer schema.
    """
    try:
        try:
            # Immutable: no lock, no shared memory, no WAL beside a file that may not be ours.
            application, version = _identity(file, "mode=ro&immutable=1", wait_s)
        except SQLITE_ERRORS as error:
            if code_of(error) == sqlite3.SQLITE_NOTADB:
                raise
            # A checkpoint that is running can look like damage to one that takes no lock.
            application, version = _identity(file, "mode=ro", wait_s)
    except SQLITE_ERRORS as error:
        raise reading_fault(shown, error) from error
    if application != APPLICATION_ID:
        raise InputError(
            f"store {shown}: not a kernelarc store: it is another program's SQLite database"
        )
    if version > SCHEMA_VERSION:
        raise InputError(
            f"store {shown}: written by a newer kernelarc (schema {version}, this one knows up to "
            f"{SCHEMA_VERSION}): upgrade kernelarc"
        )
    return int(version)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside(file, suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def _replacement(shown: Path, file: Path, suffix: str) -> Iterator[Path]:
    """Give a file to build, then put it in place in one step; on an error nothing is left.

    Call it only with the writer's lock: what an earlier process left unfinished is removed.
    """
    draft = beside(file, suffix)
    try:
        _discard(draft)
        yield draft
        _sync(draft)
        draft.replace(file)
        _sync(file.parent)
    except (OSError, *SQLITE_ERRORS) as error:
        with contextlib.suppress(OSError):
            _discard(draft)
        raise reading_fault(shown, error) from error


def create_file(shown: Path, file: Path) -> None:
    """Make a new store, whole or not at all. The caller holds the writer's lock.

    Raises:
        InputError: The disk is full or cannot be written.
    """
    with (
        _replacement(shown, file, ".new") as draft,
        contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA synchronous = OFF")  # synced once, when it is whole
        create_schema(connection)


def _upgrade_into(file: Path, draft: Path, version: int, wait_s: float) -> None:
    with (
        contextlib.closing(connect(file, "mode=ro", wait_s)) as old,
        contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")
        new.execute("PRAGMA synchronous = OFF")  # synced once, when it is whole
        migrate(new, version)
        (verdict,) = new.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the migrated copy fails its check: {verdict}")


def migrate_file(shown: Path, file: Path, version: int, wait_s: float) -> None:
    """Migrate an older store: a copy is migrated and checked, then takes the place in one step.

    The old file is kept beside it as ``<name>.schema-<version>``. The caller holds the lock.
    """
    try:
        # Whatever a crash left is brought into the file first, so that the copy has all of it
        # and no WAL of the old file can meet the new one.
        with contextlib.closing(connect(file, "mode=rw", wait_s)) as old:
            old.execute("PRAGMA journal_mode = DELETE")
        kept = beside(file, f".schema-{version}")
        if not kept.exists():
            os.link(file, kept)
    except (OSError, *SQLITE_ERRORS) as error:
        raise reading_fault(shown, error) from error
    with _replacement(shown, file, ".new") as draft:
        _upgrade_into(file, draft, version, wait_s)


def _stamp(paths: list[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def _copy_all(file: Path, folder: Path) -> Path:
    paths = [file, *unfinished(file)]
    before = _stamp(paths)
    for path in paths:
        shutil.copyfile(path, folder / path.name)
    if _stamp(paths) != before:
        raise OSError("it changed while it was copied: try again")
    return folder / file.name


def readable_copy(shown: Path, file: Path, wait_s: float, *, version: int) -> sqlite3.Connection:
    """Copy a store to a temporary folder, complete it there, and open that.

    For a store with an unfinished WAL where nothing may be written, and for one of an older
    schema that is only read. The copy has no name any more when this returns: it goes with the
    connection, however that ends.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="kernelarc-") as made:
            copy = _copy_all(file, Path(made))
            with contextlib.closing(connect(copy, "mode=rw", wait_s)) as connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = DELETE")
                migrate(connection, version)
            opened = connect(copy, "mode=ro", wait_s)
            opened.execute("SELECT count(*) FROM campaign").fetchone()
            return opened
    except (OSError, *SQLITE_ERRORS) as error:
        raise reading_fault(shown, error) from error
