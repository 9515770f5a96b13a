"""A deterministic device whose answers follow a formula: generated spaces of any size.

What a recording cannot give: spaces of 10^7 legal genomes or 10^12 raw combinations, with a known
optimum, and a device that costs next to nothing, so that what is timed is the engine.
"""

from __future__ import annotations

import itertools
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


class FormulaSession(Session):
    """Answers at once, in the order of asking."""

    def __init__(self, device: FormulaDevice, problem: Problem) -> None:
        self.device = device.name
        self.deterministic = True
        self.environment = device.environment()
        self.problem = problem
        self.window = 8
        self.lag = 0
        self._device = device
        self._queue: list[Candidate] = []

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        return {self._device.space.route: self._device.space}

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        return ()

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        return [self._device.space.violation(genome) for genome in genomes]

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        self._queue.extend(candidates)

    def collect(self) -> Iterator[Evaluation]:
        while self._queue:
            yield self._evaluation(self._queue.pop(0))

    def _evaluation(self, candidate: Candidate) -> Evaluation:
        objective = self._device.formula(candidate.genome)
        return Evaluation(
            candidate=candidate,
            status=Status.OK,
            measurement=Measurement(
                samples=(objective,) * self._device.samples, objective=objective, cache="recorded"
            ),
            cost_s=0.001,
        )

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        row = tuple(self._device.formula(genome) for genome in genomes)
        return Contest(names=tuple(g.fingerprint for g in genomes), samples=(row,) * rounds)

    def baseline_name(self, workload: Workload) -> str | None:
        return None

    def observe(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        self._queue.clear()


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
