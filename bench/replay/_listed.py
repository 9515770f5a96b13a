"""A space whose legal genomes are exactly those that a recording has a row for.

Constraints that say so would be as wide as the space, which is the one kind that a decision graph
cannot hold; the list itself counts, draws and repairs at once. It holds no times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.replay._answers import Answers
from kernelarc.genomes import (
    Allele,
    Constraint,
    Gene,
    Genome,
    IllegalGenomeError,
    NothingValidError,
    PredicateConstraint,
    Space,
    SpaceSize,
    Strategy,
)

_NO_ROW = "the recording has a row for it"
_Rows = NDArray[np.int32]


class ListedSpace(Space):
    """The recorded genomes of one route that its constraints allow.

    Args:
        route: The route's name.
        genes: As in Space.
        constraints: What the recording says beside its rows.
        answers: Whose genomes are legal.
    """

    def __init__(
        self,
        route: str,
        genes: Sequence[Gene],
        constraints: Sequence[Constraint],
        answers: Answers,
        rows: _Rows | None = None,
    ) -> None:
        self._given = tuple(constraints)
        self._answers = answers
        super().__init__(route, genes, (*constraints, *_has_row(genes, answers)))
        self._rows = self._legal() if rows is None else rows
        self._alleles = [
            {gene.index(allele): allele for allele in answers.alleles(place)}
            for place, gene in enumerate(self.genes)
        ]

    # Legality

    def violation(self, alleles: Mapping[str, Allele]) -> str | None:
        why = super().violation(alleles)
        if why is None and super().genome(alleles) not in self._answers:
            return f"constraint {_NO_ROW!r} does not hold"
        return why

    def genome(self, alleles: Mapping[str, Allele]) -> Genome:
        found = super().genome(alleles)
        if found not in self._answers:
            raise IllegalGenomeError(f"constraint {_NO_ROW!r} does not hold")
        return found

    def legal(self, alleles: Mapping[str, Allele]) -> Genome | None:
        found = super().legal(alleles)
        return found if found is not None and found in self._answers else None

    def contains(self, genome: Genome) -> bool:
        return super().contains(genome) and genome in self._answers

    # Counting and drawing

    def size(self) -> SpaceSize:
        raw = math.prod(gene.cardinality for gene in self.genes)
        return SpaceSize(raw=raw, legal=len(self._rows), exact=True)

    @property
    def even(self) -> bool:
        return True

    def sample(self, rng: np.random.Generator) -> Genome:
        if not len(self._rows):
            raise NothingValidError(
                f"route {self.route!r} has no legal genome: no row of the recording satisfies "
                f"its constraints"
            )
        return self._at(int(rng.integers(len(self._rows))))

    def guessed(self, rng: np.random.Generator, n: int) -> Genome:
        drawn = [self.sample(rng) for _ in range(n)]
        return drawn[0] if self.hint is None else min(drawn, key=self.hint)

    def enumerate(self) -> Iterator[Genome]:
        return map(self._at, range(len(self._rows)))

    # Steps

    def neighbours(self, genome: Genome) -> list[Genome]:
        return [step for step in super().neighbours(genome) if step in self._answers]

    def repair(self, alleles: Mapping[str, Allele], rng: np.random.Generator) -> Genome | None:
        if not len(self._rows):
            return None
        wanted = [
            gene.index(alleles[gene.name]) if gene.name in alleles else -2 for gene in self.genes
        ]
        asked = [place for place, index in enumerate(wanted) if index != -2]
        differ = self._rows[:, asked] != np.array([wanted[p] for p in asked], dtype=np.int32)
        # A gene that is switched off in a row does not count against it.
        changed = (differ & (self._rows[:, asked] >= 0)).sum(axis=1)
        nearest = np.flatnonzero(changed == changed.min())
        return self._at(int(nearest[rng.integers(len(nearest))]))

    # Parts of it

    def pin(self, pins: Mapping[str, Allele]) -> Space:
        genes = super().pin(pins).genes
        kept = np.ones(len(self._rows), dtype=bool)
        for place, gene in enumerate(self.genes):
            if gene.name in pins:
                column = self._rows[:, place]
                kept &= (column == gene.index(pins[gene.name])) | (column < 0)
        rows = self._rows[kept].copy()
        for place, gene in enumerate(genes):
            if gene.name in pins:
                rows[:, place] = np.minimum(rows[:, place], 0)  # one allele is left: the first
        return self._part(genes, rows)

    def relabelled(self, strategies: Mapping[str, Strategy]) -> Space:
        genes = super().relabelled(strategies).genes
        return self._part(genes, self._rows)

    def _part(self, genes: Sequence[Gene], rows: NDArray[np.int32]) -> Space:
        part = ListedSpace(self.route, genes, self._given, self._answers, rows)
        part.hint = self.hint
        return part

    def __reduce__(self) -> tuple[type[Space], tuple[object, ...]]:
        return ListedSpace, (self.route, self.genes, self._given, self._answers, self._rows)

    def _at(self, row: int) -> Genome:
        places = zip(self.names, self._alleles, self._rows[row].tolist(), strict=True)
        return Genome(self.route, {name: known[i] for name, known, i in places if i >= 0})

    def _legal(self) -> _Rows:
        """Return the allele indices of every recorded genome that the constraints allow."""
        rows = self._answers.indices(self.genes)
        if not self._given:
            return rows
        kept = [
            all(c.holds(alleles) for c in self._given if alleles.keys() >= set(c.genes))
            for alleles in self._answers.genomes()
        ]
        return np.compress(kept, rows, axis=0)


def _has_row(genes: Sequence[Gene], answers: Answers) -> tuple[Constraint, ...]:
    """Return the constraint for steps along one gene; it cannot name what may be switched off."""
    if any(gene.when is not None for gene in genes):
        return ()
    names = tuple(gene.name for gene in genes)

    def has_row(*alleles: Allele) -> bool:
        return dict(zip(names, alleles, strict=True)) in answers

    return (PredicateConstraint(has_row, genes=names, text=_NO_ROW),)
