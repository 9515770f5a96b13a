"""Genes as Optuna's distributions, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelarc.genomes import Allele, Gene, Permutation

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class Axis:
    """One gene in Optuna's words.

    Ordered genes become integers by place, unordered ones categories by place, and a permutation
    one integer per item: items are then sorted by it, ties by the domain's order.

    Attributes:
        gene: The gene.
        distributions: By parameter name; one, or one per item of a permutation.
    """

    def __init__(self, gene: Gene) -> None:
        from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415

        self.gene = gene
        self.distributions: dict[str, BaseDistribution]
        self._items = gene.items if isinstance(gene, Permutation) else ()
        if self._items:
            last = len(self._items) - 1
            self.distributions = {f"{gene.name}/{i}": IntDistribution(0, last) for i in self._items}
        elif gene.ordered:
            self.distributions = {gene.name: IntDistribution(0, gene.cardinality - 1)}
        else:
            places = list(range(gene.cardinality))
            self.distributions = {gene.name: CategoricalDistribution(places)}

    def parameters(self, allele: Allele) -> dict[str, int]:
        """Return the parameters that stand for an allele."""
        if self._items:
            assert isinstance(allele, tuple)
            return {f"{self.gene.name}/{item}": allele.index(item) for item in self._items}
        return {self.gene.name: self.gene.place(allele)}

    def allele(self, parameters: Mapping[str, Any]) -> Allele:
        """Return the allele that parameters stand for."""
        name = self.gene.name
        if self._items:
            return tuple(sorted(self._items, key=lambda item: int(parameters[f"{name}/{item}"])))
        return self.gene.at(int(parameters[name]))
