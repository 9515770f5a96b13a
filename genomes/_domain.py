"""A gene's domain in the forms that a space needs often, made once per gene."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kernelarc.genomes._alleles import Allele, allele_key, allele_text
from kernelarc.genomes._gene import Gene

LISTED_LIMIT = 4096


class Domain:
    """Index, text and code of each allele. A domain too long to be listed is computed anew.

    Attributes:
        name: The gene's name.
        cardinality: Number of alleles.
        find: Takes ``(type(value), value)``; gives the allele's index and the allele itself, or
            None for what is no allele of the gene. Raises TypeError for what has no hash.
        at: Allele at an index.
        text: ``"name":allele`` at an index, as it stands in a genome's canonical text.
        code: The gene's encoding at an index.
        off: Its encoding when switched off.
    """

    __slots__ = ("at", "cardinality", "code", "find", "name", "off", "text")

    def __init__(self, gene: Gene) -> None:
        self.name = gene.name
        self.cardinality = gene.cardinality
        self.off = (-1.0,) * gene.width
        prefix = json.dumps(gene.name) + ":"
        self.find: Callable[[tuple[type, Any]], tuple[int, Allele] | None] = _computed(gene)
        self.at: Callable[[int], Allele] = gene.at
        self.text: Callable[[int], str] = lambda place: prefix + allele_text(gene.at(place))
        self.code: Callable[[int], tuple[float, ...]] = lambda place: gene.encode(gene.at(place))
        if self.cardinality <= LISTED_LIMIT:
            self._list(gene, prefix)

    def _list(self, gene: Gene, prefix: str) -> None:
        values = gene.values()
        known = {allele_key(value): (place, value) for place, value in enumerate(values)}
        plain = not any(isinstance(value, tuple) for value in values)
        self.find = known.get if plain else lambda key: known.get(allele_key(key[1]))
        self.at = values.__getitem__
        self.text = [prefix + allele_text(value) for value in values].__getitem__
        self.code = [gene.encode(value) for value in values].__getitem__


def _computed(gene: Gene) -> Callable[[tuple[type, Any]], tuple[int, Allele] | None]:
    def find(key: tuple[type, Any]) -> tuple[int, Allele] | None:
        place = gene.index(key[1])
        return None if place < 0 else (place, gene.at(place))

    return find
