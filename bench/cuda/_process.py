"""The worker process as the session holds it: started, asked, killed, replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernelarc.bench.cuda._protocol import Channel, Fault, Request, WorkerGoneError
from kernelarc.genomes import (
    InputError,
    KernelarcError,
    MissingPartError,
    StoppedError,
    child_environment,
)

_PROGRAM = "kernelarc.bench.cuda._worker"
LT_BENCH = "kernelarc.bench.cuda._workbench:Workbench"
_FAULTS: dict[str, type[KernelarcError]] = {
    "InputError": InputError,
    "MissingPartError": MissingPartError,
    "StoppedError": StoppedError,
}
CLOSE_S = 5.0


class WorkerProcess:
    """One worker: its own process group, dead when this process is.

    It loads its libraries as soon as it starts but makes no CUDA context before it is asked
    something, so one can stand by to replace another.

    Args:
        ordinal: Which device.
        bench: ``module:class`` of what evaluates there.
        imports: Modules that it will need and that take long to import.
        variables: What its environment has beside that of all workers.
    """

    def __init__(
        self,
        ordinal: int,
        bench: str = LT_BENCH,
        imports: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        mine, theirs = socket.socketpair()
        ends, self._lifeline = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        numbers = [str(number) for number in (theirs.fileno(), ends, ordinal)]
        command = [sys.executable, "-m", _PROGRAM, *numbers, bench, *imports]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(), ends),
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                env={**worker_environment(), **variables},
            )
        finally:
            theirs.close()
            os.close(ends)
        self.channel = Channel(mine)

    @property
    def pid(self) -> int:
        """The worker's process id, which is its group's as well."""
        return self._process.pid

    def ask(self, verb: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            KernelarcError: The worker says what is wrong with the request or the machine.
            WorkerGoneError: It died.
            TimeoutError: It did not answer in time.
        """
        self.channel.send(Request(verb=verb, arguments=arguments))
        return checked(self.channel.receive(timeout_s))

    def last_words(self) -> str:
        """Return the last line that the worker wrote, for the message about its death."""
        self._errors.seek(0)
        lines = self._errors.read()[-4000:].decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def strike(self) -> None:
        """Kill the worker and all that it started; any thread may, while another listens."""
        if self._lifeline < 0:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker and all that it started, now."""
        self.strike()
        self._reap()

    def close(self) -> None:
        """Ask the worker to end; kill it if it does not."""
        with contextlib.suppress(WorkerGoneError):
            self.channel.send(Request(verb="close"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self.kill()

    def _reap(self) -> None:
        self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self.channel.close()
            self._errors.close()


def checked(answer: Any) -> Any:
    """Return an answer, or raise what it says went wrong."""
    if isinstance(answer, Fault):
        kind = _FAULTS.get(answer.kind, StoppedError)
        text = answer.message if answer.kind else f"the device worker failed: {answer.message}"
        raise kind(text)
    return answer


def worker_environment() -> dict[str, str]:
    """Return a child's environment in which GPUs have the numbers of ``nvidia-smi``."""
    return {**child_environment(), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
