"""Assignments: a genome's alleles by position, and the way there and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._causes import why_empty
from kernelarc.genomes._component import Component
from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError, NothingValidError, nearest
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._rules import OFF, Rule, broken_rule

_KEPT = 4096  # answers to whether an assignment is legal


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
        self._answers: dict[tuple[int, ...], Genome | None] = {}

    @cached_property
    def _readers(self) -> tuple[Any, ...]:
        layout = self.layout
        return tuple(
            (p, domain.name, domain.find, layout.parents[p], layout.whens[p])
            for p, domain in enumerate(layout.domains)
        )

    def read(self, alleles: Mapping[str, Allele]) -> Assignment | str:
        """Return the assignment with inactive genes off, or one line why there is none."""
        if isinstance(alleles, Genome):
            alleles = alleles.alleles()
        found, name, read = Assignment(self._count), "", 0
        places, values = found.places, found.values
        try:
            for position, name, find, parent, when in self._readers:
                if parent is not None and places[parent] not in when:
                    continue
                value = alleles[name]
                entry = find((type(value), value))
                if entry is None:
                    return f"gene {name!r} has no allele {value!r}"
                places[position], values[position] = entry
                read += 1
        except KeyError:
            return f"gene {name!r} is missing"
        except TypeError:  # not hashable, so no allele at all
            if not isinstance(alleles, Mapping):
                return f"a genome is made of alleles by gene, a dict, not {alleles!r}"
            return f"gene {name!r} has no allele {alleles[name]!r}"
        return found if read == len(alleles) else self._unknown(alleles) or found

    def _unknown(self, alleles: Mapping[str, Allele]) -> str:
        known = self.layout.places
        for name in alleles:
            if name not in known:
                return f"route {self.layout.route!r} has no gene {name!r}{nearest(name, known)}"
        return ""

    def broken(self, found: Assignment) -> Rule | None:
        """Return a rule that the assignment breaks, or None."""
        return broken_rule(self.layout.rules, found.values)

    def legal(self, found: Assignment) -> Genome | None:
        """Make the genome of an assignment, or None where a rule is broken.

        The newest answers are kept: who drafts many genomes by small steps asks for most of them
        again and again.
        """
        key = tuple(found.places)
        try:
            return self._answers[key]
        except KeyError:
            pass
        genome = None if self.broken(found) is not None else self.genome(found)
        if len(self._answers) >= _KEPT:
            self._answers.clear()
        self._answers[key] = genome
        return genome

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
        """Number of legal assignments where a rank can be drawn, else 0."""
        components = self.layout.components
        if any(component.unbuilt or component.fair for component in components):
            return 0
        return math.prod(component.total for component in components)

    def sample(self, rng: np.random.Generator) -> Assignment:
        """Draw a legal assignment, evenly unless a gene is fair or a component is hopeless.

        Raises:
            NothingValidError: There is none; the message names the cause.
        """
        found = Assignment(self._count)
        if self._exact_total:
            self._write(draw_below(self._exact_total, rng), found)
            return found
        for component in self.layout.components:
            if not component.sample(rng, found.places, found.values):
                raise NothingValidError(why_empty(self.layout.route, component))
        return found

    @cached_property
    def _loose(self) -> tuple[Any, ...]:
        """Position, cardinality and allele at an index, of the genes that nothing binds."""
        singles = [c.positions[0] for c in self.layout.components if c.is_loose]
        domains = self.layout.domains
        return tuple((p, domains[p].cardinality, domains[p].at) for p in singles)

    @cached_property
    def _linked(self) -> tuple[Component, ...]:
        return tuple(component for component in self.layout.components if not component.is_loose)

    def _write(self, rank: int, found: Assignment) -> None:
        """Write the legal assignment of a rank; all components are exact."""
        places, values = found.places, found.values
        for position, cardinality, at in self._loose:
            rank, place = divmod(rank, cardinality)
            places[position], values[position] = place, at(place)
        for component in self._linked:
            rank, own = divmod(rank, component.total)
            component.write(own, places, values)

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
                value = alleles[domain.name]
                entry = domain.find((type(value), value))
                if entry is None:
                    raise InputError(f"gene {domain.name!r} has no allele {value!r}")
                numbers += domain.code(entry[0])
            else:
                numbers += domain.off
        return numbers
