"""PostgreSQL: one writer a campaign, several campaigns of several hosts at once.

A writer holds an advisory lock of its session for each of its campaigns. However the process ends,
the server ends the session and the lock with it. A session that was lost is not replaced for
writing, since the lock may be another's by now; reading goes on with a new one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, NullPool, Table, create_engine

from kernelarc.genomes import InputError, KernelarcError, StoppedError
from kernelarc.storage._address import Address
from kernelarc.storage._backend import Backend
from kernelarc.storage._models import Base
from kernelarc.storage._postgres_faults import (
    SALVAGE,
    connecting_fault,
    is_lost,
    reading_fault,
    stopping_fault,
    writing_fault,
)
from kernelarc.storage._postgres_schema import check_writable, make_current, stored_version
from kernelarc.storage._postgres_session import Session, connect
from kernelarc.storage._schema import SCHEMA_VERSION

# The table's own number tells two stores of one database apart; 0 is the turn, no campaign.
_TURN = "SELECT pg_advisory_xact_lock('campaign'::regclass::oid::int4, 0)"
_CLAIM = "SELECT pg_try_advisory_lock('campaign'::regclass::oid::int4, %s)"
_HOLDER = """
SELECT a.application_name, a.usename, a.client_addr, a.backend_start
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = 'campaign'::regclass AND l.objid = %s::int4::oid
"""
_NEXT_CAMPAIGN = "SELECT coalesce(max(id), 0) + 1 FROM campaign"
_KEYS = "SELECT nextval(%s) FROM generate_series(1, %s)"
_SIZE = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name"

_open: weakref.WeakSet[PostgresBackend] = weakref.WeakSet()


class PostgresBackend(Backend):
    """A store on a PostgreSQL server, opened for reading."""

    snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    salvage = SALVAGE

    def __init__(self, address: Address, session: Session, again: Callable[[], Session]) -> None:
        self.session: Session | None = session
        self._again = again
        self._used = False
        engine = create_engine(
            "postgresql+psycopg://",
            creator=self._next_session,
            poolclass=NullPool,
            use_native_hstore=False,
        )
        super().__init__(address.name, engine)
        _open.add(self)

    def _next_session(self) -> Session:
        """Give the session that the store was opened with, then new ones for lost ones."""
        if self._used or self.session is None:
            try:
                self.session = self._again()
            except psycopg.Error as error:
                raise self._unreachable(error) from error
        self._used = True
        return self.session

    def _unreachable(self, error: BaseException) -> KernelarcError:
        return connecting_fault(self.name, error)

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        return self._transaction("BEGIN", self.reading_fault)  # the server refuses what writes

    def reading_fault(self, error: BaseException) -> KernelarcError:
        return reading_fault(self.name, error)

    def take_keys(self, connection: Connection, table: Table, n: int) -> Sequence[int]:
        if table.name == "campaign":  # counted without gaps; whoever begins one has the turn
            return [_scalar(connection, _NEXT_CAMPAIGN)]
        if n == 0:
            return ()
        rows = connection.exec_driver_sql(_KEYS, (f"{table.name}_id_seq", n))
        return [row[0] for row in rows]

    def take_turn(self, connection: Connection) -> None:
        connection.exec_driver_sql(_TURN)

    def claim(self, connection: Connection, campaign: int) -> None:
        if not _scalar(connection, _CLAIM, campaign):
            holder = connection.exec_driver_sql(_HOLDER, (campaign,)).first()
            raise InputError(_refusal(self.name, campaign, holder))

    def size_bytes(self) -> int:
        tables = [table.name for table in Base.metadata.sorted_tables]
        with self.reading() as connection:
            return int(_scalar(connection, _SIZE, tables))

    def close(self) -> None:
        with self._turn:
            super().close()
            if self.session is not None:
                self.session.close()
                self.session = None

    def forget(self) -> None:
        """Let go of the connection without a word to the server: for a forked child.

        Otherwise the server would see the parent's session live on after the parent's end.
        """
        if self.session is not None and not self.session.closed:
            dead, other = socket.socketpair()
            with dead, other:
                os.dup2(dead.fileno(), self.session.fileno(), inheritable=False)


def _forget_all() -> None:
    for backend in list(_open):
        backend.forget()


os.register_at_fork(after_in_child=_forget_all)


class PostgresWriterBackend(PostgresBackend):
    """A store on a PostgreSQL server, opened by the writer of some of its campaigns."""

    def __init__(self, address: Address, session: Session, again: Callable[[], Session]) -> None:
        super().__init__(address, session, again)
        self._lost: KernelarcError | None = None

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        if self._lost is not None:
            raise StoppedError(str(self._lost))
        return self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED", self._writing_fault)

    def _writing_fault(self, error: BaseException) -> KernelarcError:
        return self._stopped(error) or writing_fault(self.name, error)

    def reading_fault(self, error: BaseException) -> KernelarcError:
        return self._stopped(error) or super().reading_fault(error)

    def _unreachable(self, error: BaseException) -> KernelarcError:
        return StoppedError(str(self._lost)) if self._lost else super()._unreachable(error)

    def _stopped(self, error: BaseException) -> KernelarcError | None:
        """Remember that the session is gone, and with it the right to write."""
        if not is_lost(error) and self._lost is None:
            return None
        self._lost = self._lost or stopping_fault(self.name, error)
        return StoppedError(str(self._lost))


def _scalar(connection: Connection, statement: str, *values: Any) -> Any:
    return connection.exec_driver_sql(statement, values or None).scalar_one()


def _refusal(store: str, campaign: int, holder: Sequence[Any] | None) -> str:
    """Name who writes a campaign, and say how to wait for it."""
    line = f"store {store}: campaign {campaign} is in use by a running campaign"
    if holder is None:  # it ended between the two questions
        return f"{line} that has just ended: try again"
    program, user, host, since = holder
    came = f" from {host}" if host else ""
    return (
        f"{line} ({program}, user {user}{came}, since {since:%Y-%m-%d %H:%M}): wait for it or stop "
        f"it there, or begin a campaign of your own with `kernelarc run`"
    )


def _session(address: Address, *, wait_s: float, read_only: bool) -> Session:
    try:
        return connect(address, wait_s=wait_s, read_only=read_only)
    except psycopg.Error as error:
        raise connecting_fault(address.name, error) from error


@contextlib.contextmanager
def _opening(address: Address, session: Session) -> Iterator[None]:
    """Close the session again where the store cannot be opened, and say why."""
    try:
        yield
    except BaseException as error:
        session.close()
        if isinstance(error, psycopg.Error):
            raise reading_fault(address.name, error) from error
        raise


def _missing(address: Address) -> InputError:
    return InputError(
        f"store {address.name}: there is no store in this database yet (`kernelarc run` makes one)"
    )


def open_reading(address: Address, *, wait_s: float) -> PostgresBackend:
    """Open a store read-only; needs no right but to read."""
    session = _session(address, wait_s=wait_s, read_only=True)
    with _opening(address, session):
        version = stored_version(session, address.name)
        if version is None:
            raise _missing(address)
        if version < SCHEMA_VERSION:
            raise InputError(
                f"store {address.name}: of an older kernelarc (schema {version}): the next writer "
                f"brings it up to date"
            )
    return PostgresBackend(
        address, session, lambda: connect(address, wait_s=wait_s, read_only=True)
    )


def open_writing(address: Address, *, create: bool, wait_s: float) -> PostgresWriterBackend:
    """Make or migrate the schema where needed, and open it. No campaign is claimed yet."""
    session = _session(address, wait_s=wait_s, read_only=False)
    with _opening(address, session):
        version = stored_version(session, address.name)
        if version is None and not create:
            raise _missing(address)
        if version is None or version < SCHEMA_VERSION:
            make_current(session, address.name)
        check_writable(session, address.name)
    return PostgresWriterBackend(
        address, session, lambda: connect(address, wait_s=wait_s, read_only=True)
    )
