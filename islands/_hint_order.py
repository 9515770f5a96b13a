"""A strategy's genes in the order that the route's hint puts their assignments in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from weakref import WeakKeyDictionary

from kernelarc.genomes import Allele, Gene, Genome, Space

_MOST = 8192  # assignments that are listed
_KEPT = 64
_SHARED: WeakKeyDictionary[Space, dict[tuple[str, ...], HintOrder]] = WeakKeyDictionary()


def hint_order(space: Space, genes: tuple[Gene, ...]) -> HintOrder:
    """Return the order of some genes; islands of one space share what they list.

    What is kept is a cache: a list takes the time of some hundred drafts.
    """
    orders = _SHARED.setdefault(space, {})
    names = tuple(gene.name for gene in genes)
    if names not in orders:
        orders[names] = HintOrder(space, genes)
    return orders[names]


class HintOrder:
    """Lists what some genes may hold beside the others' alleles, the best guess first.

    Args:
        space: With a hint.
        genes: Those to be varied: genes that the hint reads.
    """

    def __init__(self, space: Space, genes: tuple[Gene, ...]) -> None:
        self._hint = space.hint
        self._genes = genes if prod(gene.cardinality for gene in genes) <= _MOST else ()
        names = {gene.name for gene in genes}
        self._rules = [rule for rule in space.constraints if names.intersection(rule.genes)]
        read = {name for rule in self._rules for name in rule.genes}
        read |= set(space.hint.genes if space.hint is not None else ())
        self._fixed = sorted(read - names)
        self._known: dict[tuple[Allele | None, ...], list[dict[str, Allele]]] = {}

    def __bool__(self) -> bool:
        return bool(self._genes) and self._hint is not None

    def beside(self, genome: Genome) -> list[dict[str, Allele]]:
        """Return the legal assignments beside a genome's other alleles, the best guess first."""
        key = tuple(genome.get(name) for name in self._fixed)
        if key not in self._known:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = self._listed(genome.alleles())
        return self._known[key]

    def _listed(self, alleles: Mapping[str, Allele]) -> list[dict[str, Allele]]:
        names = [gene.name for gene in self._genes]
        found: list[tuple[float, dict[str, Allele]]] = []
        held = dict(alleles)
        assert self._hint is not None
        active = {*held, *names}
        rules = [rule for rule in self._rules if active.issuperset(rule.genes)]
        for values in product(*(gene.values() for gene in self._genes)):
            held.update(zip(names, values, strict=True))
            if all(rule.holds(held) for rule in rules):
                found.append((self._hint(held), dict(zip(names, values, strict=True))))
        found.sort(key=lambda pair: pair[0])
        return [assignment for _, assignment in found]
