"""What arithmetic alone says about a genome, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kernelarc.genomes._alleles import Allele


class Hint(Protocol):
    """A route's rough guess at what a genome costs.

    It only orders genomes for trying them: nothing is ever refused or believed because of it.
    """

    @property
    def genes(self) -> tuple[str, ...]:
        """The genes it reads."""

    def __call__(self, alleles: Mapping[str, Allele]) -> float:
        """Return a positive number, the lower the better; only ratios mean anything."""
