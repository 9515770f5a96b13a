"""A deterministic device whose answers follow a formula: generated spaces of any size.

What a recording cannot give: spaces of 10^7 legal genomes or 10^12 raw combinations, with a known
optimum, and a device that costs next to nothing, so that what is timed is the engine.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelarc.bench._session import Device, Session
from kernelarc.genomes import (
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    Measurement,
    Operator,
    PowerOfTwo,
    Problem,
    Proposal,
    Space,
    Status,
    Workload,
    assign_strategies,
)

Formula = Callable[[Genome], float]
"""From a genome to its objective in microseconds; positive."""


@dataclass(frozen=True, slots=True)
class FormulaDevice(Device):
    """Answers from a formula.

    Attributes:
        space: What is searched; its genes carry strategies.
        formula: The objective.
        samples: How many samples each answer holds, for stores of a realistic size.
    """

    space: Space
    formula: Formula
    samples: int = 1
    name: str = "formula"
    deterministic: bool = True

    def environment(self) -> Environment:
        """Return one fixed identity: the formula does not depend on the machine."""
        return Environment(identity={"device": "formula"})

    def problem(self) -> Problem:
        """Return the one problem that the formula stands for."""
        operator = Operator(name="formula", axes={}, inputs=(), outputs=())
        return Problem(operator=operator, workloads=(Workload(operator=operator.fingerprint),))

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> FormulaSession:
        """Open a session; there is nothing to lock or to build."""
        return FormulaSession(self, problem)


class AnsweringSession(Session):
    """Answers from one space at once, in the order of asking.

    Args:
        device: What the session was opened on.
        problem: Its only one.
        space: All that is answered for.
    """

    def __init__(self, device: Device, problem: Problem, space: Space) -> None:
        self.device, self.deterministic = device.name, True
        self.environment, self.problem = device.environment(), problem
        self.window, self.lag = 8, 0
        self.space = space
        self._queue: list[Candidate] = []

    @abstractmethod
    def answer(self, candidate: Candidate) -> Evaluation:
        """Return what is known of a candidate."""

    @abstractmethod
    def objective(self, genome: Genome) -> float:
        """Return a genome's objective in microseconds, NaN where it failed."""

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the one route's space."""
        return {self.space.route: self.space}

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return nothing: a search starts from what its islands draw."""
        return ()

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Ask the space."""
        return [self.space.violation(genome) for genome in genomes]

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates."""
        self._queue.extend(candidates)

    def collect(self) -> Iterator[Evaluation]:
        """Yield the answers in order."""
        while self._queue:
            yield self.answer(self._queue.pop(0))

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Return the known objectives in every round."""
        row = tuple(self.objective(genome) for genome in genomes)
        return Contest(names=tuple(g.fingerprint for g in genomes), samples=(row,) * rounds)

    def baseline_name(self, workload: Workload) -> str | None:
        """Return None: only searches are compared."""
        return None

    def observe(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def close(self) -> None:
        """Forget what was queued."""
        self._queue.clear()


class FormulaSession(AnsweringSession):
    """Answers from a formula."""

    def __init__(self, device: FormulaDevice, problem: Problem) -> None:
        super().__init__(device, problem, device.space)
        self._device = device

    def answer(self, candidate: Candidate) -> Evaluation:
        """Return the formula's value."""
        objective = self.objective(candidate.genome)
        return Evaluation(
            candidate=candidate,
            status=Status.OK,
            measurement=Measurement(
                samples=(objective,) * self._device.samples, objective=objective, cache="recorded"
            ),
            cost_s=0.001,
        )

    def objective(self, genome: Genome) -> float:
        """Return the formula's value."""
        return self._device.formula(genome)


def ridge(genes: int, alleles: int) -> tuple[Space, Formula]:
    """Return a space of ``alleles ** genes`` raw combinations and a formula with one optimum.

    Neighbouring genes interact, so that no gene can be tuned alone; the objective is 1 at the
    optimum, where every allele stands in the middle of its domain.
    """
    space = assign_strategies(
        Space(
            "formula",
            [PowerOfTwo(name=f"g{i}", low=1, high=1 << (alleles - 1)) for i in range(genes)],
        )
    )
    middle = alleles // 2

    def formula(genome: Genome) -> float:
        steps = [int(str(genome[f"g{i}"])).bit_length() - 1 - middle for i in range(genes)]
        apart = sum(abs(a - b) for a, b in itertools.pairwise(steps))
        return 1.0 + 0.2 * sum(map(abs, steps)) + 0.1 * apart

    return space, formula
