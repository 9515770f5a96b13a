"""Space: all legal genomes of a route, without listing them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes._alleles import Allele, same_allele
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._errors import IllegalGenomeError, InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Choice, IntegerRange, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._records import GeneChange
from kernelarc.genomes._rules import OFF
from kernelarc.genomes._strategies import Strategy


@dataclass(frozen=True, slots=True)
class SpaceSize:
    """How many genomes a space holds.

    Attributes:
        raw: Product of all domains, ignoring constraints and conditions.
        legal: Legal genomes; an upper bound when not exact.
        exact: Whether ``legal`` is the exact number.
    """

    raw: int
    legal: int
    exact: bool


class Space:
    """The legal genomes of one route: genes, their conditions, and constraints over them.

    Making a space checks names and text but enumerates nothing; counting and sampling build a
    decision graph when first asked and keep it.

    Args:
        route: The route's name.
        genes: At least one, names all different, each after the gene its condition names.
        constraints: Over these genes. A constraint that names a switched-off gene holds.

    Raises:
        InputError: A name is doubled or unknown, a condition names an allele that is not there.
    """

    def __init__(
        self, route: str, genes: Sequence[Gene], constraints: Sequence[Constraint] = ()
    ) -> None:
        self.route = route
        self.genes = tuple(genes)
        self.constraints = tuple(constraints)
        self.names = tuple(gene.name for gene in self.genes)
        self._layout = Layout(route, self.genes, self.constraints)

    def __repr__(self) -> str:
        return (
            f"Space({self.route!r}, {len(self.genes)} genes, {len(self.constraints)} constraints)"
        )

    def gene(self, name: str) -> Gene:
        """Return a gene by name.

        Raises:
            InputError: There is none; the message says the nearest name.
        """
        place = self._layout.places.get(name)
        if place is None:
            raise InputError(
                f"route {self.route!r} has no gene {name!r}{nearest(name, self.names)}"
            )
        return self.genes[place]

    def owned(self, strategy: Strategy) -> tuple[str, ...]:
        """Return the names of the genes that a strategy owns."""
        return tuple(gene.name for gene in self.genes if gene.strategy is strategy)

    # Legality

    def violation(self, alleles: Mapping[str, Allele]) -> str | None:
        """Say in one line why alleles are illegal, or return None. Inactive genes are ignored."""
        found = self._layout.assign(alleles)
        return found if isinstance(found, str) else self._layout.broken(found)

    def genome(self, alleles: Mapping[str, Allele]) -> Genome:
        """Make a genome; alleles of inactive genes are dropped.

        Raises:
            IllegalGenomeError: The alleles are illegal; the message says why.
        """
        found = self._layout.assign(alleles)
        why = found if isinstance(found, str) else self._layout.broken(found)
        if why is not None:
            raise IllegalGenomeError(why)
        return self._genome(found)

    def contains(self, genome: Genome) -> bool:
        """Tell whether a genome is a legal one of this route, without switched-off genes."""
        if genome.route != self.route or self.violation(genome) is not None:
            return False
        found = self._layout.assign(genome)
        return sum(value is not OFF for value in found) == len(genome)

    def _genome(self, values: Sequence[Any]) -> Genome:
        return Genome(
            self.route,
            {n: v for n, v in zip(self.names, values, strict=True) if v is not OFF},
        )

    # Counting and drawing

    def size(self) -> SpaceSize:
        """Count the legal genomes, or bound their number from above."""
        components = self._layout.components
        return SpaceSize(
            raw=math.prod(gene.cardinality for gene in self.genes),
            legal=math.prod(component.total for component in components),
            exact=not any(component.unbuilt for component in components),
        )

    def sample(self, rng: np.random.Generator) -> Genome:
        """Draw one genome evenly over the legal ones.

        Raises:
            NothingValidError: There is none; the message says why.
        """
        return self._genome(self._layout.sample(rng))

    def enumerate(self) -> Iterator[Genome]:
        """Yield every legal genome once, in a fixed order, holding none of them."""
        for values in self._layout.enumerate():
            yield self._genome(values)

    # Steps

    def neighbours(self, genome: Genome) -> list[Genome]:
        """Return all legal one-gene steps."""
        alleles = genome.alleles()
        found = []
        for name, value in alleles.items():
            for other in self.gene(name).neighbours(value):
                changed = {**alleles, name: other}
                if self.violation(changed) is None:
                    found.append(self.genome(changed))
        return found

    def repair(self, alleles: Mapping[str, Allele], rng: np.random.Generator) -> Genome | None:
        """Return the nearest legal genome found, or None."""
        wanted = {n: alleles.get(n) for n in self.names}
        if self.violation({n: v for n, v in wanted.items() if v is not None}) is None:
            return self.genome({n: v for n, v in wanted.items() if v is not None})
        draws = [self.sample(rng) for _ in range(30)]
        return max(draws, key=lambda g: sum(wanted[n] == v for n, v in g.items()))

    def pin(self, pins: Mapping[str, Allele]) -> Space:
        """Return the part of this space in which genes are held at one allele each.

        Raises:
            InputError: A gene or allele is unknown.
        """
        for name, value in pins.items():
            if not self.gene(name).contains(value):
                raise InputError(f"gene {name!r} has no allele {value!r} to be pinned at")
        genes = [
            _pinned(gene, pins[gene.name]) if gene.name in pins else gene for gene in self.genes
        ]
        return Space(self.route, genes, self.constraints)

    def relabelled(self, strategies: Mapping[str, Strategy]) -> Space:
        """Return the same space with other strategies on some genes."""
        genes = [
            replace(gene, strategy=strategies.get(gene.name, gene.strategy)) for gene in self.genes
        ]
        return Space(self.route, genes, self.constraints)

    def diff(self, before: Genome, after: Genome) -> tuple[GeneChange, ...]:
        """Return the genes in which two genomes differ, in the space's order."""
        changes = []
        for name in self.names:
            old, new = before.get(name), after.get(name)
            if old is None and new is None:
                continue
            if old is None or new is None or not same_allele(old, new):
                changes.append(GeneChange(gene=name, before=old, after=new))
        return tuple(changes)

    # Encoding

    @cached_property
    def width(self) -> int:
        """How many numbers ``encode`` returns."""
        return sum(gene.width for gene in self.genes)

    def encode(self, genome: Genome) -> NDArray[np.float64]:
        """Encode for a model: shape (width,), genes in order, inactive ones -1."""
        numbers: list[float] = []
        for gene in self.genes:
            if gene.name in genome:
                numbers += gene.encode(genome[gene.name])
            else:
                numbers += [-1.0] * gene.width
        return np.array(numbers, dtype=np.float64)


def _pinned(gene: Gene, value: Allele) -> Gene:
    if isinstance(gene, PowerOfTwo | IntegerRange) and isinstance(value, int):
        return replace(gene, low=value, high=value)
    return Choice(
        name=gene.name,
        strategy=gene.strategy,
        when=gene.when,
        description=gene.description,
        options=(value,),
    )
