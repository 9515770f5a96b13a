"""Why a candidate is not accepted: classes of failure, and the exception that carries one."""

from __future__ import annotations

from kernelarc.bench.cpu._messages import Outcome
from kernelarc.genomes import Status

LAUNCH_FAILED = "kernel returned an error"
OUT_OF_MEMORY = "out of memory"
OUT_OF_BOUNDS = "out-of-bounds write"
INPUT_CHANGED = "input changed"
NOT_WRITTEN = "output not written"
THREADS_LEFT = "threads left running"
MODE_CHANGED = "floating-point mode changed"
ESCAPED_CLOCK = "work escaped the clock"
FASTER_THAN_PHYSICS = "faster than physics"
TIMED_OUT = "run timed out"
KILLED = "worker killed from outside"


class Refusal(Exception):
    """A candidate failed. ``suspect``: this process may have been damaged by it."""

    def __init__(
        self, status: Status, failure: str, message: str = "", *, suspect: bool = False
    ) -> None:
        super().__init__(failure)
        self.status = status
        self.failure = failure
        self.message = message or failure
        self.suspect = suspect

    def outcome(self) -> Outcome:
        """Return the outcome of the judged candidate."""
        return Outcome(
            status=self.status, failure=self.failure, message=self.message, suspect=self.suspect
        )
