"""A constraint that was evaluated elsewhere: the tuples of alleles that may stand together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernelarc.genomes._alleles import Allele, allele_key


class TabledConstraint:
    """Which alleles of some genes may stand together, as a table.

    Args:
        genes: The genes, in the order of the tuples.
        allowed: The tuples that are allowed.
        text: How people read it.
    """

    __slots__ = ("_allowed", "_rows", "genes", "text")

    def __init__(
        self, genes: Sequence[str], allowed: Collection[Sequence[Allele]], text: str
    ) -> None:
        self.genes, self.text = tuple(genes), text
        self._rows = tuple(tuple(row) for row in allowed)
        self._allowed = frozenset(allele_key(row) for row in self._rows)

    def holds(self, alleles: Mapping[str, Allele]) -> bool:
        """Tell whether the alleles stand in the table."""
        return allele_key(tuple(alleles[gene] for gene in self.genes)) in self._allowed

    def __reduce__(self) -> tuple[type[TabledConstraint], tuple[object, ...]]:
        return TabledConstraint, (self.genes, self._rows, self.text)

    def __repr__(self) -> str:
        return f"TabledConstraint({self.text!r})"
