"""The compile pool: one process a core, fed ahead of the device, the most promising first."""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelarc.bench.cpu._build import (
    COMPILER_CRASHED,
    COMPILER_OUT_OF_MEMORY,
    COMPILER_TIMED_OUT,
)
from kernelarc.bench.cuda._process import worker_environment
from kernelarc.bench.cuda._protocol import Channel, WorkerGoneError
from kernelarc.bench.kernels._compile_folder import CompileFolder
from kernelarc.bench.kernels._messages import BuildReply, BuildRequest
from kernelarc.bench.kernels._shelf import BuildShelf, build_key
from kernelarc.genomes import Genome, InputError, StoppedError, Workload
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute
from kernelarc.genomes.triton import FOLDER_VARIABLE

LIMIT_S = 45.0
MEMORY_MIB = 6144
_PROGRAM = "kernelarc.bench.kernels._compile_process"
_NO_MEMORY = re.compile(
    r"bad_alloc|out of memory|cannot allocate memory|MemoryError", re.IGNORECASE
)
_MOST_EARLY_DEATHS = 8
_BATCH = 32  # within so many, the most promising are first; nothing waits much longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A genome to be built. ``ticket`` is the caller's; ``value`` sorts: the least first."""

    ticket: int
    route: str
    workload: Workload
    genome: Genome
    value: float = 0.0

    @property
    def batch(self) -> float:
        """Those that came together; an order of the least value goes ahead of every batch."""
        return -math.inf if self.value == -math.inf else self.ticket // _BATCH


