"""A worker of the device ``cuda:N`` without a GPU: a fake library, and times from a formula."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tests.unit.lt_fake import FakeLt

from kernelarc.bench import DeviceLock
from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.bench.cuda._binding import numbering
from kernelarc.bench.cuda._library import Matmul, Side
from kernelarc.bench.cuda._offer import library_domain
from kernelarc.bench.cuda._process import LT_BENCH
from kernelarc.bench.cuda._protocol import ContestReply, Outcome, Request
from kernelarc.genomes import Environment, LtRow, MatmulJob, Problem, Status

IDENTITY = {"device": "Scripted GPU", "cublaslt": "990100", "driver": "1"}


def time_us(job: MatmulJob, row: LtRow) -> float:
    """Return a latency: the heuristic is good, and what beats it depends on the shape."""
    _, tile, splitk, scheme, _, custom, stages, _, cluster, _, aliased = row
    wide = job.m > 300
    penalty = 0.06 * (tile != (6 if wide else 5)) + 0.04 * (custom != (4 if wide else 0))
    penalty += 0.03 * (cluster != 7) + 0.1 * (stages != 9) + 0.02 * abs(splitk - 1)
    penalty += 0.01 * (scheme != 0) + (0.05 * (not aliased) if job.in_place else 0.0)
    return (4.0 + job.m / 100) * (1.0 + penalty)


class FormulaWorker:
    """Answers at once. Noise is drawn from a stream of its own, about 0.1 %."""

    def __init__(self, ordinal: int, bench: str = LT_BENCH, *, lt: FakeLt | None = None) -> None:
        assert bench == LT_BENCH
        self.ordinal, self.channel, self.pid = ordinal, self, 1
        self._lt = lt or FakeLt()
        self._tasks: Sequence[Any] = ()
        self._answers: deque[Any] = deque()
        self._rng = np.random.default_rng(1)

    def ask(self, verb: str, *, timeout_s: float, **arguments: Any) -> Any:
        self.send(Request(verb=verb, arguments=arguments))
        return self.receive(timeout_s)

    def send(self, request: Request) -> None:
        if request.verb == "evaluate":
            self._answers.extend(request.arguments["items"])
        else:
            self._answers.appendleft(getattr(self, request.verb)(**request.arguments))

    def receive(self, timeout_s: float | None = None) -> Any:
        del timeout_s
        answer = self._answers.popleft()
        is_item = type(answer) is tuple and len(answer) == 4
        return self._evaluated(*answer) if is_item else answer

    def _noisy(self, place: int, row: LtRow, count: int) -> tuple[float, ...]:
        exact = time_us(self._tasks[place].job, row)
        return tuple(float(v) for v in exact * (1 + 0.001 * self._rng.standard_normal(count)))

    def _evaluated(self, place: int, number: int, row: LtRow, limit: float | None) -> Outcome:
        algorithm = self._matmul(place).algorithm(row)
        if algorithm is None:
            return Outcome(number=number, status=Status.REJECTED, failure="illegal algorithm")
        return Outcome(
            number=number,
            status=Status.OK,
            samples=self._noisy(place, row, 6),
            launches=9,
            cost_s=0.005,
            properties={"max_error": 0.0, **algorithm.properties()},
        )

    def _matmul(self, place: int) -> Matmul:
        return Matmul(self._lt, 1, self._tasks[place].job, Side())

    def open(self, tasks: Sequence[Any], seed: int) -> None:
        self._tasks = tasks

    def environment(self) -> Environment:
        return Environment(identity=IDENTITY, observations={"cublaslt_path": "/lt.so"})

    def domain(self, workload: int) -> Any:
        rng = np.random.default_rng(workload)
        return library_domain(self._matmul(workload), numbering(self._lt), rng)

    def check(self, workload: int, rows: Any) -> Any:
        return self._matmul(workload).check(rows)

    def contest(self, workload: int, rows: Sequence[LtRow], rounds: int, **_: Any) -> ContestReply:
        columns = [self._noisy(workload, row, rounds) for row in rows]
        return ContestReply(samples=tuple(zip(*columns, strict=True)), failures={}, launches=3)

    def idle(self) -> float:
        return 0.0

    def observe(self) -> Mapping[str, str]:
        return {"clock_mhz": "1"}

    def last_words(self) -> str:
        return ""

    def kill(self) -> None:
        self._answers.clear()

    close = kill


class ScriptedDevice(CudaDevice):
    """The device itself, but for what it needs installed. Patch the worker beside it."""

    def __init__(self, name: str = "cuda:0", **_: Any) -> None:
        super().__init__(name)

    def environment(self) -> Environment:
        return FormulaWorker(0).environment()

    def open(self, problem: Problem, *, seed: int, **_: Any) -> CudaSession:
        lock = DeviceLock(self.name).acquire()
        try:
            return CudaSession(self.name, self.ordinal, problem, seed=seed, lock=lock)
        except BaseException:
            lock.release()
            raise
