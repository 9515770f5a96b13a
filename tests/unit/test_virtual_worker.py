"""The stand-in for a device worker whose time is reckoned, not slept."""

from __future__ import annotations

import time

from kernelarc.bench.cuda._protocol import Outcome, Request, Task
from kernelarc.bench.experiments._virtual_worker import VirtualWorker
from kernelarc.genomes import MatmulJob, Tolerance

JOB = MatmulJob(m=2048, n=2560, k=2560, dtype="bfloat16", out_dtype="bfloat16", residual=True)


def opened() -> tuple[VirtualWorker, tuple[int, ...]]:
    """Return a worker with one problem, and a row that it takes."""
    worker = VirtualWorker()
    worker.ask("open", timeout_s=0.0, tasks=(Task(job=JOB, tolerance=Tolerance()),), seed=0)
    return worker, worker.ask("domain", timeout_s=0.0, workload=0).seeds[0][1]


def send(worker: VirtualWorker, row: tuple[int, ...], *numbers: int) -> None:
    items = [(0, number, row, None) for number in numbers]
    worker.send(Request(verb="evaluate", arguments={"items": items}))


def test_waiting_for_candidates_moves_the_clock_and_nobody_sleeps() -> None:
    worker, row = opened()
    worker.ask("idle", timeout_s=0.0)
    before, wall = worker.now_s(), time.process_time()
    send(worker, row, *range(200))
    found = [worker.receive() for _ in range(200)]
    assert [outcome.number for outcome in found] == list(range(200))
    assert worker.now_s() - before >= 200 * 0.002
    assert worker.now_s() - before > time.process_time() - wall
    assert worker.ask("idle", timeout_s=0.0) < 0.05 * (worker.now_s() - before)


def test_a_question_is_served_between_candidates() -> None:
    worker, row = opened()
    send(worker, row, 1, 2, 3)
    worker.send(Request(verb="observe"))
    answers = [worker.receive() for _ in range(4)]
    place = answers.index({})
    assert place < 3  # it did not wait for all of them
    assert [a.number for a in answers if isinstance(a, Outcome)] == [1, 2, 3]


def test_what_the_engine_computes_is_the_devices_idle_time() -> None:
    worker, row = opened()
    send(worker, row, 1)
    worker.receive()
    worker.ask("idle", timeout_s=0.0)
    begun = time.process_time()
    while time.process_time() - begun < 0.05:
        pass
    send(worker, row, 2)
    worker.receive()
    assert 0.05 <= worker.ask("idle", timeout_s=0.0) < 0.5
