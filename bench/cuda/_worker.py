"""The worker's program: one device, one context, requests over an inherited socket.

It ends when the other end closes, at once and whatever it is doing: the kernel sends SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import traceback
from collections import deque
from typing import Any

from kernelarc.bench.cuda._protocol import (
    Channel,
    Fault,
    Outcome,
    Request,
    WorkerGoneError,
)
from kernelarc.genomes import KernelarcError, LtRow, Status

_F_SETSIG = 10


def die_with(descriptor: int) -> None:
    """Have the kernel kill this process when the other end of a pipe closes."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


class Worker:
    """Serves requests; evaluations queue up, and everything else goes between two of them.

    Args:
        channel: To the session.
        ordinal: Which device.
    """

    def __init__(self, channel: Channel, ordinal: int) -> None:
        self._channel, self._ordinal = channel, ordinal
        self._queue: deque[tuple[int, int, LtRow, float | None]] = deque()
        self._bench: Any = None

    def serve(self) -> None:
        """Serve until the other end closes."""
        while True:
            if not self._queue or self._channel.ready():
                request = self._channel.receive()
                if request.verb == "close":
                    return
                self._answer(request)
            elif self._evaluate_next():
                return

    def _answer(self, request: Request) -> None:
        try:
            if request.verb == "evaluate":
                self._queue.extend(request.arguments["items"])
                return
            answer = getattr(self._workbench(), request.verb)(**request.arguments)
        except KernelarcError as error:
            answer = Fault(kind=type(error).__name__, message=str(error))
        except Exception as error:
            traceback.print_exc()
            answer = Fault(kind="", message=_line(error))
        self._channel.send(answer)

    def _workbench(self) -> Any:
        if self._bench is None:
            from kernelarc.bench.cuda._workbench import Workbench  # noqa: PLC0415

            self._bench = Workbench(self._ordinal)
        return self._bench

    def _evaluate_next(self) -> bool:
        """Evaluate one candidate; return whether the context is lost."""
        workload, number, row, limit_us = self._queue.popleft()
        try:
            outcome = self._bench.evaluate(workload, number, row, limit_us)
        except Exception as error:
            traceback.print_exc()
            lost = self._bench.broken()
            outcome = Outcome(
                number=number,
                status=Status.LAUNCH_ERROR,
                failure="device fault" if lost else "launch refused",
                message=_line(error),
                fatal=lost,
            )
        self._channel.send(outcome)
        return bool(outcome.fatal)


def _line(error: Exception) -> str:
    return (f"{type(error).__name__}: {error}".splitlines() or ["?"])[0][:500]


def main(arguments: list[str]) -> None:
    """Run the worker: descriptors of the socket and of the lifeline, then the device's number."""
    end, lifeline, ordinal = (int(text) for text in arguments)
    die_with(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM):  # the session decides when a worker ends
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ImportError):  # what is missing is said when it is asked for
        import cupy  # noqa: F401, PLC0415
        from nvmath.bindings import cublasLt  # noqa: F401, PLC0415

        import kernelarc.bench.cuda._workbench  # noqa: F401, PLC0415
    channel = Channel(socket.socket(fileno=end))
    with contextlib.suppress(WorkerGoneError):
        Worker(channel, ordinal).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