class _Child:
    """One compile process in its own process group, dead when this process is."""

    def __init__(self, given: Sequence[int], kept: Path, aside: Path) -> None:
        mine, theirs = socket.socketpair()
        ends, self._lifeline = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        numbers = [str(number) for number in (theirs.fileno(), ends, *given)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, *numbers],
                pass_fds=(theirs.fileno(), ends),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
                env={
                    **_importing_as_here(),
                    FOLDER_VARIABLE: str(kept.absolute()),
                    "TMPDIR": str(aside),
                },
            )
        finally:
            theirs.close()
            os.close(ends)
        self.channel = Channel(mine)
        self.order: Order | None = None
        self.since = 0.0
        self.known: set[str] = set()
        self.answered = False

    def end(self, patience_s: float = 0.05) -> tuple[int, str]:
        """Kill it with all that it started; return its exit code and the end of what it wrote.

        One that is just dying is given a moment to say how.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._lifeline)
        self.channel.close()
        self._said.seek(0)
        text = self._said.read()[-4000:].decode(errors="replace").strip()
        self._said.close()
        return code, text


class CompilePool:
    """Builds genomes side by side. One thread uses it.

    Args:
        routes: By name; each is sent to a process once.
        arch: What is compiled for; ``target`` says it later, before anything is submitted.
        shelf: Where builds are looked for first and kept.
        processes: How many compile side by side.
        limit_s: After so long a build is given up, and its process with all that it started.
        memory_mib: Memory of one process.

    Raises:
        InputError: A route cannot be sent to another process.
    """

    def __init__(
        self,
        routes: Sequence[KernelRoute],
        arch: str,
        shelf: BuildShelf,
        *,
        processes: int,
        limit_s: float = LIMIT_S,
        memory_mib: int = MEMORY_MIB,
    ) -> None:
        self._routes = {route.name: route for route in routes}
        self._numbers = {route.name: i for i, route in enumerate(routes)}
        self._identities = {route.name: dict(route.identity()) for route in routes}
        for route in routes:
            _demand_travel(route)
        self.arch, self._shelf = arch, shelf
        self._limit_s, self._memory_mib = limit_s, memory_mib
        self._queue: list[tuple[float, float, int, Order]] = []
        self._ready: list[BuildReply] = []
        self._busy_s, self._early_deaths, self._processes = 0.0, 0, processes
        self._first_s: float | None = None
        self._last_s = 0.0
        # A compiler's first build takes several times the usual: one that nobody waits for is made.
        self._trial = any("triton" in identity for identity in self._identities.values())
        self._folder = CompileFolder()
        self._children = [self._child() for _ in range(processes)]

    def _child(self) -> _Child:
        numbers = [self._memory_mib, int(self._trial)]
        return _Child(numbers, self._shelf.compiled, self._folder.path)

    # Asking

    def target(self, device: DeviceLimits) -> None:
        """Compile for this device from now on. Nothing may have been submitted."""
        self.arch = device.arch
        self._routes = {name: route.on(device) for name, route in self._routes.items()}
        count = str(device.multiprocessors)
        for identity in self._identities.values():
            identity["multiprocessors"] = count

    def submit(self, order: Order) -> None:
        """Queue an order. What lies on the shelf is ready at once."""
        found = self._shelf.get(self._key(order))
        if found is not None:
            self._ready.append(BuildReply(ticket=order.ticket, build=found))
            return
        if self._first_s is None:
            self._first_s = time.monotonic()
        heapq.heappush(self._queue, (order.batch, order.value, order.ticket, order))
        self._feed()

    def withdraw(self, tickets: Container[int]) -> list[int]:
        """Forget those of these orders that nobody has begun; return their tickets."""
        withdrawn = [entry[2] for entry in self._queue if entry[2] in tickets]
        self._queue = [entry for entry in self._queue if entry[2] not in tickets]
        heapq.heapify(self._queue)
        return withdrawn

    def _key(self, order: Order) -> str:
        route = self._routes[order.route]
        identity = self._identities[order.route]
        return build_key(route, identity, order.workload, order.genome, self.arch)

    def _feed(self) -> None:
        for child in self._children:
            if not self._queue:
                return
            if child.order is None:
                self._give(child, heapq.heappop(self._queue)[-1])

    def _give(self, child: _Child, order: Order) -> None:
        new = None if order.route in child.known else self._routes[order.route]
        request = BuildRequest(
            ticket=order.ticket,
            route=self._numbers[order.route],
            workload=order.workload,
            genome=order.genome,
            arch=self.arch,
            new_route=new,
        )
        child.order, child.since = order, time.monotonic()
        child.known.add(order.route)
        with contextlib.suppress(WorkerGoneError):  # its death is seen when it is read
            child.channel.send(request)

    # Harvesting

    @property
    def pending(self) -> int:
        """Orders that have no reply yet, those that wait in line included."""
        return len(self._queue) + sum(child.order is not None for child in self._children)

    def filenos(self) -> list[int]:
        """Return descriptors that become readable when a reply may be there."""
        return [child.channel.fileno() for child in self._children if child.order is not None]

    def ready(self) -> bool:
        """Tell whether a reply waits already."""
        return bool(self._ready)

    def deadline(self) -> float | None:
        """Return until when (monotonic) ``harvest`` must be called again, or None."""
        times = [child.since for child in self._children if child.order is not None]
        return min(times) + self._limit_s if times else None

    def harvest(self) -> list[BuildReply]:
        """Return every reply that is there, and set free processes to work. Never waits.

        Raises:
            StoppedError: Compile processes die before they answer anything.
        """
        for place, child in enumerate(self._children):
            if child.order is not None:
                self._read(place, child, child.order)
        self._feed()
        replies, self._ready = self._ready, []
        return replies

    def _read(self, place: int, child: _Child, order: Order) -> None:
        """Take in a process's reply, or its death, or that it takes too long."""
        if not child.channel.ready():
            if time.monotonic() - child.since > self._limit_s:
                self._replace(place)
                self._lost(order, COMPILER_TIMED_OUT, f"no build after {self._limit_s:g} s")
            return
        try:
            reply: BuildReply = child.channel.receive(self._limit_s)
        except (WorkerGoneError, TimeoutError):
            self._died(place, child, order)
            return
        self._answered(place, child, order, reply)

    def _answered(self, place: int, child: _Child, order: Order, reply: BuildReply) -> None:
        self._busy_s, self._last_s = self._busy_s + reply.seconds, time.monotonic()
        child.order, child.answered, self._early_deaths = None, True, 0
        if reply.unusable:
            raise StoppedError(
                f"route {order.route!r} cannot be loaded in a compile process: {reply.message}"
            )
        if reply.leaving:
            self._replace(place)
        if reply.build is not None:
            self._shelf.put(self._key(order), reply.build)
        self._ready.append(reply)

    def _died(self, place: int, child: _Child, order: Order) -> None:
        answered = child.answered
        code, text = self._replace(place)
        if not answered:
            self._early_deaths += 1
        last = (text.splitlines() or ["it said nothing"])[-1][:300]
        if self._early_deaths > _MOST_EARLY_DEATHS:
            raise StoppedError(f"compile processes die at once: {last}")
        failure = COMPILER_OUT_OF_MEMORY if _NO_MEMORY.search(text) else COMPILER_CRASHED
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        self._lost(order, failure, f"{how}: {last}")

    def _lost(self, order: Order, failure: str, message: str) -> None:
        self._ready.append(BuildReply(ticket=order.ticket, failure=failure, message=message))

    def _replace(self, place: int) -> tuple[int, str]:
        """End a process and start another in its place; return how it ended."""
        said = self._children[place].end()
        self._children[place] = self._child()
        return said

    # Ending

    def busy_share(self) -> float:
        """Return which share of the processes' time went into builds.

        Counts from the first order to the last reply: what lies before and after is no search.
        """
        if self._first_s is None:
            return 0.0
        whole = max(self._last_s - self._first_s, 1e-9) * max(self._processes, 1)
        return min(self._busy_s / whole, 1.0)

    def close(self) -> None:
        """End every process. Idempotent."""
        children, self._children = self._children, []
        self._queue.clear()
        for child in children:
            child.end(0.0)
        self._folder.close()


def _demand_travel(route: KernelRoute) -> None:
    try:
        pickle.dumps(route)
    except Exception as error:
        raise InputError(
            f"route {route.name!r} cannot be sent to a compile process: {error}"
        ) from None


def _importing_as_here() -> dict[str, str]:
    """Let a compile process import whatever this one can: routes may be the user's."""
    found = worker_environment()
    known = found["PYTHONPATH"].split(os.pathsep)
    rest = [path for path in sys.path if path and path not in known]
    return {**found, "PYTHONPATH": os.pathsep.join([*known, *rest])}
