"""Genomes as numbers for a model: every gene by place, and also by identity.

An ordered gene's alleles may matter by their order or each for itself (a multiple of 32 among
block sizes): the model gets both views of each gene and weighs them by the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Allele, Gene, Genome, Permutation, Space

_IDENTITIES = 64  # alleles that are told apart by identity, at most
_REMEMBERED = 8192
_OFF = -1.0


class Features:
    """The columns of a space's free genes, in groups that share one weight.

    The logarithm of the route's hint, where there is one, is a column like any gene's.
    Rows are remembered by fingerprint; the memory is only a cache.

    Attributes:
        groups: Slices of columns: per gene its place, where it is ordered, and its identity.
        width: Number of columns.
    """

    def __init__(self, space: Space) -> None:
        self._genes = [_Columns(gene) for gene in space.genes if gene.cardinality > 1]
        self._rows: dict[str, NDArray[np.float64]] = {}
        groups: list[slice] = []
        start = 0
        for gene in self._genes:
            for width in gene.widths:
                groups.append(slice(start, start + width))
                start += width
        self._hint = space.hint
        if self._hint is not None:
            groups.append(slice(start, start + 1))
            start += 1
        self.groups = tuple(groups)
        self.width = start

    def row(self, genome: Genome) -> NDArray[np.float64]:
        """Return one genome's features, shape (width,)."""
        found = self._rows.get(genome.fingerprint)
        if found is None:
            if len(self._rows) >= _REMEMBERED:
                self._rows.clear()
            alleles = genome.alleles()
            parts = [gene.of(alleles) for gene in self._genes]
            if self._hint is not None:
                parts.append(np.log(np.float64(self._hint(alleles))).tobytes())
            found = np.frombuffer(b"".join(parts))
            self._rows[genome.fingerprint] = found
        return found

    def rows(self, genomes: Iterable[Genome]) -> NDArray[np.float64]:
        """Return features, shape (genomes, width)."""
        rows = [self.row(genome) for genome in genomes]
        return np.array(rows) if rows else np.empty((0, self.width))


class _Columns:
    """One gene's columns, as the bytes of their numbers, so that a row is made by joining.

    Two different alleles are 1 apart, squared, by identity.
    """

    def __init__(self, gene: Gene) -> None:
        self._gene = gene
        self._ordered = gene.ordered and gene.cardinality > 2
        self._identified = gene.cardinality <= _IDENTITIES
        self._known: dict[tuple[type, Allele], bytes] = {}
        if isinstance(gene, Permutation):
            self.widths = [len(gene.items)]
        else:
            order = [1] if self._ordered else []
            self.widths = order + ([gene.cardinality] if self._identified else [])
        self._off = self._inactive().tobytes()

    def of(self, alleles: Mapping[str, Allele]) -> bytes:
        """Return the gene's numbers in a genome."""
        allele = alleles.get(self._gene.name)
        if allele is None:
            return self._off
        key = (type(allele), allele)
        found = self._known.get(key)
        if found is None:
            found = self._at(allele).tobytes()
            if self._identified and not isinstance(self._gene, Permutation):
                self._known[key] = found
        return found

    def _inactive(self) -> NDArray[np.float64]:
        numbers = np.zeros(sum(self.widths))
        if self._ordered or not self._identified:
            numbers[: self.widths[0]] = _OFF
        return numbers

    def _at(self, allele: Allele) -> NDArray[np.float64]:
        gene = self._gene
        if isinstance(gene, Permutation):
            return np.array(gene.encode(allele))
        place = gene.index(allele)
        columns = [place / (gene.cardinality - 1)] if self._ordered else []
        if self._identified:
            identity = [0.0] * gene.cardinality
            identity[place] = 0.5**0.5
            columns += identity
        return np.array(columns)
