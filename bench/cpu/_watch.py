"""What a candidate may leave behind in the process that ran it: threads, a changed mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernelarc.bench.cpu._refusal import MODE_CHANGED, THREADS_LEFT, Refusal
from kernelarc.genomes import Status

_TASKS = Path("/proc/self/task")
_EXITING = 0x4
"""The kernel's flag of a thread that is ending (PF_EXITING)."""


def _threads() -> set[str]:
    return {task.name for task in _TASKS.iterdir()}


def _still_works(thread: str) -> bool:
    """Tell whether a thread may still work. One that was joined is ending when the join returns."""
    try:
        fields = (_TASKS / thread / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return not int(fields[6]) & _EXITING


class ProcessWatch:
    """Compares this process with how it was before a candidate ran.

    Threads of the interpreter's and of NumPy's libraries that exist beforehand are not counted.
    """

    def __init__(self) -> None:
        self._before = _threads()

    def check(self) -> None:
        """Refuse a candidate that left something behind.

        Raises:
            Refusal: Threads run on, or the floating-point mode is another one.
        """
        # At once and without a pause: work that goes on after the call escapes the clock.
        if left := [t for t in _threads() - self._before if _still_works(t)]:
            raise Refusal(
                Status.REJECTED,
                THREADS_LEFT,
                f"{len(left)} threads still ran after the call had returned",
                suspect=True,
            )
        if (text := changed_mode()) is not None:
            raise Refusal(Status.REJECTED, MODE_CHANGED, text, suspect=True)


def changed_mode() -> str | None:
    """Say how this thread's floating-point mode differs from the default, or None."""
    tiny = np.full(1, 2.0**-140, dtype=np.float32)
    if not (tiny * np.float32(1.0)).any():
        return "denormals are flushed to zero after the call"
    one, half_step = np.ones(1, dtype=np.float32), np.float32(2.0**-24)
    if (one + half_step)[0] != 1.0 or (-one - half_step)[0] != -1.0:
        return "rounding is not to nearest after the call"
    return None
