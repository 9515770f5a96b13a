"""Moves for drafting: many cheap ones, of which a library may refuse most."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]

_DEPTH = 12.0  # how far down the hint's order is drawn, on average


def redraw(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Draw one gene of the strategy anew, often a second one with it: coupled genes together."""
    genes = [gene for gene in scene.terrain.own if gene.name in genome]
    if not genes:
        return None
    changed: Alleles = {}
    for _ in range(1 + int(rng.random() < 0.5)):
        gene = pick(rng, genes)
        changed[gene.name] = gene.mutate(genome[gene.name], rng)
    return genome.replace(changed)


def hinted(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Take from the hint's order, near its top, what the strategy's genes should hold."""
    order = scene.terrain.order
    listed = order.beside(genome) if order else []
    if not listed:
        return None
    return genome.replace(listed[min(int(rng.exponential(_DEPTH)), len(listed) - 1)])
