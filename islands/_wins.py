"""Wins an island has been told of, and how they become proposals of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernelarc.genomes import (
    Allele,
    Conclusion,
    ConclusionKind,
    ExpressionConstraint,
    Genome,
    InputError,
)
from kernelarc.islands._credit import draw

_CONFIRMED = 3.0  # weight of a win whose predicate covers the workload


@dataclass(frozen=True, slots=True)
class Win:
    """A win and whether it was confirmed for the island's workload.

    Attributes:
        conclusion: What was concluded.
        here: Whether its predicate says that it holds on this island's workload.
    """

    conclusion: Conclusion
    here: bool = False

    @property
    def weight(self) -> float:
        """Log speed-up, at least a little; more where other shapes confirmed it for this one."""
        speedup = self.conclusion.speedup
        gain = max(math.log(speedup.value), 0.002) if speedup and speedup.value > 0 else 0.002
        return gain * (_CONFIRMED if self.here else 1.0)

    def apply(self, genome: Genome) -> dict[str, Allele] | None:
        """Lay the win's gene changes over a genome; None where nothing would change."""
        alleles = genome.alleles()
        for change in self.conclusion.changes:
            if change.after is None:
                alleles.pop(change.gene, None)
            else:
                alleles[change.gene] = change.after
        return None if alleles == genome.alleles() else alleles


def holds_on(predicate: str | None, axes: Mapping[str, int]) -> bool:
    """Tell whether a shape predicate holds for axes; what names others does not."""
    if predicate is None:
        return False
    try:
        return ExpressionConstraint(predicate, tuple(axes)).holds(axes)
    except InputError:
        return False


class Wins:
    """The newest standing wins, at most ``limit``.

    Args:
        axes: Of the island's workload.
        limit: As above.
    """

    def __init__(self, axes: Mapping[str, int] | None = None, limit: int = 256) -> None:
        self._axes = axes or {}
        self._limit = limit
        self._standing: dict[str, Win] = {}

    def receive(self, conclusion: Conclusion) -> None:
        """Take in a win or a retraction; other conclusions are not ours."""
        if conclusion.kind is ConclusionKind.RETRACTION:
            self._standing.pop(conclusion.retracts or "", None)
        elif conclusion.kind is ConclusionKind.WIN:
            here = holds_on(conclusion.predicate, self._axes)
            self._standing[conclusion.fingerprint] = Win(conclusion, here)
            while len(self._standing) > self._limit:
                del self._standing[next(iter(self._standing))]

    def __len__(self) -> int:
        return len(self._standing)

    def draw(self, rng: np.random.Generator) -> Win | None:
        """Draw one by its gain; None where there is none."""
        wins = self._standing
        if not wins:
            return None
        return wins[draw(rng, list(wins), [win.weight for win in wins.values()])]

    def genomes(self) -> list[Genome]:
        """Return the winning genomes, newest first."""
        genomes = [win.conclusion.genome for win in self._standing.values()]
        return [genome for genome in reversed(genomes) if genome is not None]
