"""In which order linked genes are decided, and what has to be remembered in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._rules import Joint, Rule


@dataclass(frozen=True, slots=True)
class Link:
    """A gene as the graph sees it.

    Attributes:
        at: The allele at an index of the domain.
        parent: Position of the gene its condition names, or None.
        when: Allele indices of the parent that switch it on.
        children: Positions of the genes whose condition names this one.
        classes: Per allele index, which children it switches on, as a small number; one more
            entry at the end (index -1) for "off".
        whole: Whether all alleles are whole numbers.
        fair: Whether its alleles are drawn equally, however many assignments each allows.
        usual: The allele index that is tried first where a step switches the gene on.
    """

    cardinality: int
    at: Callable[[int], Allele]
    parent: int | None = None
    when: frozenset[int] = frozenset()
    children: tuple[int, ...] = ()
    classes: tuple[int, ...] = ()
    whole: bool = False
    fair: bool = False
    usual: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One level: decide ``position``, then ask ``rules``.

    Attributes:
        kept: What tells states apart *before* this step.
        free: No rule and no condition depends on the gene's allele.
    """

    position: int
    rules: tuple[Rule, ...]
    kept: Kept
    free: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """What has to be remembered of the genes decided so far.

    Attributes:
        labels: Positions with a label per allele index (last entry: off).
        joint: Numbers that several genes make together.
    """

    labels: tuple[tuple[int, Sequence[int]], ...]
    joint: tuple[Joint, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All levels, and an upper bound on the number of edges."""

    steps: tuple[Step, ...]
    edges: int

    @property
    def order(self) -> tuple[int, ...]:
        """Positions in the order they are decided."""
        return tuple(step.position for step in self.steps)


def plan(positions: Sequence[int], rules: Sequence[Rule], links: Sequence[Link]) -> Plan:
    """Order some positions so that little has to be remembered between the steps.

    Args:
        positions: All genes of one component, ascending.
        rules: The rules to obey; each over ``positions`` only.
        links: Of every position of the space.
    """
    planner = _Planner(positions, rules, links)
    steps, edges = [], 0
    while planner.waiting:
        states = planner.states
        step = planner.step(planner.kept())
        steps.append(step)
        edges += states * (1 if step.free else links[step.position].cardinality)
    return Plan(tuple(steps), edges)


class _Planner:
    def __init__(
        self, positions: Sequence[int], rules: Sequence[Rule], links: Sequence[Link]
    ) -> None:
        self.links, self.rules = links, rules
        self.waiting, self.done = list(positions), frozenset[int]()
        self.scopes = [frozenset(rule.positions) for rule in rules]
        self.ruled = frozenset[int]().union(*self.scopes)
        self.whole = [link.whole for link in links]

    def step(self, kept: Kept) -> Step:
        chosen = min(self._ready(), key=self._cost)
        before, self.done = self.done, self.done | {chosen}
        self.waiting.remove(chosen)
        decided = tuple(
            rule
            for rule, scope in zip(self.rules, self.scopes, strict=True)
            if scope <= self.done and not scope <= before
        )
        free = chosen not in self.ruled and not self.links[chosen].children
        return Step(chosen, decided, kept, free)

    @property
    def states(self) -> int:
        """How many states there can be at most, joint numbers taken as all their genes."""
        count = 1
        for position in self.done:
            count *= self._labelled(position, self.done)
        return count

    def _labelled(self, position: int, done: frozenset[int]) -> int:
        """Return how many labels a decided gene has towards what is undecided, 1 if forgotten."""
        link = self.links[position]
        if any(position in scope and not scope <= done for scope in self.scopes):
            return link.cardinality + (link.parent is not None)
        if any(child not in done for child in link.children):
            return len(set(link.classes))
        return 1

    def kept(self) -> Kept:
        """Return what undecided genes still depend on, as little as the rules allow."""
        done = self.done
        pending = [
            rule.residue(done, self.whole)
            for rule, scope in zip(self.rules, self.scopes, strict=True)
            if not scope <= done and scope & done
        ]
        asked = frozenset[int]().union(*(residue.alleles for residue in pending))
        joint = tuple(
            part for residue in pending for part in residue.joint if not part.positions <= asked
        )
        labels: list[tuple[int, Sequence[int]]] = []
        for position in sorted(done):
            link = self.links[position]
            if position in asked:
                labels.append((position, [*range(link.cardinality), -1]))
            elif any(child not in done for child in link.children):
                labels.append((position, link.classes))
        return Kept(tuple(labels), joint)

    def _ready(self) -> list[int]:
        parents = ((p, self.links[p].parent) for p in self.waiting)
        return [p for p, parent in parents if parent is None or parent in self.done]

    def _cost(self, position: int) -> tuple[float, int, int]:
        """Rank a candidate: the states after it, then how many rules it decides."""
        after = self.done | {position}
        size = sum(math.log(self._labelled(p, after)) for p in after)
        decided = sum(s <= after and position in s for s in self.scopes)
        return round(size, 9), -decided, position
