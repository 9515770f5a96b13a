"""A device worker in virtual time: the engine's clock is its processor's, the device's is reckoned.

On a machine where other programs run, how long a device waits says more about them than about the
engine. Here the time between two messages is what the engine's process spent on its processor, and
what the device takes is added up, not slept: the same share on an idle machine and on a busy one,
but for what the processor's caches and clocks do. Waiting for a disk is not counted.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from kernelarc.bench.cuda import CudaSession
from kernelarc.bench.cuda._process import WorkerProcess
from kernelarc.bench.cuda._protocol import Channel, Request
from kernelarc.bench.experiments._paced_bench import HurriedBench


class VirtualWorker(Channel, WorkerProcess):
    """Both ends at once: what is sent is served in order, between two candidates.

    Attributes:
        marks: When (virtual seconds) the device was asked for its idle time, and the answers.
    """

    def __init__(self) -> None:
        self.channel = self
        self.marks: list[tuple[float, float]] = []
        self._bench = HurriedBench(0)
        self._queue: deque[tuple[tuple[Any, ...], float]] = deque()
        self._answers: deque[tuple[float, Any]] = deque()
        self._free_s = self._idle_s = 0.0
        self._skipped_s = -time.process_time()

    def now_s(self) -> float:
        """Return the time: seconds of the processor, and what was waited for."""
        return time.process_time() + self._skipped_s

    def ask(self, verb: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Send a request and take its answer."""
        self.send(Request(verb=verb, arguments=arguments))
        return self.receive(timeout_s)

    def send(self, message: object, patient: Any = None) -> None:
        """Queue candidates; serve a question after all that begin before it is asked."""
        del patient
        assert isinstance(message, Request)
        asked_s = self.now_s()
        if message.verb == "evaluate":
            self._queue += [(item, asked_s) for item in message.arguments["items"]]
            return
        while self._queue and max(self._free_s, self._queue[0][1]) < asked_s:
            self._evaluate()
        self._begin(asked_s)
        if message.verb == "idle":
            answer: Any = self._idle_s
            self.marks.append((self._free_s, answer))
            self._idle_s = 0.0
        else:
            answer = self._served(message.verb, **message.arguments)
        self._answers.append((self._free_s, answer))

    def receive(self, timeout_s: float | None = None) -> Any:
        """Skip to where the next answer is ready, and take it."""
        if not self._answers:
            self._evaluate()
        ready_s, answer = self._answers.popleft()
        self._skipped_s += max(0.0, ready_s - self.now_s())
        return answer

    def _evaluate(self) -> None:
        item, sent_s = self._queue.popleft()
        self._begin(sent_s)
        outcome = self._served("evaluate", *item)
        self._answers.append((self._free_s, outcome))

    def _begin(self, at_s: float) -> None:
        self._idle_s += max(0.0, at_s - self._free_s)
        self._free_s = max(self._free_s, at_s)

    def _served(self, verb: str, *arguments: Any, **named: Any) -> Any:
        """Have the bench answer; its arithmetic costs no virtual time, what it stands for does."""
        begun, self._bench.taken_s = time.process_time(), 0.0
        answer = getattr(self._bench, verb)(*arguments, **named)
        self._skipped_s -= time.process_time() - begun
        self._free_s += self._bench.taken_s
        return answer

    def last_words(self) -> str:
        """Return nothing: it does not die."""
        return ""

    def kill(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class VirtualSession(CudaSession):
    """The session of ``cuda:N`` over a worker in virtual time."""

    def _started(self) -> WorkerProcess:
        self.virtual = VirtualWorker()
        self.virtual.ask("open", timeout_s=0.0, tasks=tuple(self._tasks), seed=self._seed)
        return self.virtual
