"""What an error of PostgreSQL means to a person: one line, and which exit code."""

from __future__ import annotations

import psycopg
from sqlalchemy.exc import DBAPIError

from kernelarc.genomes import InputError, KernelarcError, StoppedError

SALVAGE = "restore a backup of the database"
_LOST = "the connection to the server was lost ({error})"
# By SQLSTATE, the class alone where it says enough.
_EXPLAINED = {
    "08": _LOST,
    "57P": _LOST,
    "25006": "the server is read-only, a standby perhaps ({error}): give the primary server's URL",
    "42501": "no permission ({error}): ask the owner of the tables to grant it",
    "42P01": f"not a kernelarc store, or damaged ({{error}}): {SALVAGE}",
    "53100": "the server's disk is full ({error}): free some space",
    "53300": "the server has no connection left ({error}): end some, or raise max_connections",
    "55P03": "another writer keeps it waiting ({error}): try again in a moment",
    "XX00": f"damaged ({{error}}): {SALVAGE}",
}
_CONTENT = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
)


def cause_of(error: BaseException) -> BaseException:
    """Return the driver's error."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig
    return error


def _line(store: str, error: BaseException) -> str:
    cause = cause_of(error)
    text = " ".join(str(cause).split())
    state = str(getattr(cause, "sqlstate", None) or "")
    known = next((line for code, line in _EXPLAINED.items() if state.startswith(code)), "")
    if not known and is_lost(error):
        known = _LOST
    return f"store {store}: " + (known or "{error}").replace("{error}", text)


def is_lost(error: BaseException) -> bool:
    """Tell whether the session ended with this error, and its locks with it."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def connecting_fault(store: str, error: BaseException) -> InputError:
    """Explain why there is no connection."""
    text = " ".join(str(cause_of(error)).split())
    return InputError(
        f"store {store}: cannot be reached ({text}): check that the server runs, that the database "
        f"exists (createdb makes one), and the password (PGPASSWORD, or ~/.pgpass)"
    )


def reading_fault(store: str, error: BaseException) -> InputError:
    """Explain an error met while opening or reading: nothing was written."""
    return InputError(_line(store, error))


def stopping_fault(store: str, error: BaseException) -> StoppedError:
    """Explain an error that stops a writer: everything acknowledged is stored."""
    return StoppedError(
        _line(store, error) + f"; everything acknowledged is safe, go on with "
        f"`kernelarc resume {store}`"
    )


def writing_fault(store: str, error: BaseException) -> KernelarcError:
    """Explain an error met while appending: nothing of the group was written.

    Where the connection was lost during the commit itself, all of it may have been.
    """
    if isinstance(cause_of(error), _CONTENT):
        return reading_fault(store, error)
    return stopping_fault(store, error)
