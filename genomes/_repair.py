"""Repair: the legal genome that differs from given alleles in the fewest genes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._assignment import Assignment
from kernelarc.genomes._component import Component
from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._graph import Node
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._rules import OFF, Rule, broken_rule

EXPANSIONS = 1500
DESCENTS = 3000
JITTERED = 64
NEAR = 8

_Path: TypeAlias = "tuple[int, _Path | None]"


def repaired(
    layout: Layout, alleles: Mapping[str, Allele], rng: np.random.Generator
) -> Assignment | None:
    """Return the nearest legal assignment that a bounded search finds, or None.

    Nearest is the fewest genes changed, then the fewest steps along ordered genes; ties are
    broken by ``rng``. An allele that is not in its gene's domain pulls towards the nearest
    number, a missing one towards nothing.
    """
    found = Assignment(len(layout.genes))
    wanted = [_wanted(gene, alleles.get(gene.name)) for gene in layout.genes]
    for component in layout.components:
        if not _kept(layout, component, wanted, found) and not _Nearest(
            layout, component, wanted, rng
        ).write(found):
            return None
    return found


def _wanted(gene: Gene, value: Allele | None) -> int:
    """Return the index of the wanted allele, of the nearest number to it, or -1."""
    place = gene.index(value)
    if place >= 0 or value is None or not gene.ordered or gene.cardinality > JITTERED:
        return place
    if isinstance(value, bool) or not isinstance(value, int | float):
        return -1
    numbers = [v for v in gene.values() if isinstance(v, int | float)]
    if len(numbers) != gene.cardinality:
        return -1
    return min(range(len(numbers)), key=lambda i: abs(numbers[i] - value))


def _kept(layout: Layout, component: Component, wanted: list[int], found: Assignment) -> bool:
    """Write the wanted alleles of a component; tell whether they are legal as they are."""
    for position in component.positions:
        parent, place = layout.parents[position], wanted[position]
        if parent is not None and found.places[parent] not in layout.whens[position]:
            place = -1
        elif place < 0:
            return False
        found.places[position] = place
        found.values[position] = layout.domains[position].at(place) if place >= 0 else OFF
    return broken_rule(component.rules, found.values) is None


class _Nearest:
    """Best-first search along the decision graph; a changed gene costs 1 and a little more."""

    def __init__(
        self, layout: Layout, component: Component, wanted: list[int], rng: np.random.Generator
    ) -> None:
        self.layout, self.component, self.wanted, self.rng = layout, component, wanted, rng
        self.order = component.graph.order
        # All the little together never weighs as much as one more changed gene.
        self.little = 0.5 / len(self.order)
        self.jitter: list[list[float]] = rng.random((len(self.order), JITTERED)).tolist()
        self.queue: list[tuple[float, int, int, Node, _Path | None]] = []
        self.pushed = 0
        self.values: list[Any] = [OFF] * len(layout.genes)
        self.pressed = frozenset(p for rule in component.unbuilt for p in rule.positions)
        self.closed: set[int] = set()

    def write(self, found: Assignment) -> bool:
        """Search and write what was found; False when there is nothing, or not soon enough."""
        root = self.component.graph.root
        if not root.total:
            return False
        self._push(0.0, 0, root, None)
        merging = not self.component.unbuilt
        for _ in range(EXPANSIONS):
            if not self.queue:
                return False
            cost, _, depth, node, path = heapq.heappop(self.queue)
            depth = -depth
            if depth == len(self.order):
                self._write(path, found)
                return True
            # Without unbuilt rules, what follows a node depends on the node alone.
            if merging and id(node) in self.closed:
                continue
            self.closed.add(id(node))
            self._expand(cost, depth, node, path)
        return self._descend(found)

    def _descend(self, found: Assignment) -> bool:
        """Go down by the cheapest edges, back where nothing passes: near, though not nearest."""
        stack: list[tuple[int, Node, _Path | None]] = [(0, self.component.graph.root, None)]
        for _ in range(DESCENTS):
            if not stack:
                return False
            depth, node, path = stack.pop()
            if depth == len(self.order):
                self._write(path, found)
                return True
            self.queue.clear()
            self._expand(0.0, depth, node, path)
            down = sorted(self.queue, key=itemgetter(0, 1), reverse=True)
            stack += [(depth + 1, child, further) for _, _, _, child, further in down]
        return False

    def _expand(self, cost: float, depth: int, node: Node, path: _Path | None) -> None:
        position, asked = self.order[depth], self.component.asked[depth]
        if asked:
            self._lay(path, depth)
        for place, child in self._edges(node, position):
            self.values[position] = self._value(position, place)
            if not asked or self._passes(asked):
                price = self._price(depth, position, place)
                self._push(cost + price, depth + 1, child, (place, path))

    def _edges(self, node: Node, position: int) -> Iterator[tuple[int, Node]]:
        if node.spread == 1:
            return zip(node.places, node.children, strict=True)
        return ((place, node.children[0]) for place in self._choices(position, node.spread))

    def _passes(self, asked: tuple[Rule, ...]) -> bool:
        try:
            return broken_rule(asked, self.values) is None
        except InputError:  # nothing that cannot be evaluated is a repair
            return False

    def _value(self, position: int, place: int) -> Any:
        return self.layout.domains[position].at(place) if place >= 0 else OFF

    def _lay(self, path: _Path | None, depth: int) -> list[int]:
        """Write a path's alleles into ``values``; return its allele indices in order."""
        places: list[int] = []
        while path is not None:
            place, path = path
            places.append(place)
        places.reverse()
        for position, place in zip(self.order[:depth], places, strict=True):
            self.values[position] = self._value(position, place)
        return places

    def _choices(self, position: int, spread: int) -> list[int]:
        """Return what to try at a gene that the graph leaves free: its wanted allele first.

        Where an unbuilt rule names it, also some near and some drawn ones.
        """
        wanted = self.wanted[position]
        drawn = [draw_below(spread, self.rng) for _ in range(1 if wanted < 0 else 0)]
        if position in self.pressed:
            drawn += [draw_below(spread, self.rng) for _ in range(NEAR)]
            near = range(max(wanted - NEAR // 2, 0), min(wanted + NEAR // 2 + 1, spread))
            drawn += near if wanted >= 0 else ()
        return list(dict.fromkeys([*drawn, wanted] if wanted >= 0 else drawn))

    def _price(self, depth: int, position: int, place: int) -> float:
        wanted = self.wanted[position]
        if place in (-1, wanted):
            return 0.0
        jitter = self.jitter[depth][place % JITTERED]
        if wanted < 0:
            return self.little * jitter
        if not self.layout.genes[position].ordered:
            return 1.0 + self.little * jitter
        far = abs(place - wanted) / self.layout.domains[position].cardinality
        return 1.0 + self.little * (0.8 * far + 0.2 * jitter)

    def _push(self, cost: float, depth: int, node: Node, path: _Path | None) -> None:
        self.pushed += 1
        # Of equal costs the deepest first, then the newest: straight down where nothing is wrong.
        heapq.heappush(self.queue, (cost, -self.pushed, -depth, node, path))

    def _write(self, path: _Path | None, found: Assignment) -> None:
        places = self._lay(path, len(self.order))
        for position, place in zip(self.order, places, strict=True):
            found.places[position] = place
            found.values[position] = self.values[position]
