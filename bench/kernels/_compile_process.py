"""A compile process: builds one genome at a time, for as long as its parent lives.

Run as ``python -m kernelarc.bench.kernels._compile_process SOCKET LIFELINE MEBIBYTES TRIAL``. It
has no GPU and needs none. Whatever a compiler writes goes where the parent caught it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback

from kernelarc.bench.cpu._build import COMPILER_OUT_OF_MEMORY
from kernelarc.bench.cuda._protocol import Channel, WorkerGoneError
from kernelarc.bench.cuda._worker import die_with
from kernelarc.bench.kernels._messages import BuildReply, BuildRequest
from kernelarc.genomes import KernelarcError
from kernelarc.genomes.kernels import BuildError, KernelRoute

_NICENESS = 5  # the device worker and the coordinator come first
_COLLECT_AFTER = 50_000  # objects
_GROWN_SHARE = 0.6  # of the memory limit, after which a process is replaced


class CompileProcess:
    """Serves build requests.

    Args:
        channel: To the pool.
        memory_bytes: Its limit, set by the caller.
    """

    def __init__(self, channel: Channel, memory_bytes: int) -> None:
        self._channel, self._memory_bytes = channel, memory_bytes
        self._routes: dict[int, KernelRoute] = {}
        self._settled = False

    def rehearse(self) -> None:
        """Build something with Triton, unless a request waits: a first build takes far longer."""
        with contextlib.suppress(Exception):  # what is wrong is said when it is asked for
            from kernelarc.genomes.triton import rehearsal  # noqa: PLC0415

            if not self._channel.ready():
                rehearsal()
                self._settle()

    def serve(self) -> None:
        """Serve until the other end closes or this process has grown too large."""
        while True:
            try:
                request: BuildRequest = self._channel.receive()
            except (pickle.UnpicklingError, AttributeError, ImportError) as error:
                # The route's class cannot be imported here; the parent knows what it asked for.
                self._channel.send(_unusable(error))
                continue
            reply = self._built(request)
            self._channel.send(reply)
            self._settle()
            if reply.leaving:
                return

    def _settle(self) -> None:
        """After the first build, have the collector pass over what a compiler keeps for good.

        A build makes some hundred thousand objects, few of them in cycles; looking for those again
        and again among all that was imported took a tenth of the time.
        """
        if not self._settled:
            self._settled = True
            gc.collect()
            gc.freeze()
            gc.set_threshold(_COLLECT_AFTER)

    def _built(self, request: BuildRequest) -> BuildReply:
        if request.new_route is not None:
            self._routes[request.route] = request.new_route
        begun = time.perf_counter()
        build, failure, message = None, None, ""
        try:
            route = self._routes[request.route]
            build = route.build(request.workload, request.genome, request.arch)
        except BuildError as error:
            failure, message = error.failure, error.message
        except MemoryError:
            failure, message = COMPILER_OUT_OF_MEMORY, "the compiler ran out of memory"
        except KernelarcError as error:
            failure, message = "cannot be built", str(error)
        except Exception as error:
            traceback.print_exc()
            failure = "compile error"
            message = (f"{type(error).__name__}: {error}".splitlines() or ["?"])[0][:500]
        return BuildReply(
            ticket=request.ticket,
            build=build,
            failure=failure,
            message=message,
            seconds=time.perf_counter() - begun,
            leaving=_resident_bytes() > _GROWN_SHARE * self._memory_bytes,
        )


def _unusable(error: Exception) -> BuildReply:
    message = (f"{type(error).__name__}: {error}".splitlines() or ["?"])[0][:500]
    return BuildReply(ticket=-1, failure="route cannot be loaded", message=message, unusable=True)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a system file, read often
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: list[str]) -> None:
    """Run the process: descriptors, memory limit in MiB, whether Triton is tried at once."""
    end, lifeline, mebibytes, trial = (int(text) for text in arguments)
    die_with(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM):  # the pool decides when a process ends
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    limit = mebibytes << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    process = CompileProcess(Channel(socket.socket(fileno=end)), limit)
    if trial:
        process.rehearse()
    with contextlib.suppress(WorkerGoneError):
        process.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
