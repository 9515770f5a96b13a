"""Drafts made whole: genes that a draft switches on get alleles that are good together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernelarc.genomes import Allele, Gene, Genome
from kernelarc.islands._population import Individual
from kernelarc.islands._terrain import Terrain

_EXPLORED = 0.25  # of drafts that switch genes on: how many draw their alleles


def legal(
    alleles: Mapping[str, Allele],
    terrain: Terrain,
    known: Sequence[Individual],
    rng: np.random.Generator,
) -> Genome | None:
    """Complete a draft (a changed condition wakes genes) and repair it, or refuse it.

    A branch begins where it is good, or it never wins: what wakes holds what the first of the
    known ones has there, else the gene's usual allele, and is drawn where there is neither.

    Args:
        alleles: The draft.
        terrain: Of its route.
        known: Whose alleles may be taken, the best first; others' routes are passed over.
        rng: The stream.
    """
    if terrain.branches:
        alleles = _completed(alleles, terrain, known, rng)
    return terrain.space.repair(alleles, rng)


def _completed(
    alleles: Mapping[str, Allele],
    terrain: Terrain,
    known: Sequence[Individual],
    rng: np.random.Generator,
) -> dict[str, Allele]:
    whole: dict[str, Allele] = {}
    explores: bool | None = None
    for gene in terrain.space.genes:
        if gene.when is not None and not gene.when.holds(whole):
            continue
        found = alleles.get(gene.name)
        if found is None or not gene.contains(found):
            if gene.when is not None and explores is None:
                explores = bool(rng.random() < _EXPLORED)
            found = None if gene.when is None or explores else _good(gene, terrain, known)
            found = gene.sample(rng) if found is None else found
        whole[gene.name] = found
    return whole


def _good(gene: Gene, terrain: Terrain, known: Sequence[Individual]) -> Allele | None:
    """Return the allele of the best that has the gene switched on, else its usual one."""
    for genome in (one.genome for one in known):
        if genome.route == terrain.space.route and gene.name in genome:
            return genome[gene.name]
    return gene.usual
