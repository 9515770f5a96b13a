"""Opening a store by path or URL."""

from __future__ import annotations

from pathlib import Path

from kernelarc.genomes import InputError
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
            f"store {scheme}://...: this version supports only SQLite files (a path, or sqlite:///PATH)"
        )
    if not text:
        raise InputError("store: the path is empty, name a file such as kernelarc.db")
    return Path(text)


def open_reader(where: str | Path, *, wait_s: float = WAIT_S) -> StoreReader:
    """Open an existing store read-only; a writer may be at work meanwhile.

    Nothing is written beside the store where that can be avoided: SQLite itself adds its shared
    memory file when it reads what a crash left.

    Args:
        where: A path, or a URL.
        wait_s: How long to wait for another program's lock.

    Raises:
        InputError: There is no store, or it cannot be read; one line says why.
    """
    return SqlReader(open_reading(_path(where), wait_s=wait_s))


def open_writer(
    where: str | Path,
    *,
    create: bool = False,
    synchronous: Synchronous = "FULL",
    wait_s: float = WAIT_S,
) -> StoreWriter:
    """Open a store as its one writer. An older schema is migrated, a copy of it kept.

    Args:
        where: A path, or a URL.
        create: Make the store when there is none. Without it a wrong path is an error.
        synchronous: ``"FULL"``: what is acknowledged survives a loss of power. ``"NORMAL"``: it
            survives every crash of processes; for devices whose results are repeatable.
        wait_s: How long to wait for another program's lock, here and at every commit.

    Raises:
        InputError: There is no store, it is another's, newer, damaged, not writable, or in use
            by a running campaign (which is named); nothing was written.
    """
    backend = open_writing(_path(where), create=create, synchronous=synchronous, wait_s=wait_s)
    return SqlWriter(backend)
