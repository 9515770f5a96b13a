"""What a database error means to a person: one line, and which exit code."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

from kernelarc.genomes import InputError, KernelarcError, StoppedError

SALVAGE = "restore a copy, or salvage what is left with `sqlite3 FILE .recover`"
_EXPLAINED = {
    sqlite3.SQLITE_NOTADB: "not a kernelarc store: it is no SQLite database",
    sqlite3.SQLITE_CORRUPT: f"damaged ({{error}}): {SALVAGE}",
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written ({error})",
    sqlite3.SQLITE_READONLY: "it cannot be written ({error}): make it writable",
    sqlite3.SQLITE_PERM: "no permission ({error})",
    sqlite3.SQLITE_BUSY: "locked by another program: end that program",
    sqlite3.SQLITE_LOCKED: "locked by another program: end that program",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened ({error}): check the permissions of it and its "
    "folder",
}
_CONTENT = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT)


SQLITE_ERRORS = (sqlite3.Error, UnicodeError)
"""What the driver raises; the second when a damaged name stands in the message itself."""


def code_of(error: BaseException) -> int:
    """Return SQLite's primary result code, or 0 for an error that has none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    # The driver gives no code where a text is none.
    if isinstance(cause, UnicodeError) or str(cause).startswith("Could not decode to UTF-8"):
        return sqlite3.SQLITE_CORRUPT
    # The low byte is the primary code; the rest says more than we tell apart.
    return int(getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF


def _line(store: object, error: BaseException) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    known = _EXPLAINED.get(code_of(error), "{error}")
    return f"store {store}: " + known.replace("{error}", text)


def reading_fault(store: object, error: BaseException) -> InputError:
    """Explain an error met while opening or reading: nothing was written."""
    return InputError(_line(store, error))


def writing_fault(store: object, error: BaseException) -> KernelarcError:
    """Explain an error met while appending: nothing of the group was written."""
    if code_of(error) in _CONTENT:
        return InputError(_line(store, error))
    return StoppedError(
        _line(store, error) + f"; everything acknowledged is safe, go on with "
        f"`kernelarc resume {store}`"
    )
