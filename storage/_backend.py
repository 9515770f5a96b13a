"""What the reader and the writer need of a database, whichever it is."""

from __future__ import annotations

import contextlib
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection, Engine, Table, event
from sqlalchemy.exc import DBAPIError, StatementError

from kernelarc.genomes import InputError, KernelarcError

_UNDECODABLE = (ValueError, LookupError, TypeError, struct.error)


class Backend(ABC):
    """One connection to one store. Transactions are short; threads take turns.

    Attributes:
        name: How messages call the store: its path or URL (without a password).
        engine: SQLAlchemy's engine with exactly one connection.
        snapshot: The statement that begins a consistent read.
        salvage: What a person can do about damage.
    """

    name: str
    snapshot = "BEGIN"
    salvage: str

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self._turn = threading.RLock()
        self._begin = "BEGIN"
        self._connection: Connection | None = None
        event.listen(engine, "begin", self._emit_begin)

    def _emit_begin(self, connection: Connection) -> None:
        connection.exec_driver_sql(self._begin)

    @contextlib.contextmanager
    def _transaction(
        self, begin: str, fault: Callable[[BaseException], KernelarcError]
    ) -> Iterator[Connection]:
        with self._turn:
            try:
                if self._connection is None:
                    self._connection = self.engine.connect()
                self._begin = begin
                with self._connection.begin():
                    yield self._connection
            except DBAPIError as error:
                raise fault(error) from error
            except StatementError as error:
                # What was said already where a new connection was wanted and not to be had.
                if isinstance(error.orig, KernelarcError):
                    raise error.orig from error
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a consistent read, and decode in it: what cannot be decoded is damaged.

        Raises:
            InputError: The store cannot be read, or holds what no writer of ours wrote.
        """
        try:
            with self._transaction(self.snapshot, self.reading_fault) as connection:
                yield connection
        except _UNDECODABLE as error:
            raise InputError(
                f"store {self.name}: damaged, it holds what cannot be read ({error}): "
                f"{self.salvage}"
            ) from error

    @abstractmethod
    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        """Open a transaction that writes: committed on leaving, or nothing of it is."""

    @abstractmethod
    def reading_fault(self, error: BaseException) -> KernelarcError:
        """Explain an error met while reading."""

    @abstractmethod
    def take_keys(self, connection: Connection, table: Table, n: int) -> Sequence[int]:
        """Reserve ``n`` internal ids of a table, growing; nobody else is given one of them."""

    @abstractmethod
    def take_turn(self, connection: Connection) -> None:
        """Wait until no other writer adds a campaign or what campaigns share, until the end.

        Genomes are shared too, but too many of them are added for turns: whoever adds one that
        another writer is just adding finds it there.
        """

    @abstractmethod
    def claim(self, connection: Connection, campaign: int) -> None:
        """Become the campaign's one writer, until the backend is closed.

        Raises:
            InputError: Another one has it; the message says who.
        """

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the size on disk, whatever is not yet checkpointed included."""

    def close(self) -> None:
        """Release the connection. Idempotent."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self.engine.dispose()
