"""Space: all legal genomes of a route, without listing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes._admission import admitted_constraints, admitted_genes
from kernelarc.genomes._alleles import Allele, same_allele
from kernelarc.genomes._assignment import Assignment, Assignments
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._draw import demand_generator
from kernelarc.genomes._errors import IllegalGenomeError, InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Choice, IntegerRange, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._hints import Hint
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._neighbours import steps
from kernelarc.genomes._records import GeneChange
from kernelarc.genomes._repair import repaired
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
    decision graph when first asked and keep it. A gene whose whole domain depends on another gene
    gets all alleles that it can ever have, and an ``AllowedAlleles`` constraint.

    Args:
        route: The route's name.
        genes: At least one, names all different, each after the gene its condition names.
        constraints: Over these genes. A constraint that names a switched-off gene holds.
        hint: What the route guesses a genome to cost; it orders what is tried, nothing else.

    Raises:
        InputError: A gene or constraint is none, a name is doubled or unknown, a condition names
            an allele that is not there.
    """

    def __init__(
        self,
        route: str,
        genes: Sequence[Gene],
        constraints: Sequence[Constraint] = (),
        *,
        hint: Hint | None = None,
    ) -> None:
        self.route = route
        self.hint = hint
        self.genes = admitted_genes(route, genes)
        self.names = tuple(gene.name for gene in self.genes)
        self.constraints = admitted_constraints(route, constraints)
        self._layout = Layout(route, self.genes, self.constraints)
        self._all = Assignments(self._layout)

    def __reduce__(self) -> tuple[Callable[..., Space], tuple[Any, ...]]:
        return _remade, (self.route, self.genes, self.constraints, self.hint)

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
        """Say in one line why alleles are illegal, or return None. Inactive genes are ignored.

        Raises:
            InputError: A constraint cannot be evaluated on alleles that all others allow.
        """
        found = self._all.read(alleles)
        return found if isinstance(found, str) else self._why(found)

    def genome(self, alleles: Mapping[str, Allele]) -> Genome:
        """Make a genome; alleles of inactive genes are dropped.

        Raises:
            IllegalGenomeError: The alleles are illegal; the message says why.
        """
        found = self._all.read(alleles)
        if isinstance(found, str):
            raise IllegalGenomeError(found)
        why = self._why(found)
        if why is not None:
            raise IllegalGenomeError(why)
        return self._all.genome(found)

    def legal(self, alleles: Mapping[str, Allele]) -> Genome | None:
        """Make a genome, or return None where the alleles are illegal: ``genome`` without words."""
        found = self._all.read(alleles)
        return None if isinstance(found, str) else self._all.legal(found)

    def contains(self, genome: Genome) -> bool:
        """Tell whether a genome is a legal one of this route, without switched-off genes."""
        if genome.route != self.route:
            return False
        found = self._all.read(genome)
        if isinstance(found, str) or self._all.broken(found) is not None:
            return False
        return self._all.genome(found) == genome

    def _why(self, found: Assignment) -> str | None:
        rule = self._all.broken(found)
        if rule is None:
            return None
        shown = ", ".join(f"{self.names[p]}={found.values[p]!r}" for p in rule.positions)
        return f"constraint {rule.text!r} does not hold at {shown}"

    # Counting and drawing

    def size(self) -> SpaceSize:
        """Count the legal genomes, or bound their number from above.

        Raises:
            InputError: A constraint cannot be evaluated on alleles that all others allow.
        """
        components = self._layout.components
        return SpaceSize(
            raw=math.prod(gene.cardinality for gene in self.genes),
            legal=math.prod(component.total for component in components),
            exact=not any(component.unbuilt for component in components),
        )

    @property
    def even(self) -> bool:
        """Whether ``sample`` is even. False only where next to no draw satisfies the constraints.

        That takes constraints too wide for the decision graph that exclude all but one in some
        hundred genomes that the others allow; ``sample`` then searches, and prefers some genomes.
        Also false where a gene is ``fair``: its alleles are equally likely, not the genomes.
        """
        return not any(part.fair or part.hopeless for part in self._layout.components)

    def sample(self, rng: np.random.Generator) -> Genome:
        """Draw one genome, evenly over the legal ones (see ``even``).

        Raises:
            NothingValidError: There is none; the message names the constraints to blame.
            InputError: ``rng`` is no Generator, or a constraint cannot be evaluated on alleles that
                all others allow.
        """
        demand_generator(rng)
        return self._all.genome(self._all.sample(rng))

    def guessed(self, rng: np.random.Generator, n: int) -> Genome:
        """Draw ``n`` genomes as ``sample`` does; return the one that the hint likes most.

        The first without a hint. Only the one that is returned is made a genome of.

        Raises:
            NothingValidError: There is none; the message names the constraints to blame.
            InputError: ``rng`` is no Generator, or a constraint cannot be evaluated.
        """
        demand_generator(rng)
        drawn = [self._all.sample(rng) for _ in range(n)]
        if self.hint is None:
            return self._all.genome(drawn[0])
        names = [(self._layout.places[name], name) for name in self.hint.genes]
        guesses = [
            self.hint({name: one.values[p] for p, name in names if one.places[p] >= 0})
            for one in drawn
        ]
        return self._all.genome(drawn[guesses.index(min(guesses))])

    def enumerate(self) -> Iterator[Genome]:
        """Yield every legal genome once, in a fixed order, holding none of them."""
        for found in self._all.each():
            yield self._all.genome(found)

    # Steps

    def neighbours(self, genome: Genome) -> list[Genome]:
        """Return all legal one-gene steps, in the order of genes.

        Along an ordered gene a step goes to the nearest legal allele each way, else to every
        other legal allele (of a permutation: exchanges of neighbours). Genes that a step switches
        off are dropped; those it switches on take the usual or else the first legal ones.

        Raises:
            IllegalGenomeError: The genome itself is none of this space.
        """
        found = self._all.read(genome)
        if isinstance(found, str):
            raise IllegalGenomeError(found)
        return [self._all.genome(step) for step in steps(self._layout, found)]

    def repair(self, alleles: Mapping[str, Allele], rng: np.random.Generator) -> Genome | None:
        """Return the legal genome that differs in the fewest genes, or None.

        Missing genes and alleles outside their domains are allowed; unknown genes are ignored.
        Equally near ones are drawn by ``rng``. None means that a bounded search found nothing,
        which where ``size().exact`` happens only to alleles far from anything legal.

        Raises:
            InputError: ``rng`` is no Generator.
        """
        demand_generator(rng)
        found = repaired(self._layout, alleles, rng)
        return None if found is None else self._all.genome(found)

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
        return Space(self.route, genes, self.constraints, hint=self.hint)

    def relabelled(self, strategies: Mapping[str, Strategy]) -> Space:
        """Return the same space with other strategies on some genes."""
        genes = [
            replace(gene, strategy=strategies.get(gene.name, gene.strategy)) for gene in self.genes
        ]
        return Space(self.route, genes, self.constraints, hint=self.hint)

    def diff(self, before: Genome, after: Genome) -> tuple[GeneChange, ...]:
        """Return the genes in which two genomes differ, in the space's order."""
        olds, news = before.alleles(), after.alleles()
        changes = []
        for name in self.names:
            old, new = olds.get(name), news.get(name)
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
        return np.array(self._all.encoding(genome), dtype=np.float64)


def _remade(
    route: str, genes: Sequence[Gene], constraints: Sequence[Constraint], hint: Hint | None
) -> Space:
    return Space(route, genes, constraints, hint=hint)


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
