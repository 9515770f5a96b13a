"""Opening a store by path or URL."""

from __future__ import annotations

from pathlib import Path

from kernelarc.genomes import InputError, MissingPartError
from kernelarc.storage._address import Address, postgres_address
from kernelarc.storage._backend import Backend
from kernelarc.storage._contract import StoreReader, StoreWriter
from kernelarc.storage._reader import SqlReader
from kernelarc.storage._sqlite import Synchronous, open_reading, open_writing
from kernelarc.storage._writer import SqlWriter

WAIT_S = 10.0


def _path(where: str | Path) -> Path:
    text = str(where)
    if text.startswith("sqlite:///"):
        return Path(text.removeprefix("sqlite:///"))
    if "://" in text:
        scheme = text.partition("://")[0]
        raise InputError(
            f"store {scheme}://...: a store is a SQLite file (a path, or sqlite:///PATH) or a "
            f"PostgreSQL database (postgresql://user@host/database)"
        )
    if not text:
        raise InputError("store: the path is empty, name a file such as kernelarc.db")
    return Path(text)


def _open_postgres(address: Address, *, write: bool, create: bool, wait_s: float) -> Backend:
    try:
        from kernelarc.storage import _postgres  # noqa: PLC0415
    except ImportError as error:
        raise MissingPartError(
            f"store {address.name}: PostgreSQL needs psycopg, which cannot be imported ({error}): "
            f"pip install 'kernelarc[distributed]'"
        ) from error
    if write:
        return _postgres.open_writing(address, create=create, wait_s=wait_s)
    return _postgres.open_reading(address, wait_s=wait_s)


def open_reader(where: str | Path, *, wait_s: float = WAIT_S) -> StoreReader:
    """Open an existing store read-only; a writer may be at work meanwhile.

    Nothing is written beside the store where that can be avoided: SQLite itself adds its shared
    memory file when it reads what a crash left. On PostgreSQL the right to read is enough.

    Args:
        where: A path, or a URL.
        wait_s: How long to wait for another program's lock, or for a server.

    Raises:
        InputError: There is no store, or it cannot be read; one line says why.
        MissingPartError: It is on PostgreSQL and the extra ``distributed`` is not installed.
    """
    address = postgres_address(where)
    if address is not None:
        return SqlReader(_open_postgres(address, write=False, create=False, wait_s=wait_s))
    return SqlReader(open_reading(_path(where), wait_s=wait_s))


def open_writer(
    where: str | Path,
    *,
    create: bool = False,
    synchronous: Synchronous = "FULL",
    wait_s: float = WAIT_S,
) -> StoreWriter:
    """Open a store as its one writer. An older schema is migrated, a copy of it kept.

    On PostgreSQL there is one writer for each campaign: of those that it begins, claims or
    appends to; and an older schema is migrated in one transaction, in place.

    Args:
        where: A path, or a URL.
        create: Make the store when there is none. Without it a wrong path is an error. A
            PostgreSQL database must exist and be empty.
        synchronous: ``"FULL"``: what is acknowledged survives a loss of power. ``"NORMAL"``: it
            survives every crash of processes; for devices whose results are repeatable. A
            PostgreSQL server promises the first always.
        wait_s: How long to wait for another program's lock, here and at every commit; and for a
            server to answer.

    Raises:
        InputError: There is no store, it is another's, newer, damaged, not writable, or in use
            by a running campaign (which is named); nothing was written.
        MissingPartError: It is on PostgreSQL and the extra ``distributed`` is not installed.
    """
    address = postgres_address(where)
    if address is not None:
        return SqlWriter(_open_postgres(address, write=True, create=create, wait_s=wait_s))
    backend = open_writing(_path(where), create=create, synchronous=synchronous, wait_s=wait_s)
    return SqlWriter(backend)
