"""Legality by row: the constraints that say "this genome was recorded", and nothing of its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelarc.bench.replay._answers import Answers
from kernelarc.genomes import Allele, Constraint, Gene, PredicateConstraint

# Prefixes make a space's counting prune early; beyond this they cost more memory than they save.
_PREFIX_LIMIT = 150_000


def recorded_only(genes: Sequence[Gene], answers: Answers) -> tuple[Constraint, ...]:
    """Return constraints that hold together exactly for recorded assignments.

    Each says of the first few free genes that some recorded genome begins so; the last speaks of
    all of them. Genes that can be switched off are not constrained here.
    """
    names = tuple(gene.name for gene in genes if gene.cardinality > 1 and gene.when is None)
    if not names:
        names = tuple(gene.name for gene in genes if gene.when is None)
    recorded = [tuple(alleles.get(name) for name in names) for alleles in answers.genomes()]
    fine = len(recorded) * len(names) <= _PREFIX_LIMIT
    lengths = range(1, len(names) + 1) if fine else (len(names),)
    return tuple(
        PredicateConstraint(
            _begins({row[:length] for row in recorded}),
            genes=names[:length],
            text="the recording has a row for it",
        )
        for length in lengths
    )


def _begins(known: set[tuple[Allele | None, ...]]) -> Callable[..., bool]:
    def holds(*alleles: Allele) -> bool:
        return alleles in known

    return holds
