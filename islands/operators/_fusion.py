"""Fusion moves: what is fused is on or off, and what goes together is learned from elites."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome, same_allele
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def exchange(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Take one pair of differing genes, at least one of them own, from another elite."""
    mate = scene.mate(genome, rng)
    if mate is None:
        return None
    differing = [
        gene
        for gene in scene.terrain.free
        if gene.name in genome
        and gene.name in mate
        and not same_allele(genome[gene.name], mate[gene.name])
    ]
    own = [gene for gene in differing if gene in scene.terrain.own]
    if not differing:
        return None
    first = pick(rng, own or differing)
    second = pick(rng, differing)
    return genome.replace({first.name: mate[first.name], second.name: mate[second.name]})
