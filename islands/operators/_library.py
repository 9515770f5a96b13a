"""Library moves: the algorithm decides what else there is to choose."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def algorithm(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Change a gene that others depend on; what depends on it keeps its alleles where it can."""
    branches = [gene for gene in scene.terrain.branches if gene.name in genome]
    if not branches:
        return None
    gene = pick(rng, branches)
    return genome.replace({gene.name: gene.mutate(genome[gene.name], rng)})


def option(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Move one own gene: a step where it is ordered, another allele where not."""
    gene = scene.gene(genome, rng)
    if gene is None:
        return None
    options = gene.neighbours(genome[gene.name])
    return genome.replace({gene.name: pick(rng, options)}) if options else None
