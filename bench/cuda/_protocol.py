"""What the session and its worker say to each other: framed pickles over a socket pair.

Both ends are the same program of the same user; nothing is read from anywhere else.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelarc.genomes import Allele, LtDomain, LtRow, MatmulJob, Status, Tolerance

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 16
_PATIENCE_S = 0.05


class WorkerGoneError(Exception):
    """The other end closed, or died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload as the worker needs it."""

    job: MatmulJob
    tolerance: Tolerance
    deterministic: bool = False
    cache: str = "cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``verb`` is a method of the worker, ``arguments`` are its keywords."""

    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An evaluation as the worker saw it; ``number`` says which.

    Attributes:
        fatal: Whether the CUDA context is lost with it: the worker ends after sending this.
        content: What its launches come to where only the device can tell; empty elsewhere.
        repeats: Whether launches of this content were judged before: these were not run.
    """

    number: int
    status: Status
    samples: tuple[float, ...] = ()
    censored: bool = False
    launches: int = 1
    failure: str | None = None
    message: str = ""
    cost_s: float = 0.0
    properties: Mapping[str, Allele] = field(default_factory=dict)
    fatal: bool = False
    content: str = ""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Preparing:
    """The bench of this candidate's workload is being made ready; nothing else is done before."""

    number: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The bench is ready and this candidate is about to run: its time limit starts now."""

    number: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The bench of this workload is ready: it was asked for ahead of any candidate."""

    workload: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReply:
    """What the library offers for a workload, its heuristics, and its first one: the baseline.

    Attributes:
        seeds: Rows with the mutation's name, best first.
        dormant: Algorithms of which no combination was taken.
    """

    domain: LtDomain
    seeds: tuple[tuple[str, LtRow], ...]
    baseline: LtRow | None
    dormant: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestReply:
    """Samples of shape (rounds, contenders), NaN where a contender failed."""

    samples: tuple[tuple[float, ...], ...]
    failures: Mapping[int, str]
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The request could not be served: bad usage, a missing part, or a broken instrument."""

    kind: str
    message: str


class Channel:
    """One end of the conversation."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._waiting = bytearray()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._end.fileno()

    def send(self, message: object, patient: Callable[[], bool] | None = None) -> None:
        """Send one message.

        Args:
            message: What can be pickled.
            patient: Asked again and again while the other end does not read: whether to go on
                waiting. None waits for ever.

        Raises:
            WorkerGoneError: Nobody reads any more.
            TimeoutError: There is no patience left; half of the message may be sent, so that
                nothing can be said to that end any more.
        """
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        rest = memoryview(_HEADER.pack(len(body)) + body)
        if patient is None:
            self._push(rest, 0)
            return
        while rest:
            if self._writable():
                rest = rest[self._push(rest, socket.MSG_DONTWAIT) :]
            elif not patient():
                raise TimeoutError

    def _writable(self) -> bool:
        try:
            return bool(select.select([], [self._end], [], _PATIENCE_S)[1])
        except (OSError, ValueError) as error:
            raise WorkerGoneError(str(error)) from None

    def _push(self, content: memoryview, flags: int) -> int:
        """Send everything, or without waiting what there is room for; return how much."""
        try:
            if flags:
                return self._end.send(content, flags)
            self._end.sendall(content)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise WorkerGoneError(str(error)) from None
        return len(content)

    def ready(self, timeout_s: float = 0.0) -> bool:
        """Tell whether something can be read within this time."""
        if self._complete():
            return True
        return bool(select.select([self._end], [], [], timeout_s)[0])

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for one message.

        Raises:
            TimeoutError: None came in time.
            WorkerGoneError: The other end is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._complete():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and (left <= 0 or not self.ready(left)):
                raise TimeoutError
            self._more()
        (length,) = _HEADER.unpack_from(self._waiting)
        body = bytes(self._waiting[_HEADER.size : _HEADER.size + length])
        del self._waiting[: _HEADER.size + length]
        return pickle.loads(body)

    def _complete(self) -> bool:
        if len(self._waiting) < _HEADER.size:
            return False
        (length,) = _HEADER.unpack_from(self._waiting)
        return len(self._waiting) >= _HEADER.size + int(length)

    def _more(self) -> None:
        try:
            chunk = self._end.recv(_CHUNK)
        except OSError as error:
            raise WorkerGoneError(str(error)) from None
        if not chunk:
            raise WorkerGoneError("the other end is closed")
        self._waiting += chunk

    def close(self) -> None:
        """Close this end."""
        self._end.close()
