"""What a genome promises before it is built: the order in which the compile pool works."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from kernelarc.genomes import Allele, Evaluation, Genome

_FAILED = math.log(16.0)  # a failure counts as so many times slower than the best so far
_PRIOR_WEIGHT = 2.0


class Outlook:
    """Mean log latency of every allele seen so far; what is unknown counts as average.

    Args:
        hint: What a route guesses a genome to cost, a positive number: all there is at first.
    """

    def __init__(self, hint: Callable[[Genome], float] | None = None) -> None:
        self._hint = hint
        self._sums: dict[tuple[str, str, Allele], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._total, self._count, self._best = 0.0, 0, math.inf

    def learn(self, evaluation: Evaluation) -> None:
        """Take in an outcome."""
        measured = evaluation.measurement
        if measured is not None:
            level = math.log(max(measured.objective, 1e-9))
            self._best = min(self._best, level)
        elif math.isfinite(self._best):
            level = self._best + _FAILED
        else:
            return
        self._total, self._count = self._total + level, self._count + 1
        genome = evaluation.candidate.genome
        for gene, allele in genome.items():
            held = self._sums[genome.route, gene, allele]
            held[0] += level
            held[1] += 1.0

    def value(self, genome: Genome) -> float:
        """Return the expected log latency, the least being the most promising."""
        if not self._count:
            return 0.0 if self._hint is None else math.log(self._hint(genome))
        mean = self._total / self._count
        expected = mean
        for gene, allele in genome.items():
            level, seen = self._sums.get((genome.route, gene, allele), (0.0, 0.0))
            expected += (level - seen * mean) / (seen + _PRIOR_WEIGHT)
        return expected
