"""Assignments: a genome's alleles by position, and the way there and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._causes import why_empty
from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError, NothingValidError, nearest
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._rules import OFF, Rule, broken_rule


class Assignment:
    """One allele index and one allele per position; -1 and ``OFF`` where a gene is inactive."""

    __slots__ = ("places", "values")

    def __init__(self, count: int) -> None:
        self.places = [-1] * count
        self.values: list[Any] = [OFF] * count

    def copy(self) -> Assignment:
        """Return an independent copy."""
        twin = Assignment.__new__(Assignment)
        twin.places, twin.values = self.places.copy(), self.values.copy()
        return twin


class Assignments:
    """Reads, draws and lists the assignments of one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._count = len(layout.genes)

    @cached_property
    def _readers(self) -> tuple[Any, ...]:
        layout = self.layout
        return tuple(
            (p, domain.name, domain.place, domain.at, layout.parents[p], layout.whens[p])
            for p, domain in enumerate(layout.domains)
        )

    def read(self, alleles: Mapping[str, Allele]) -> Assignment | str:
        """Return the assignment with inactive genes off, or one line why there is none."""
        if isinstance(alleles, Genome):
            alleles = alleles.alleles()
        found = Assignment(self._count)
        places, values = found.places, found.values
        for position, name, place_of, at, parent, when in self._readers:
            if parent is not None and places[parent] not in when:
                continue
            if name not in alleles:
                return f"gene {name!r} is missing"
            place = place_of(alleles[name])
            if place < 0:
                return f"gene {name!r} has no allele {alleles[name]!r}"
            places[position], values[position] = place, at(place)
        return self._unknown(alleles) or found

    def _unknown(self, alleles: Mapping[str, Allele]) -> str:
        known = self.layout.places
        for name in alleles:
            if name not in known:
                return f"route {self.layout.route!r} has no gene {name!r}{nearest(name, known)}"
        return ""

    def broken(self, found: Assignment) -> Rule | None:
        """Return a rule that the assignment breaks, or None."""
        return broken_rule(self.layout.rules, found.values)

    def genome(self, found: Assignment) -> Genome:
        """Make the genome of a legal assignment."""
        places, values = found.places, found.values
        alleles: dict[str, Allele] = {}
        texts = []
        for position, name, text in self._writers:
            place = places[position]
            if place >= 0:
                alleles[name] = values[position]
                texts.append(text(place))
        return Genome.assembled(self.layout.route, alleles, "{" + ",".join(texts) + "}")

    @cached_property
    def _writers(self) -> tuple[Any, ...]:
        """Position, name and text of every gene, in the order of names."""
        domains = self.layout.domains
        return tuple((p, domains[p].name, domains[p].text) for p in self.layout.by_name)

    @cached_property
    def _exact_total(self) -> int:
        """Number of legal assignments where they can be ranked, else 0."""
        components = self.layout.components
        if any(component.unbuilt for component in components):
            return 0
        return math.prod(component.total for component in components)

    def sample(self, rng: np.random.Generator) -> Assignment:
        """Draw a legal assignment, evenly unless a component is hopeless.

        Raises:
            NothingValidError: There is none; the message names the cause.
        """
        found = Assignment(self._count)
        if self._exact_total:
            rank = draw_below(self._exact_total, rng)
            for component in self.layout.components:
                rank, own = divmod(rank, component.total)
                component.write(own, found.places, found.values)
            return found
        for component in self.layout.components:
            if not component.sample(rng, found.places, found.values):
                raise NothingValidError(why_empty(self.layout.route, component))
        return found

    def each(self) -> Iterator[Assignment]:
        """Yield every legal assignment: one object, overwritten each time."""
        found = Assignment(self._count)
        if all(component.total for component in self.layout.components):
            for _ in self._product(0, found):
                yield found

    def _product(self, first: int, found: Assignment) -> Iterator[None]:
        if first == len(self.layout.components):
            yield
            return
        for _ in self.layout.components[first].legal(found.places, found.values):
            yield from self._product(first + 1, found)

    def encoding(self, genome: Mapping[str, Allele]) -> list[float]:
        """Return the encoding as one flat list, -1 for inactive genes.

        Raises:
            InputError: A gene of this layout holds what is no allele of it.
        """
        alleles = genome.alleles() if isinstance(genome, Genome) else genome
        numbers: list[float] = []
        for domain in self.layout.domains:
            if domain.name in alleles:
                place = domain.place(alleles[domain.name])
                if place < 0:
                    raise InputError(f"gene {domain.name!r} has no allele {alleles[domain.name]!r}")
                numbers += domain.code(place)
            else:
                numbers += domain.off
        return numbers
