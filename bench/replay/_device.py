"""The ``replay`` device: a recorded search space answers instead of hardware."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kernelarc.bench._session import Device, Session
from kernelarc.bench.replay._recording import Recording, load_recording
from kernelarc.genomes import (
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    InputError,
    Measurement,
    Problem,
    Proposal,
    Space,
    Status,
    Workload,
)

# An answer costs nothing here: asking before the last one came would only know less.
WINDOW = 1


class ReplayDevice(Device):
    """Answers from a recording: the same genome always gives the same number.

    The file is read once and never written to. Proposers see domains and constraints through the
    session's spaces, never the table.

    Args:
        path: A Kernel Tuner cache, T4 results, or our own recording; plain or gzip.
        permute_seed: Exchange the recorded objectives among the working genomes at random: a
            search that does better than chance on such a table reads the answers.
        delay_s: Pause before each answer. Only for tests that stop a search in the middle.

    Raises:
        InputError: The file is no recording; one line says what it is.
    """

    name = "replay"
    deterministic = True

    def __init__(
        self, path: Path | str, *, permute_seed: int | None = None, delay_s: float = 0.0
    ) -> None:
        self.recording = load_recording(path)
        self._delay_s = delay_s
        self._environment = self.recording.environment
        if permute_seed is not None:
            self.recording.permute(np.random.default_rng(permute_seed))
            self._environment = Environment(
                identity={**self._environment.identity, "permuted": str(permute_seed)},
                observations=self._environment.observations,
            )

    @property
    def problem(self) -> Problem:
        """What the recording is of; the only problem that the device opens."""
        return self.recording.problem

    def environment(self) -> Environment:
        """Return the recorded device and the recording's hash."""
        return self._environment

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> ReplaySession:
        """Open a session; needs no lock, no worker and no folder."""
        wanted = {workload.fingerprint for workload in problem.workloads}
        if wanted != {self.recording.workload.fingerprint}:
            raise InputError(
                f"{self.recording.path}: records {self.recording.operator.name} "
                f"{self.recording.workload.label} and cannot answer for another problem"
            )
        return ReplaySession(self.recording, problem, self._environment, self._delay_s)


class ReplaySession(Session):
    """Hands recorded rows back in the order of submission, at once and without noise."""

    def __init__(
        self, recording: Recording, problem: Problem, environment: Environment, delay_s: float
    ) -> None:
        self.device = "replay"
        self.deterministic = True
        self.environment = environment
        self.problem = problem
        self.window = WINDOW
        self.lag = 0
        # A library that refused much when it was recorded is searched as it would be live.
        self.sifts = recording.refused > 0
        self._recording = recording
        self._delay_s = delay_s
        self._queue: deque[Candidate] = deque()

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the recorded routes' spaces."""
        return self._recording.spaces

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return what the recorded device knew to be worth trying first, where it has a row."""
        return tuple(s for s in self._recording.seeds if self._why_illegal(s.genome) is None)

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Say why genomes are illegal: by the space, or because no row was recorded."""
        return [self._why_illegal(genome) for genome in genomes]

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates; recorded rows are never censored, so ``limit`` changes nothing."""
        self._queue.extend(candidates)

    def collect(self) -> Iterator[Evaluation]:
        """Yield one evaluation per queued candidate, in order."""
        while self._queue:
            candidate = self._queue.popleft()
            if self._delay_s:
                time.sleep(self._delay_s)
            yield self._evaluate(candidate)

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Return the recorded objective in every round. There is no baseline to take part."""
        answers = [self._recording.answer(genome) for genome in genomes]
        row = tuple(math.nan if a is None else a.objective for a in answers)
        return Contest(
            names=tuple(genome.fingerprint for genome in genomes),
            samples=(row,) * rounds,
            failures={
                genome.fingerprint: "not recorded" if answer is None else str(answer.failure)
                for genome, answer in zip(genomes, answers, strict=True)
                if answer is None or answer.failure is not None
            },
            unit=self._recording.unit,
        )

    def baseline_name(self, workload: Workload) -> str | None:
        """Return None: a recording holds no baseline."""
        return None

    def observe(self) -> Mapping[str, str]:
        """Return nothing: a table has no clocks and no load."""
        return {}

    def close(self) -> None:
        """Forget what is queued."""
        self._queue.clear()

    def _why_illegal(self, genome: Genome) -> str | None:
        space = self._recording.spaces.get(genome.route)
        if space is None:
            return f"the recording has no route {genome.route!r}"
        why = space.violation(genome)
        if why is None and self._recording.answer(genome) is None:
            return "the recording has no row for it"
        return why

    def _evaluate(self, candidate: Candidate) -> Evaluation:
        answer = self._recording.answer(candidate.genome)
        if answer is None:
            return Evaluation(
                candidate=candidate,
                status=Status.REJECTED,
                failure="not recorded",
                message="the recording has no row for this genome",
            )
        measurement = None
        if answer.status is Status.OK:
            measurement = Measurement(
                samples=answer.samples or (answer.objective,),
                objective=answer.objective,
                unit=self._recording.unit,
                cache="recorded",
            )
        return Evaluation(
            candidate=candidate,
            status=answer.status,
            measurement=measurement,
            failure=answer.failure,
            message=answer.message,
            cost_s=answer.cost_s,
            properties=answer.properties,
        )
