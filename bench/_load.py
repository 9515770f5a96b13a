"""Who else uses the processor while something is being timed.

A watch compares two looks at ``/proc``: it costs nothing in between and covers exactly the span
that was timed. Processes of other containers are invisible, but the time that they take is not:
the system counts every core's busy time, whoever caused it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NOTABLE_CPUS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProcess:
    """A process that is not ours and used the processor. ``cpus`` 1.0 is one core's worth."""

    pid: int
    name: str
    cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLoad:
    """What others took of our cores during a span.

    Attributes:
        cpus: Cores' worth of busy time on our cores that no process of ours used.
        stolen: Cores' worth that the hypervisor took away.
        processes: Those that can be seen, busiest first.
        seconds: Length of the span; below 0.05 s nothing can be said and all is zero.
    """

    cpus: float = 0.0
    stolen: float = 0.0
    processes: tuple[ForeignProcess, ...] = ()
    seconds: float = 0.0

    def warning(self, threshold: float = 0.1) -> str | None:
        """Say in one line who disturbs the timing, or None below the threshold."""
        if self.cpus + self.stolen < threshold:
            return None
        named = ", ".join(f"{p.name} ({p.pid}) {p.cpus:.2f}" for p in self.processes[:3])
        return (
            f"others used {self.cpus:.2f} of the cores while timing"
            + (f", the hypervisor took {self.stolen:.2f}" if self.stolen >= _NOTABLE_CPUS else "")
            + (f": {named}" if named else "")
        )


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    name: str
    ticks: int
    ticks_of_ended_children: int


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    busy: int
    stolen: int
    processes: Mapping[int, _Process]


def _process(folder: Path) -> _Process | None:
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:  # it ended
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()  # from field 3 on: state, ppid, ...
    return _Process(
        parent=int(fields[1]),
        name=name,
        ticks=int(fields[11]) + int(fields[12]),
        ticks_of_ended_children=int(fields[13]) + int(fields[14]),
    )


def _core_ticks(cores: frozenset[int]) -> tuple[int, int]:
    """Return (busy, stolen) ticks of these cores since the start of the system."""
    wanted = {str(core) for core in cores}
    busy = stolen = 0
    for line in Path("/proc/stat").read_text().splitlines():
        fields = line.split()
        if fields and fields[0][:3] == "cpu" and fields[0][3:] in wanted:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[1:9])
            busy += user + nice + system + irq + softirq
            stolen += steal
    return busy, stolen


def _look(cores: frozenset[int]) -> _Look:
    found = {
        int(folder.name): process
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (process := _process(folder)) is not None
    }
    busy, stolen = _core_ticks(cores)
    return _Look(at_s=time.monotonic(), busy=busy, stolen=stolen, processes=found)


def _tree(processes: Mapping[int, _Process], roots: Iterable[int]) -> set[int]:
    """Return the roots and all who descend from them."""
    ours = set(roots)
    grown = True
    while grown:
        more = {pid for pid, p in processes.items() if p.parent in ours and pid not in ours}
        ours |= more
        grown = bool(more)
    return ours


class LoadWatch:
    """Tells who else used our cores since the last time it was asked.

    Args:
        own: Processes that belong to us beside this one; descendants are ours as well.
    """

    def __init__(self, own: Iterable[int] = ()) -> None:
        self._roots = {os.getpid(), *own}
        self._cores = frozenset(os.sched_getaffinity(0))
        self._last = _look(self._cores)

    def foreign(self) -> ForeignLoad:
        """Return the load of others since the last call, and start the next span."""
        before, now = self._last, _look(self._cores)
        self._last = now
        seconds = now.at_s - before.at_s
        if seconds < 0.05:
            return ForeignLoad()
        ours = _tree(now.processes, self._roots) | _tree(before.processes, self._roots)
        scale = 1.0 / (_TICKS_PER_S * seconds)
        own = sum(_used(before, now, pid, ended=True) for pid in ours)
        return ForeignLoad(
            cpus=max(0.0, (now.busy - before.busy - own) * scale),
            stolen=max(0.0, (now.stolen - before.stolen) * scale),
            processes=_busiest(before, now, ours, scale),
            seconds=seconds,
        )


def _used(before: _Look, now: _Look, pid: int, *, ended: bool = False) -> int:
    """Return the ticks a process used between two looks, its ended children's too if asked."""
    late, early = now.processes.get(pid), before.processes.get(pid)
    if late is None:
        return 0
    used = late.ticks - (early.ticks if early else 0)
    if ended:
        used += late.ticks_of_ended_children - (early.ticks_of_ended_children if early else 0)
    return used


def _busiest(before: _Look, now: _Look, ours: set[int], scale: float) -> tuple[ForeignProcess, ...]:
    found = [
        ForeignProcess(pid=pid, name=process.name, cpus=_used(before, now, pid) * scale)
        for pid, process in now.processes.items()
        if pid not in ours
    ]
    busy = [process for process in found if process.cpus >= _NOTABLE_CPUS]
    return tuple(sorted(busy, key=lambda process: (-process.cpus, process.pid)))
