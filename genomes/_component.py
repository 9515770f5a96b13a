"""A component: genes that rules and conditions link. Components are independent of one another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._graph import Graph, Node, TooLargeError, build
from kernelarc.genomes._order import Link, plan
from kernelarc.genomes._rules import OFF, Rule, broken_rule

EDGE_LIMIT = 200_000
WIDE_GENE = 1 << 16
TRIES = 2000
PROBES = 2000
HOPELESS = 0.005
SEARCH_LIMIT = 200_000
LATE_RULES = 8
_NONE: Mapping[int, float] = MappingProxyType({})


class Component:
    """Linked genes with the rules over them. Nothing is built before it is first needed.

    The graph obeys all rules where that fits into ``EDGE_LIMIT`` edges. Otherwise it obeys those
    that do fit and the rest is ``unbuilt``: an assignment drawn from the graph is then accepted
    only if the unbuilt rules hold, which is still even over the legal ones.

    Attributes:
        positions: Its genes, ascending.
        rules: All its rules.
        links: Of every position of the space.
    """

    def __init__(
        self, positions: Sequence[int], rules: Sequence[Rule], links: Sequence[Link]
    ) -> None:
        self.positions, self.rules, self.links = tuple(positions), tuple(rules), links

    @property
    def is_loose(self) -> bool:
        """Whether it is a single gene that nothing binds."""
        return len(self.positions) == 1 and not self.rules

    @cached_property
    def _built(self) -> tuple[Graph, tuple[Rule, ...]]:
        narrow = [rule for rule in self.rules if not self._is_wide(rule)]
        if len(narrow) == len(self.rules):
            try:
                return build(plan(self.positions, narrow, self.links), self.links, EDGE_LIMIT), ()
            except TooLargeError:
                pass
        kept = self._affordable(narrow)
        planned = plan(self.positions, kept, self.links)
        # A state can come twice: once more with a rule that could not be evaluated.
        graph = build(planned, self.links, 2 * planned.edges)
        return graph, tuple(rule for rule in self.rules if rule not in kept)

    def _is_wide(self, rule: Rule) -> bool:
        return any(self.links[p].cardinality > WIDE_GENE for p in rule.positions)

    def _affordable(self, rules: Sequence[Rule]) -> list[Rule]:
        """Choose rules, the narrow ones first, while the graph stays within its limit for sure."""
        ranked = sorted(rules, key=self._width)
        fits, fails = 0, len(ranked) + 1
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._fits(ranked[:middle]):
                fits = middle
            else:
                fails = middle
        kept = ranked[:fits]
        for rule in ranked[fits + 1 : fits + 1 + LATE_RULES]:
            if self._fits([*kept, rule]):
                kept.append(rule)
        return kept

    def _fits(self, rules: Sequence[Rule]) -> bool:
        return plan(self.positions, rules, self.links).edges <= EDGE_LIMIT

    def _width(self, rule: Rule) -> int:
        return math.prod(self.links[position].cardinality for position in rule.positions)

    @property
    def graph(self) -> Graph:
        """The decision graph over the rules that fit."""
        return self._built[0]

    @property
    def unbuilt(self) -> tuple[Rule, ...]:
        """The rules that the graph does not obey."""
        return self._built[1]

    @cached_property
    def fair(self) -> tuple[int, ...]:
        """Positions whose alleles are drawn equally."""
        return tuple(p for p in self.positions if self.links[p].fair)

    @cached_property
    def asked(self) -> tuple[tuple[Rule, ...], ...]:
        """Per level of the graph, the unbuilt rules whose genes are then all decided."""
        order = self.graph.order
        level = {position: depth for depth, position in enumerate(order)}
        last = [max(level[p] for p in rule.positions) for rule in self.unbuilt]
        return tuple(
            tuple(rule for rule, at in zip(self.unbuilt, last, strict=True) if at == depth)
            for depth in range(len(order))
        )

    @property
    def total(self) -> int:
        """Number of legal assignments; an upper bound where rules are unbuilt."""
        return self.graph.root.total

    @cached_property
    def hopeless(self) -> bool:
        """Whether so few draws are accepted that sampling has to search instead.

        Estimated once with a stream of its own, so that equal spaces always answer alike.

        Raises:
            InputError: An unbuilt rule cannot be evaluated on one of the draws.
        """
        if not self.unbuilt or not self.total:
            return False
        rng = np.random.default_rng(len(self.positions))
        values: list[Any] = [OFF] * len(self.links)
        places = [-1] * len(self.links)
        accepted = sum(self._accept(rng, places, values) for _ in range(PROBES))
        return accepted < HOPELESS * PROBES

    def write(self, rank: int, places: list[int], values: list[Any]) -> None:
        """Write assignment ``rank`` of the graph into both lists."""
        self.graph.unrank(rank, places)
        self._tell(places, values)

    def _tell(self, places: list[int], values: list[Any]) -> None:
        """Write the alleles of allele indices."""
        links = self.links
        for position in self.positions:
            place = places[position]
            values[position] = links[position].at(place) if place >= 0 else OFF

    def sample(self, rng: np.random.Generator, places: list[int], values: list[Any]) -> bool:
        """Draw a legal assignment; False when none was found.

        Even over the legal ones, but for positions that are ``fair``, unless ``hopeless``; then a
        random search with early checks stands in, which always ends but is not even.
        """
        if not self.total:
            return False
        # Drawn once: else of two branches that one would win whose draws are refused less.
        shares = {position: float(rng.random()) for position in self.fair}
        if not self.unbuilt:
            self._draw(rng, shares, places, values)
            return True
        if not self.hopeless:
            for _ in range(TRIES):
                if self._accept(rng, places, values, shares):
                    return True
        return _Search(self, places, values, rng).run()

    def _accept(
        self, rng: np.random.Generator, places: list[int], values: list[Any],
        shares: Mapping[int, float] = _NONE,
    ) -> bool:  # fmt: skip
        self._draw(rng, shares, places, values)
        return broken_rule(self.unbuilt, values) is None

    def _draw(
        self, rng: np.random.Generator, shares: Mapping[int, float], places: list[int],
        values: list[Any],
    ) -> None:  # fmt: skip
        if shares:
            self.graph.draw(rng, shares, places)
            self._tell(places, values)
        else:
            self.write(draw_below(self.total, rng), places, values)

    def legal(self, places: list[int], values: list[Any]) -> Iterator[None]:
        """Write one legal assignment after another, in rank order."""
        rank = 0
        while rank < self.total:
            self.write(rank, places, values)
            if not self.unbuilt or broken_rule(self.unbuilt, values) is None:
                yield
            rank += 1


class _Search:
    """Random depth-first search along the graph, asking unbuilt rules as early as possible."""

    def __init__(
        self, component: Component, places: list[int], values: list[Any], rng: np.random.Generator
    ) -> None:
        self.component, self.places, self.values, self.rng = component, places, values, rng
        self.order = component.graph.order
        self.left = SEARCH_LIMIT
        self.fault: InputError | None = None

    def run(self) -> bool:
        found = self._descend(self.component.graph.root, 0)
        if not found and self.fault is not None:
            raise self.fault
        return found

    def _descend(self, node: Node, depth: int) -> bool:
        if depth == len(self.order):
            return True
        position = self.order[depth]
        at = self.component.links[position].at
        for place, child in self._edges(node):
            self.left -= 1
            if self.left < 0:
                return False
            self.places[position] = place
            self.values[position] = at(place) if place >= 0 else OFF
            if self._passes(depth) and self._descend(child, depth + 1):
                return True
        return False

    def _passes(self, depth: int) -> bool:
        try:
            return broken_rule(self.component.asked[depth], self.values) is None
        except InputError as error:
            self.fault = self.fault or error
            return False

    def _edges(self, node: Node) -> Iterator[tuple[int, Node]]:
        if node.spread == 1:
            for edge in self.rng.permutation(len(node.children)):
                yield node.places[edge], node.children[edge]
            return
        child = node.children[0]
        # Too many alleles to shuffle: some, drawn with replacement, have to do.
        drawn = node.spread > WIDE_GENE
        places = (
            (draw_below(node.spread, self.rng) for _ in range(WIDE_GENE))
            if drawn
            else self.rng.permutation(node.spread)
        )
        for place in places:
            yield int(place), child
