"""One-gene steps: along an ordered gene to the nearest legal allele each way, else to any other."""

from __future__ import annotations

from collections.abc import Iterator

from kernelarc.genomes._assignment import Assignment
from kernelarc.genomes._component import Component
from kernelarc.genomes._graph import Node
from kernelarc.genomes._layout import Layout
from kernelarc.genomes._rules import OFF, broken_rule

REACH = 64
VISITS = 2000


def steps(layout: Layout, start: Assignment) -> Iterator[Assignment]:
    """Yield the legal assignments one gene away, in the order of positions.

    Where a step switches genes on, they take the first alleles that make the whole legal: the usual
    one, then in the order of their domains. Where there are none, there is no such step.
    """
    for position, place in enumerate(start.places):
        if place >= 0:
            for run in _directions(layout, start, position):
                for other in run:
                    found = _moved(layout, start, position, other)
                    if found is not None:
                        yield found
                        break


def _directions(layout: Layout, start: Assignment, position: int) -> list[list[int]]:
    """Return lists of allele indices; the first legal one of each list is a step."""
    gene, place = layout.genes[position], start.places[position]
    if gene.ordered:
        last = layout.domains[position].cardinality - 1
        down = list(range(place - 1, max(place - 1 - REACH, -1), -1))
        up = list(range(place + 1, min(place + REACH, last) + 1))
        return [down, up]
    return [[gene.index(value)] for value in gene.neighbours(start.values[position])]


def _moved(layout: Layout, start: Assignment, position: int, place: int) -> Assignment | None:
    found = start.copy()
    found.places[position] = place
    found.values[position] = layout.domains[position].at(place)
    if not layout.children[position]:
        return found if broken_rule(layout.rules_on[position], found.values) is None else None
    waking = _switched(layout, found, position)
    if not waking:
        return found if broken_rule(layout.rules, found.values) is None else None
    component = layout.components[layout.component_of[position]]
    return found if _Completion(component, found, waking).run() else None


def _switched(layout: Layout, found: Assignment, position: int) -> frozenset[int]:
    """Switch genes below ``position`` off where they must be; return those that must wake."""
    waking: set[int] = set()
    below = list(layout.children[position])
    while below:
        child = below.pop(0)
        parent = layout.parents[child]
        assert parent is not None
        # What stands under a gene whose allele is still open is decided by the completion.
        on = parent in waking or found.places[parent] in layout.whens[child]
        if on and found.places[child] < 0:
            waking.add(child)
        elif not on:
            found.places[child], found.values[child] = -1, OFF
        below += layout.children[child]
    return frozenset(waking)


class _Completion:
    """Depth-first search for alleles of some genes, the others being held."""

    def __init__(self, component: Component, found: Assignment, open_: frozenset[int]) -> None:
        self.component, self.found, self.open = component, found, open_
        self.order = component.graph.order
        self.left = VISITS

    def run(self) -> bool:
        return self._descend(self.component.graph.root, 0)

    def _descend(self, node: Node, depth: int) -> bool:
        self.left -= 1
        if self.left < 0:
            return False
        if depth == len(self.order):
            return broken_rule(self.component.unbuilt, self.found.values) is None
        position = self.order[depth]
        for place, child in self._edges(node, position):
            self._write(position, place)
            if self._descend(child, depth + 1):
                return True
        if position in self.open:
            self._write(position, -1)
        return False

    def _edges(self, node: Node, position: int) -> Iterator[tuple[int, Node]]:
        held = self.found.places[position]
        if position not in self.open:
            edges = [(held, node.children[0])] if node.spread > 1 else self._listed(node)
            yield from ((place, child) for place, child in edges if place == held)
            return
        usual = self.component.links[position].usual
        if node.spread > 1:
            yield usual, node.children[0]
            yield from ((place, node.children[0]) for place in range(min(node.spread, VISITS)))
        else:
            yield from sorted(self._listed(node), key=lambda edge: edge[0] != usual)

    @staticmethod
    def _listed(node: Node) -> list[tuple[int, Node]]:
        return list(zip(node.places, node.children, strict=True))

    def _write(self, position: int, place: int) -> None:
        self.found.places[position] = place
        at = self.component.links[position].at
        self.found.values[position] = at(place) if place >= 0 else OFF
