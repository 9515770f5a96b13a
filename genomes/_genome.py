"""Genome: one point of a space, frozen, hashable, with a stable fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from kernelarc.genomes._alleles import (
    Allele,
    allele_from_json,
    allele_text,
    alleles_text,
    fingerprint_of,
)


class Genome(Mapping[str, Allele]):
    """A route and one allele for every *active* gene of that route.

    The mapping holds active genes only: two genomes that differ in a gene that is switched off
    are the same genome. Equality, hash and fingerprint follow the typed canonical text, so a
    genome with ``1`` differs from one with ``1.0`` or ``True``. Iteration goes by gene name, so
    that whoever walks over a genome does the same whether it was made here or read from a store.

    Attributes:
        route: The first gene: which way of implementing the operator this is.
        canonical: Typed JSON text of the alleles, sorted by gene name.
        fingerprint: 24 hexadecimal digits over route and canonical text.
    """

    __slots__ = ("_alleles", "canonical", "fingerprint", "route")

    def __init__(self, route: str, alleles: Mapping[str, Allele]) -> None:
        for value in alleles.values():
            if not isinstance(value, bool | int | str):
                allele_text(value)
        self.route = route
        self._alleles = dict(sorted(alleles.items()))
        self.canonical = alleles_text(self._alleles)
        self.fingerprint = fingerprint_of(route + "\0" + self.canonical)

    @classmethod
    def from_canonical(cls, route: str, canonical: str) -> Genome:
        """Rebuild a genome from the text that ``canonical`` holds (the store's form)."""
        parsed = json.loads(canonical)
        return cls(route, {name: allele_from_json(value) for name, value in parsed.items()})

    @classmethod
    def assembled(cls, route: str, alleles: dict[str, Allele], canonical: str) -> Genome:
        """Make a genome whose canonical text is known already (a Space keeps the parts).

        The dictionary is kept, not copied. It must stand in the order of names, and the text must
        be what the constructor would make.
        """
        genome = cls.__new__(cls)
        genome.route = route
        genome._alleles = alleles
        genome.canonical = canonical
        genome.fingerprint = fingerprint_of(route + "\0" + canonical)
        return genome

    def replace(self, changes: Mapping[str, Allele]) -> dict[str, Allele]:
        """Return the alleles with ``changes`` laid over them (not yet checked for legality)."""
        return {**self._alleles, **changes}

    def alleles(self) -> dict[str, Allele]:
        """Return a fresh dictionary of the active alleles."""
        return dict(self._alleles)

    def __getitem__(self, name: str) -> Allele:
        return self._alleles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._alleles)

    def __len__(self) -> int:
        return len(self._alleles)

    def __contains__(self, name: object) -> bool:
        return name in self._alleles

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Genome):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Genome({self.route!r}, {self.canonical})"

    def __reduce__(self) -> tuple[type[Genome], tuple[str, dict[str, Allele]]]:
        return Genome, (self.route, self._alleles)
