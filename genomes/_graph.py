"""The decision graph of linked genes: counts legal assignments and draws them by rank.

Genes are decided one after another. Two partial assignments that later constraints and conditions
cannot tell apart share one node, so a space far too large to list can still be counted exactly and
sampled evenly: every node knows how many legal completions it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._order import Link, Plan
from kernelarc.genomes._rules import OFF


class TooLargeError(Exception):
    """The graph would exceed its budget."""


class Node:
    """A state after some genes were decided.

    Attributes:
        total: Number of legal completions.
        places: One allele index per edge; -1 for a gene that is switched off. For a free gene,
            whose every allele leads to the same node, one edge stands for all of them.
        bounds: Running sums of the edges' totals.
        children: One node per edge.
        spread: Alleles that every edge stands for: the cardinality of a free gene, else 1.
    """

    __slots__ = ("bounds", "children", "places", "spread", "total")

    def __init__(self) -> None:
        self.total = 0
        self.places: list[int] = []
        self.bounds: list[int] = []
        self.children: list[Node] = []
        self.spread = 1

    def link(self, place: int, child: Node, spread: int = 1) -> None:
        """Add an edge; a child without completions is left out."""
        if child.total:
            self.spread = spread
            self.total += child.total * spread
            self.places.append(place)
            self.bounds.append(self.total)
            self.children.append(child)


@dataclass(frozen=True, slots=True)
class Graph:
    """A built graph. ``root.total`` assignments, ranked from 0.

    Attributes:
        order: Positions in the order they are decided; level k of the graph decides ``order[k]``.
        nodes: How many nodes it has.
    """

    order: tuple[int, ...]
    root: Node
    nodes: int

    def draw(
        self, rng: np.random.Generator, shares: Mapping[int, float], places: list[int]
    ) -> None:
        """Draw an assignment into ``places``, -1 where off: evenly but for some positions.

        Args:
            rng: The stream.
            shares: Per position with an allele drawn equally, which one, from 0 to below 1.
            places: Allele indices by position.
        """
        node, rank = self.root, draw_below(self.root.total, rng)
        for position in self.order:
            share = shares.get(position)
            if node.spread > 1:
                rank, places[position] = divmod(rank, node.spread)
                node = node.children[0]
            elif share is None:
                edge = bisect_right(node.bounds, rank)
                rank -= node.bounds[edge - 1] if edge else 0
                places[position], node = node.places[edge], node.children[edge]
            else:
                edge = int(share * len(node.children))
                places[position], node = node.places[edge], node.children[edge]
                rank = draw_below(node.total, rng)

    def unrank(self, rank: int, places: list[int]) -> None:
        """Write the allele indices of assignment ``rank`` into ``places``, -1 where off."""
        node = self.root
        for position in self.order:
            if node.spread > 1:
                rank, places[position] = divmod(rank, node.spread)
            else:
                bounds = node.bounds
                edge = bisect_right(bounds, rank)
                if edge:
                    rank -= bounds[edge - 1]
                places[position] = node.places[edge]
                node = node.children[edge]
                continue
            node = node.children[0]


def build(plan: Plan, links: Sequence[Link], limit: int) -> Graph:
    """Build the graph of a plan.

    Args:
        plan: Which gene is decided when, and which rules are decided then.
        links: Per position of the space, the gene's domain and condition.
        limit: Most edges to try.

    Raises:
        TooLargeError: There are more.
        InputError: A rule cannot be evaluated on alleles that everything else allows.
    """
    builder = _Builder(plan, links, limit)
    root = builder.node(0)
    return Graph(plan.order, root, len(builder.known))


class _Builder:
    """Depth-first construction with a memory of states."""

    def __init__(self, plan: Plan, links: Sequence[Link], limit: int) -> None:
        self.plan, self.links, self.limit = plan, links, limit
        self.values: list[Any] = [OFF] * len(links)
        self.places = [-1] * len(links)
        self.known: dict[tuple[Any, ...], Node] = {}
        self.fault: InputError | None = None
        self.end = Node()
        self.end.total = 1

    def node(self, depth: int) -> Node:
        if depth == len(self.plan.steps):
            if self.fault is not None:
                raise self.fault
            return self.end
        places, values, kept = self.places, self.values, self.plan.steps[depth].kept
        key = (
            depth,
            self.fault is None,
            *[labels[places[p]] for p, labels in kept.labels],
            *[joint.value(values) for joint in kept.joint],
        )
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._expand(depth)
        return known

    def _expand(self, depth: int) -> Node:
        step, node = self.plan.steps[depth], Node()
        position, link = step.position, self.links[step.position]
        if link.parent is not None and self.places[link.parent] not in link.when:
            self._decide(position, -1, OFF)
            self._spend()
            node.link(-1, self.node(depth + 1))
        elif step.free:
            # Nothing depends on the allele; any index that is not -1 says that the gene is on.
            self._decide(position, 0, None)
            self._spend()
            node.link(0, self.node(depth + 1), link.cardinality)
        else:
            for place in range(link.cardinality):
                self._spend()
                self._decide(position, place, link.at(place))
                self._branch(node, depth, place)
        self._decide(position, -1, OFF)
        return node

    def _branch(self, node: Node, depth: int, place: int) -> None:
        before = self.fault
        try:
            if self._passes(depth):
                node.link(place, self.node(depth + 1))
        finally:
            self.fault = before

    def _passes(self, depth: int) -> bool:
        """Ask the rules decided here. One that fails to evaluate matters only if no other says no.

        So an order of constraints never decides whether ``a % b`` beside ``b != 0`` is an error.
        """
        for rule in self.plan.steps[depth].rules:
            try:
                if not rule.holds(self.values):
                    return False
            except InputError as error:
                self.fault = self.fault or error
        return True

    def _decide(self, position: int, place: int, value: Any) -> None:
        self.places[position], self.values[position] = place, value

    def _spend(self) -> None:
        self.limit -= 1
        if self.limit < 0:
            raise TooLargeError
