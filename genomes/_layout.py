"""A space's genes and constraints by position: assignments, legality, components."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._component import WIDE_GENE, Component
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError, NothingValidError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._order import Link
from kernelarc.genomes._rules import OFF, Rule


class Layout:
    """The positional form of a space. Assignments are lists over all positions.

    Raises:
        InputError: Names are doubled or unknown, or a condition is malformed.
    """

    def __init__(
        self, route: str, genes: Sequence[Gene], constraints: Sequence[Constraint]
    ) -> None:
        self.route, self.genes, self.constraints = route, tuple(genes), tuple(constraints)
        self.places = _places(route, self.genes)
        self.parents = tuple(self._parent(p) for p in range(len(self.genes)))
        self.whens = tuple(self._when(p) for p in range(len(self.genes)))
        self._check_constraints()
        conditional = [parent is not None for parent in self.parents]
        self.rules = tuple(Rule(c, self.places, conditional) for c in self.constraints)

    def _parent(self, position: int) -> int | None:
        gene = self.genes[position]
        if gene.when is None:
            return None
        parent = self.places.get(gene.when.gene)
        if parent is None:
            known = nearest(gene.when.gene, self.places)
            raise InputError(
                f"gene {gene.name!r} depends on the unknown gene {gene.when.gene!r}{known}"
            )
        if parent >= position:
            raise InputError(
                f"gene {gene.name!r} depends on {gene.when.gene!r}, which must stand before it"
            )
        return parent

    def _when(self, position: int) -> frozenset[int]:
        gene, parent = self.genes[position], self.parents[position]
        if gene.when is None or parent is None:
            return frozenset()
        other = self.genes[parent]
        if other.cardinality > WIDE_GENE:
            raise InputError(
                f"gene {gene.name!r} depends on {other.name!r}, which has {other.cardinality} "
                f"alleles; at most {WIDE_GENE} can be depended on"
            )
        for value in gene.when.values:
            if not other.contains(value):
                raise InputError(
                    f"gene {gene.name!r} depends on {other.name!r} = {value!r}, "
                    "which is no allele of it"
                )
        if not gene.when.values:
            raise InputError(f"gene {gene.name!r} depends on no allele of {other.name!r}")
        return frozenset(other.index(value) for value in gene.when.values)

    def _check_constraints(self) -> None:
        for constraint in self.constraints:
            for name in constraint.genes:
                if name not in self.places:
                    raise InputError(
                        f"constraint {constraint.text!r} names the unknown gene "
                        f"{name!r}{nearest(name, self.places)}"
                    )

    def assign(self, alleles: Mapping[str, Allele]) -> list[Any] | str:
        """Return the assignment with inactive genes off, or one line why there is none."""
        values: list[Any] = [OFF] * len(self.genes)
        places = [-1] * len(self.genes)
        for position, gene in enumerate(self.genes):
            parent = self.parents[position]
            if parent is not None and places[parent] not in self.whens[position]:
                continue
            if gene.name not in alleles:
                return f"gene {gene.name!r} is missing"
            place = gene.index(alleles[gene.name])
            if place < 0:
                return f"gene {gene.name!r} has no allele {alleles[gene.name]!r}"
            places[position], values[position] = place, gene.at(place)
        if any(name not in self.places for name in alleles):
            name = next(name for name in alleles if name not in self.places)
            return f"route {self.route!r} has no gene {name!r}{nearest(name, self.places)}"
        return values

    def broken(self, values: Sequence[Any]) -> str | None:
        """Say which constraint an assignment breaks, or return None."""
        fault: InputError | None = None
        for rule in self.rules:
            try:
                if not rule.holds(values):
                    return f"constraint {rule.text!r} does not hold"
            except InputError as error:
                fault = fault or error
        if fault is not None:
            raise fault
        return None

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every gene as the decision graph sees it."""
        children: list[list[int]] = [[] for _ in self.genes]
        for position, parent in enumerate(self.parents):
            if parent is not None:
                children[parent].append(position)
        return tuple(self._link(p, tuple(children[p])) for p in range(len(self.genes)))

    def _link(self, position: int, children: tuple[int, ...]) -> Link:
        gene = self.genes[position]
        classes: tuple[int, ...] = ()
        if children:
            patterns: dict[tuple[bool, ...], int] = {}
            rows = [tuple(i in self.whens[c] for c in children) for i in range(gene.cardinality)]
            rows.append((False,) * len(children))
            classes = tuple(patterns.setdefault(row, len(patterns)) for row in rows)
        return Link(
            cardinality=gene.cardinality,
            at=gene.at,
            parent=self.parents[position],
            when=self.whens[position],
            children=children,
            classes=classes,
        )

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Genes linked by constraints and conditions, independent of the other components."""
        root = list(range(len(self.genes)))

        def find(p: int) -> int:
            while root[p] != p:
                p = root[p]
            return p

        pairs = [(p, parent) for p, parent in enumerate(self.parents) if parent is not None]
        pairs += [pair for rule in self.rules for pair in itertools.pairwise(rule.positions)]
        for left, right in pairs:
            low, high = sorted((find(left), find(right)))
            root[high] = low
        groups: dict[int, list[int]] = {}
        for p in range(len(self.genes)):
            groups.setdefault(find(p), []).append(p)
        return tuple(
            Component(group, [r for r in self.rules if find(r.positions[0]) == low], self.links)
            for low, group in groups.items()
        )

    @cached_property
    def _exact_total(self) -> int | None:
        if any(component.unbuilt for component in self.components):
            return None
        return math.prod(component.total for component in self.components)

    def sample(self, rng: np.random.Generator) -> list[Any]:
        """Draw an assignment evenly over the legal ones."""
        values: list[Any] = [OFF] * len(self.genes)
        places = [-1] * len(self.genes)
        total = self._exact_total
        if total is not None and total > 0:
            rank = draw_below(total, rng)
            for component in self.components:
                rank, own = divmod(rank, component.total)
                component.write(own, places, values)
            return values
        for component in self.components:
            if not component.sample(rng, places, values):
                raise NothingValidError(f"route {self.route!r} has no legal genome")
        return values

    def enumerate(self) -> Iterator[list[Any]]:
        """Yield every legal assignment (one list, overwritten each time)."""
        values: list[Any] = [OFF] * len(self.genes)
        places = [-1] * len(self.genes)
        yield from self._rest(0, places, values)

    def _rest(self, first: int, places: list[int], values: list[Any]) -> Iterator[list[Any]]:
        if first == len(self.components):
            yield values
            return
        for _ in self.components[first].legal_ranks(places, values):
            yield from self._rest(first + 1, places, values)


def _places(route: str, genes: Sequence[Gene]) -> dict[str, int]:
    if not genes:
        raise InputError(f"route {route!r} has no genes; a space needs at least one")
    places: dict[str, int] = {}
    for position, gene in enumerate(genes):
        if not isinstance(gene.name, str) or not gene.name:
            raise InputError(f"route {route!r}: a gene's name must be a text, not {gene.name!r}")
        if places.setdefault(gene.name, position) != position:
            raise InputError(f"route {route!r} has two genes named {gene.name!r}")
    return places
