"""Operators that every island has: they treat all genes alike."""

from __future__ import annotations

import numpy as np
from deap import tools

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def step(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Move one gene of any owner to a neighbouring allele."""
    genes = [gene for gene in scene.terrain.free if gene.name in genome]
    if not genes:
        return None
    gene = pick(rng, genes)
    options = gene.neighbours(genome[gene.name])
    return genome.replace({gene.name: pick(rng, options)}) if options else None


def resample(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Draw one to three genes of any owner anew, small numbers more often."""
    genes = [gene for gene in scene.terrain.free if gene.name in genome]
    if not genes:
        return None
    changed: Alleles = {}
    for _ in range(1 + int(rng.random() < 0.5) + int(rng.random() < 0.25)):
        gene = pick(rng, genes)
        changed[gene.name] = gene.mutate(genome[gene.name], rng)
    return genome.replace(changed)


def toggle(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Switch one gene to another allele: mostly an own one, sometimes a coupled one."""
    gene = scene.gene(genome, rng)
    if gene is None:
        return None
    return genome.replace({gene.name: gene.mutate(genome[gene.name], rng)})


def crossover(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Take each gene from the genome or from another elite, evenly (DEAP's uniform crossover).

    Must run inside a fenced block: DEAP draws the numbers.
    """
    mate = scene.mate(genome, rng)
    if mate is None:
        return None
    names = [gene.name for gene in scene.terrain.space.genes]
    child, _ = tools.cxUniform([genome.get(n) for n in names], [mate.get(n) for n in names], 0.5)
    return {name: allele for name, allele in zip(names, child, strict=True) if allele is not None}
