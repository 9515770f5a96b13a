"""Wins an island has been told of, and how they become proposals of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernelarc.genomes import Allele, Conclusion, ConclusionKind, Genome
from kernelarc.islands._credit import draw


@dataclass(frozen=True, slots=True)
class Win:
    """A win and when it came.

    Attributes:
        conclusion: What was concluded.
        since: How many outcomes the island had been told when it came.
    """

    conclusion: Conclusion
    since: int

    @property
    def weight(self) -> float:
        """Log speed-up, at least a little."""
        speedup = self.conclusion.speedup
        return max(math.log(speedup.value), 0.002) if speedup and speedup.value > 0 else 0.002

    def apply(self, genome: Genome) -> dict[str, Allele] | None:
        """Lay the win's gene changes over a genome; None where nothing would change."""
        alleles = genome.alleles()
        for change in self.conclusion.changes:
            if change.after is None:
                alleles.pop(change.gene, None)
            else:
                alleles[change.gene] = change.after
        return None if alleles == genome.alleles() else alleles


class Wins:
    """The newest standing wins, at most ``limit``."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._standing: dict[str, Win] = {}

    def receive(self, conclusion: Conclusion, told: int) -> None:
        """Take in a win or a retraction; other conclusions are not ours."""
        if conclusion.kind is ConclusionKind.RETRACTION:
            self._standing.pop(conclusion.retracts or "", None)
        elif conclusion.kind is ConclusionKind.WIN:
            self._standing[conclusion.fingerprint] = Win(conclusion, told)
            while len(self._standing) > self._limit:
                del self._standing[next(iter(self._standing))]

    def __len__(self) -> int:
        return len(self._standing)

    def draw(self, rng: np.random.Generator, *, newer_than: int | None = None) -> Win | None:
        """Draw one by its gain, if asked only among those that came after some outcome."""
        wins = {
            key: win
            for key, win in self._standing.items()
            if newer_than is None or win.since > newer_than
        }
        if not wins:
            return None
        return wins[draw(rng, list(wins), [win.weight for win in wins.values()])]

    def genomes(self) -> list[Genome]:
        """Return the winning genomes, newest first."""
        genomes = [win.conclusion.genome for win in self._standing.values()]
        return [genome for genome in reversed(genomes) if genome is not None]
