"""A gene's domain in the forms that a space needs often, made once per gene."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

from kernelarc.genomes._alleles import Allele, allele_key, allele_text
from kernelarc.genomes._gene import Gene

LISTED_LIMIT = 4096


class Domain:
    """Index, text and code of each allele. A domain too long to be listed is computed anew.

    Attributes:
        name: The gene's name.
        cardinality: Number of alleles.
        place: Index of an allele, -1 for what is no allele of the gene.
        at: Allele at an index.
        text: ``"name":allele`` at an index, as it stands in a genome's canonical text.
        code: The gene's encoding at an index.
        off: Its encoding when switched off.
    """

    __slots__ = ("at", "cardinality", "code", "name", "off", "place", "text")

    def __init__(self, gene: Gene) -> None:
        self.name = gene.name
        self.cardinality = gene.cardinality
        self.off = (-1.0,) * gene.width
        self.place: Callable[[Any], int] = gene.index
        self.at: Callable[[int], Allele] = gene.at
        prefix = json.dumps(gene.name) + ":"
        self.text: Callable[[int], str] = lambda place: prefix + allele_text(gene.at(place))
        self.code: Callable[[int], tuple[float, ...]] = lambda place: gene.encode(gene.at(place))
        if self.cardinality <= LISTED_LIMIT:
            self._list(gene, prefix)

    def _list(self, gene: Gene, prefix: str) -> None:
        values = gene.values()
        index = {allele_key(value): place for place, value in enumerate(values)}
        self.place = _looked_up(index)
        self.at = values.__getitem__
        self.text = [prefix + allele_text(value) for value in values].__getitem__
        self.code = [gene.encode(value) for value in values].__getitem__


def _looked_up(index: dict[Hashable, int]) -> Callable[[Any], int]:
    find = index.get

    def place(value: Any) -> int:
        kind = type(value)
        try:
            return find((kind, value) if kind is not tuple else allele_key(value), -1)
        except TypeError:  # not hashable, so no allele at all
            return -1

    return place
