"""The worker's program: one device, one context, requests over an inherited socket.

It ends when the other end closes, at once and whatever it is doing: the kernel sends SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any

from kernelarc.bench.cuda._protocol import (
    Begun,
    Channel,
    Fault,
    Outcome,
    Prepared,
    Preparing,
    Request,
    WorkerGoneError,
)
from kernelarc.genomes import KernelarcError, Status

_F_SETSIG = 10


def die_with(descriptor: int) -> None:
    """Have the kernel kill this process when the other end of a pipe closes.

    A process that leads its group takes those with it that it started, assemblers for example.
    """
    leads = os.getpgrp() == os.getpid()
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpid() if leads else os.getpid())
    fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([descriptor], [], [], 0.0)[0]:  # it closed while this process was starting
        os.kill(os.getpid(), signal.SIGKILL)


class Worker:
    """Serves requests; evaluations queue up, and everything else goes between two of them.

    Args:
        channel: To the session.
        ordinal: Which device.
        bench: ``module:class`` of what evaluates; its methods are the verbs of requests.
    """

    def __init__(self, channel: Channel, ordinal: int, bench: str) -> None:
        self._channel, self._ordinal, self._program = channel, ordinal, bench
        self._queue: deque[tuple[Any, ...]] = deque()  # workload, number, contender, limit
        self._bench: Any = None
        self._idle_s = 0.0

    def serve(self) -> None:
        """Serve until the other end closes."""
        while True:
            if not self._queue or self._channel.ready():
                waiting, begun = not self._queue, time.perf_counter()
                request = self._channel.receive()
                self._idle_s += (time.perf_counter() - begun) * waiting
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
            if request.verb == "make_ready":
                place = request.arguments["workload"]
                self._prepared(place, -1, Prepared(place))
                return
            if request.verb == "idle":
                answer: Any = self._idle_s
                self._idle_s = 0.0
            else:
                answer = getattr(self._workbench(), request.verb)(**request.arguments)
        except KernelarcError as error:
            answer = Fault(kind=type(error).__name__, message=str(error))
        except Exception as error:
            traceback.print_exc()
            if self._bench is not None and self._bench.broken():
                raise WorkerGoneError("the context is lost") from None  # another worker goes on
            answer = Fault(kind="", message=_line(error))
        self._channel.send(answer)

    def _workbench(self) -> Any:
        if self._bench is None:
            module, _, name = self._program.partition(":")
            self._bench = getattr(importlib.import_module(module), name)(self._ordinal)
        return self._bench

    def _prepared(self, workload: int, number: int, then: object) -> bool:
        """Have a bench that asks for it make itself ready, and say so.

        A fault there is not the candidate's.
        """
        prepare = getattr(self._bench, "prepare", None)
        if prepare is None:
            return True
        self._channel.send(Preparing(number))
        try:
            prepare(workload)
        except Exception as error:
            traceback.print_exc()
            if self._bench.broken():
                raise WorkerGoneError("the context is lost") from None
            kind = type(error).__name__ if isinstance(error, KernelarcError) else ""
            self._channel.send(Fault(kind=kind, message=str(error) if kind else _line(error)))
            return False
        self._channel.send(then)
        return True

    def _evaluate_next(self) -> bool:
        """Evaluate one candidate; return whether the context is lost."""
        item = self._queue.popleft()
        number = item[1]
        if not self._prepared(item[0], number, Begun(number)):
            return False
        try:
            outcome = self._bench.evaluate(*item)
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


def _imported(name: str) -> None:
    with contextlib.suppress(Exception):  # whoever needs it is told why there is none
        importlib.import_module(name)


def main(arguments: list[str]) -> None:
    """Run the worker: descriptors of socket and lifeline, the device's number, the bench.

    What is named after these is imported meanwhile, for whoever needs it later.
    """
    end, lifeline, ordinal = (int(text) for text in arguments[:3])
    bench = arguments[3]
    die_with(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM):  # the session decides when a worker ends
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(ImportError):  # what is missing is said when it is asked for
        import cupy  # noqa: F401, PLC0415
        from nvmath.bindings import cublasLt  # noqa: F401, PLC0415

        importlib.import_module(bench.partition(":")[0])
    for name in arguments[4:]:
        threading.Thread(target=_imported, args=(name,), daemon=True).start()
    channel = Channel(socket.socket(fileno=end))
    with contextlib.suppress(WorkerGoneError):
        Worker(channel, ordinal, bench).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
