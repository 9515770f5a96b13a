"""A space's genes, conditions and constraints by position, and how they hang together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

from kernelarc.genomes._component import WIDE_GENE, Component
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._domain import Domain
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice, IntegerRange, PowerOfTwo
from kernelarc.genomes._order import Link
from kernelarc.genomes._rules import Rule


class Layout:
    """The positional form of a space. Domains, links and components are made when first asked.

    Attributes:
        places: Position by gene name.
        parents: Per position, the position its condition names, or None.
        whens: Per position, the parent's allele indices that switch it on.
        rules: The constraints over positions.

    Raises:
        InputError: Names are doubled or unknown, or a condition is malformed.
    """

    def __init__(
        self, route: str, genes: Sequence[Gene], constraints: Sequence[Constraint]
    ) -> None:
        self.route, self.genes = route, tuple(genes)
        self.places = _places(route, self.genes)
        self.parents = tuple(self._parent(gene, p) for p, gene in enumerate(self.genes))
        self.whens = tuple(self._when(gene) for gene in self.genes)
        for constraint in constraints:
            self._check(constraint)
        conditional = [parent is not None for parent in self.parents]
        self.rules = tuple(Rule(c, self.places, conditional) for c in constraints)

    def _parent(self, gene: Gene, position: int) -> int | None:
        if gene.when is None:
            return None
        name = gene.when.gene
        if name not in self.places:
            known = nearest(name, self.places)
            raise InputError(f"gene {gene.name!r} depends on the unknown gene {name!r}{known}")
        if self.places[name] >= position:
            raise InputError(f"gene {gene.name!r} depends on {name!r}, which must stand before it")
        return self.places[name]

    def _when(self, gene: Gene) -> frozenset[int]:
        if gene.when is None:
            return frozenset()
        parent = self.genes[self.places[gene.when.gene]]
        if parent.cardinality > WIDE_GENE:
            raise InputError(
                f"gene {gene.name!r} depends on {parent.name!r}, which has {parent.cardinality} "
                f"alleles; at most {WIDE_GENE} can be depended on"
            )
        if not gene.when.values:
            raise InputError(f"gene {gene.name!r} depends on no allele of {parent.name!r}")
        for value in gene.when.values:
            # A parent with one allele may have been pinned: what hangs on another allele sleeps.
            if not parent.contains(value) and parent.cardinality > 1:
                raise InputError(
                    f"gene {gene.name!r} depends on {parent.name!r} = {value!r}, "
                    "which is no allele of it"
                )
        return frozenset(parent.index(value) for value in gene.when.values) - {-1}

    def _check(self, constraint: Constraint) -> None:
        for name in constraint.genes:
            if name not in self.places:
                raise InputError(
                    f"constraint {constraint.text!r} names the unknown gene "
                    f"{name!r}{nearest(name, self.places)}"
                )

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """Every gene's domain."""
        return tuple(Domain(gene) for gene in self.genes)

    @cached_property
    def by_name(self) -> tuple[int, ...]:
        """Positions in the order of their genes' names: that of a canonical text."""
        return tuple(sorted(range(len(self.genes)), key=lambda p: self.genes[p].name))

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Per position, the genes whose condition names it."""
        found: list[list[int]] = [[] for _ in self.genes]
        for position, parent in enumerate(self.parents):
            if parent is not None:
                found[parent].append(position)
        return tuple(tuple(positions) for positions in found)

    @cached_property
    def rules_on(self) -> tuple[tuple[Rule, ...], ...]:
        """Per position, the rules that name the gene."""
        return tuple(
            tuple(rule for rule in self.rules if p in rule.positions)
            for p in range(len(self.genes))
        )

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every gene as the decision graph sees it."""
        return tuple(self._link(p) for p in range(len(self.genes)))

    def _link(self, position: int) -> Link:
        domain, children = self.domains[position], self.children[position]
        classes: tuple[int, ...] = ()
        if children:
            patterns: dict[tuple[bool, ...], int] = {}
            rows = [tuple(i in self.whens[c] for c in children) for i in range(domain.cardinality)]
            rows.append((False,) * len(children))
            classes = tuple(patterns.setdefault(row, len(patterns)) for row in rows)
        return Link(
            cardinality=domain.cardinality,
            at=domain.at,
            parent=self.parents[position],
            when=self.whens[position],
            children=children,
            classes=classes,
            whole=_is_whole(self.genes[position]),
            fair=self.genes[position].fair,
            usual=_usual(self.genes[position]),
        )

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Genes linked by constraints and conditions, independent of the other components."""
        pairs = [(p, parent) for p, parent in enumerate(self.parents) if parent is not None]
        for rule in self.rules:
            pairs += itertools.pairwise(rule.positions)
        groups = _grouped(len(self.genes), pairs)
        return tuple(
            Component(group, [r for r in self.rules if r.positions[0] in group], self.links)
            for group in groups
        )

    @cached_property
    def component_of(self) -> tuple[int, ...]:
        """Per position, the index of its component."""
        found = [0] * len(self.genes)
        for index, component in enumerate(self.components):
            for position in component.positions:
                found[position] = index
        return tuple(found)


def _usual(gene: Gene) -> int:
    return 0 if gene.usual is None else max(gene.index(gene.usual), 0)


def _is_whole(gene: Gene) -> bool:
    if isinstance(gene, IntegerRange | PowerOfTwo | Boolean):
        return True
    return isinstance(gene, Choice) and all(isinstance(value, int) for value in gene.options)


def _grouped(count: int, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the connected groups of ``count`` positions, each ascending."""
    root = list(range(count))

    def find(p: int) -> int:
        while root[p] != p:
            p = root[p]
        return p

    for left, right in pairs:
        low, high = sorted((find(left), find(right)))
        root[high] = low
    groups: dict[int, list[int]] = {}
    for p in range(count):
        groups.setdefault(find(p), []).append(p)
    return list(groups.values())


def _places(route: str, genes: Sequence[Gene]) -> dict[str, int]:
    if not genes:
        raise InputError(f"route {route!r} has no genes; a space needs at least one")
    places: dict[str, int] = {}
    for position, gene in enumerate(genes):
        if not isinstance(gene.name, str) or not gene.name:
            raise InputError(f"route {route!r}: a gene's name must be a text, not {gene.name!r}")
        if places.setdefault(gene.name, position) != position:
            raise InputError(
                f"route {route!r} has two genes named {gene.name!r}; every name must be different"
            )
    return places
