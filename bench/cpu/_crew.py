"""The coordinator's side of workers: started, asked, watched, killed, replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

from kernelarc.bench.cpu._messages import TIMING, Beat, Fault, Prepare
from kernelarc.bench.cpu._refusal import KILLED, TIMED_OUT
from kernelarc.genomes import (
    InputError,
    KernelarcError,
    MissingPartError,
    Status,
    StoppedError,
)

_START_S = 60.0
_CLOSE_S = 5.0
_DEATHS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGILL: "illegal instruction",
    signal.SIGFPE: "arithmetic exception",
    signal.SIGABRT: "aborted",
    signal.SIGKILL: KILLED,
    signal.SIGTERM: KILLED,
}
_QUIET = {
    # Idle BLAS threads must not spin beside what is timed next; after 2^18 ticks (about 0.1 ms)
    # they sleep, so that launches right after one another still find them awake.
    "OPENBLAS_THREAD_TIMEOUT": "18",
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
}


class WorkerLost(Exception):
    """A worker died or was killed while it carried out an order.

    Attributes:
        status: TIMEOUT or LAUNCH_ERROR.
        failure: Class of failure.
        stage: What it had said last that it was doing.
        contender: Whom that concerned.
    """

    def __init__(self, status: Status, failure: str, stage: str, contender: str) -> None:
        super().__init__(failure)
        self.status = status
        self.failure = failure
        self.stage = stage
        self.contender = contender

    @property
    def message(self) -> str:
        """One line for people."""
        return f"{self.failure} during {self.stage or 'start'}"


class WorkerProcess:
    """One worker process. It is started by making this object, and idle until asked."""

    def __init__(self) -> None:
        order_end, self._orders = _pipe()
        self._answers, answer_end = _pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is ended
        text = "from kernelarc.bench.cpu._worker import main; import sys; "
        text += "main(*map(int, sys.argv[1:]))"
        ends = (order_end.fileno(), answer_end.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", text, *map(str, ends), str(os.getpid())],
            env={**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=ends,
            start_new_session=True,
        )
        order_end.close()
        answer_end.close()
        self._awake = False
        self._words = ""
        self.timing_wall_s = 0.0

    @property
    def pid(self) -> int:
        """The process id, which is its process group's as well."""
        return self._process.pid

    def wait_awake(self) -> None:
        """Wait until everything is imported.

        Raises:
            StoppedError: It cannot start; the message says what it said last.
        """
        if self._awake:
            return
        try:
            self._answer(_START_S)
        except WorkerLost as lost:
            raise StoppedError(f"a worker cannot start: {self._words or lost.message}") from None
        self._awake = True

    def prepare(self, prepare: Prepare) -> None:
        """Tell an idle worker its problem."""
        self.wait_awake()
        self.ask(prepare)

    def ask(self, order: object) -> Any:
        """Give an order and return the answer.

        Raises:
            WorkerLost: The worker died, or was killed because it did not keep its time.
            KernelarcError: The instrument failed, not the candidate.
        """
        self.timing_wall_s = 0.0
        try:
            self._orders.send(order)
        except OSError:
            raise self._lost("start", "") from None
        answer = self._answer(_START_S)
        if isinstance(answer, Fault):
            raise _fault(answer)
        return answer

    def _answer(self, allowance_s: float) -> Any:
        """Wait for the answer; every beat sets the time for the next."""
        beat, since = Beat(stage="", allowance_s=allowance_s), time.monotonic()
        while True:
            if not self._answers.poll(beat.allowance_s):
                self.kill()
                raise WorkerLost(Status.TIMEOUT, TIMED_OUT, beat.stage, beat.contender)
            try:
                answer = self._answers.recv()
            except (EOFError, OSError):
                raise self._lost(beat.stage, beat.contender) from None
            except Exception:  # bytes that a damaged process wrote
                self.kill()
                raise WorkerLost(
                    Status.LAUNCH_ERROR, "worker damaged", beat.stage, beat.contender
                ) from None
            if not isinstance(answer, Beat):
                return answer
            if beat.stage == TIMING:
                self.timing_wall_s = time.monotonic() - since
            beat, since = answer, time.monotonic()

    def _lost(self, stage: str, contender: str) -> WorkerLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_CLOSE_S)
        code = self._process.poll()
        self.kill()
        failure = "worker exited"
        if code is not None and code < 0:
            failure = _DEATHS.get(signal.Signals(-code), f"ended by signal {-code}")
        return WorkerLost(Status.LAUNCH_ERROR, failure, stage, contender)

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """End the process and its whole group at once. Idempotent."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if not self._said.closed:
            self._words = self._last_words()
        for end in (self._orders, self._answers):
            end.close()
        self._said.close()


def _pipe() -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    reading, writing = os.pipe()
    return Connection(reading, writable=False), Connection(writing, readable=False)


def _fault(fault: Fault) -> KernelarcError:
    kinds = (InputError, StoppedError, MissingPartError)
    kind = next((k for k in kinds if k.exit_code == fault.exit_code), StoppedError)
    return kind(fault.message)


class Crew:
    """The worker that is at work and a spare one that is awake already.

    The spare makes the next candidate run within a second of a death. It is started only when
    ``refill`` is called: starting costs processor time, which nothing that is timed may lose.
    """

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._worker: WorkerProcess | None = None
        self._spare: WorkerProcess | None = None
        self._generation = 0
        self._carried_out = 0

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of all workers."""
        return tuple(w.pid for w in (self._worker, self._spare) if w is not None)

    @property
    def fresh(self) -> bool:
        """Whether the next order goes to a worker that has not run anything yet."""
        return self._worker is None or self._carried_out == 0

    @property
    def generation(self) -> int:
        """How many workers were put to work so far."""
        return self._generation

    def refill(self) -> None:
        """Start whoever is missing; returns before they are awake."""
        if self._worker is None:
            self._promote()
        if self._spare is None:
            self._spare = WorkerProcess()

    def settle(self) -> None:
        """Wait until everybody is awake and idle."""
        for worker in (self._worker, self._spare):
            if worker is not None:
                worker.wait_awake()

    def ask(self, order: object) -> Any:
        """Give an order to the worker at work.

        Raises:
            WorkerLost: It died of it, and is gone.
            KernelarcError: The instrument failed.
        """
        worker = self._promote()
        self._carried_out += 1
        try:
            return worker.ask(order)
        except WorkerLost:
            self.dismiss()
            raise

    def timing_wall_s(self) -> float:
        """Return the length of the last timing loop by this process's clock."""
        return self._worker.timing_wall_s if self._worker is not None else 0.0

    def _promote(self) -> WorkerProcess:
        if self._worker is None:
            worker, self._spare = self._spare or WorkerProcess(), None
            self._generation += 1
            prepare = self._prepare
            seed = (*prepare.seed, self._generation)
            try:
                worker.prepare(
                    Prepare(operator=prepare.operator, workloads=prepare.workloads, seed=seed)
                )
            except WorkerLost as lost:
                raise StoppedError(f"a worker ended while it started: {lost.message}") from None
            self._worker, self._carried_out = worker, 0
        return self._worker

    def dismiss(self) -> None:
        """End the worker at work; the next order goes to a fresh one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End everybody. Idempotent."""
        self.dismiss()
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()
