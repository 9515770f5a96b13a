"""Memory moves: stages, vector widths and hints have an order, and small steps along it pay."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def step(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Move one ordered gene by one step; an unordered one only where none is ordered."""
    gene = scene.gene(genome, rng, ordered=True) or scene.gene(genome, rng)
    if gene is None:
        return None
    options = gene.neighbours(genome[gene.name])
    return genome.replace({gene.name: pick(rng, options)}) if options else None


def trade(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Step an own gene one way and a second gene another: deeper staging, narrower vectors."""
    first = scene.gene(genome, rng, ordered=True)
    others = [
        gene
        for gene in (*scene.terrain.own, *scene.terrain.coupled)
        if gene is not first and gene.name in genome and gene.ordered
    ]
    if first is None or not others:
        return None
    second = pick(rng, others)
    ways = first.neighbours(genome[first.name]), second.neighbours(genome[second.name])
    if not (ways[0] and ways[1]):
        return None
    return genome.replace({first.name: pick(rng, ways[0]), second.name: pick(rng, ways[1])})
