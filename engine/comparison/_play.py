"""The accounting that all methods share: what costs an evaluation, and when the budget is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.comparison._table import Table


class SpentError(Exception):
    """The budget of unique evaluations is used, or every legal genome was tried."""


class Play:
    """One run of a method on a table: hands out answers and counts.

    A genome costs one evaluation the first time; asked again it is answered free. What is no
    legal genome is refused, free.

    Attributes:
        objectives: Of the unique evaluations, in order; NaN where one failed.
    """

    def __init__(self, table: Table, budget: int) -> None:
        self._answers = table.objectives
        self._most = min(budget, len(table.objectives))
        self._known: set[int] = set()
        self._row_of = {row.tobytes(): place for place, row in enumerate(_shown(table.rows))}
        self.objectives: list[float] = []

    def find(self, places: Sequence[int]) -> int | None:
        """Return the row of a genome given by the places of its alleles; None when illegal.

        What stands at a gene that others switch off must be 0.
        """
        return self._row_of.get(np.asarray(places, dtype=np.int32).tobytes())

    def known(self, row: int) -> bool:
        """Tell whether a row was evaluated."""
        return row in self._known

    def evaluate(self, row: int) -> float:
        """Return a row's objective, NaN when it failed.

        Raises:
            SpentError: It is new, and the budget is used.
        """
        if row not in self._known:
            if self.spent:
                raise SpentError
            self._known.add(row)
            self.objectives.append(float(self._answers[row]))
        return float(self._answers[row])

    @property
    def spent(self) -> bool:
        """Whether nothing new may be evaluated."""
        return len(self.objectives) >= self._most


def _shown(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return rows as peers without conditional genes see them: switched-off genes at place 0."""
    return np.maximum(rows, 0)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """How the best of one run fell.

    Attributes:
        evaluations: Unique evaluations in all.
        failed: Those among them that failed.
        steps: (evaluations so far, best objective) at every improvement.
    """

    evaluations: int
    failed: int
    steps: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, objectives: Iterable[float]) -> Trajectory:
        """Return the trajectory of objectives in the order of evaluation; NaN is a failure."""
        steps: list[tuple[int, float]] = []
        count = failed = 0
        for objective in objectives:
            count += 1
            if math.isnan(objective):
                failed += 1
            elif not steps or objective < steps[-1][1]:
                steps.append((count, objective))
        return cls(count, failed, tuple(steps))

    def curve(self, length: int, before: float) -> NDArray[np.float64]:
        """Return the best after 1, 2, ... evaluations, shape (length,).

        A run that ended early stays where it was.

        Args:
            length: Number of evaluations.
            before: What stands for the best before the first working genome.
        """
        best = np.full(length, before)
        for count, objective in self.steps:
            best[count - 1 :] = objective
        return best
