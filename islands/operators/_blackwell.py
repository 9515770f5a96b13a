"""Blackwell moves: fifth-generation tensor cores and the memory that belongs to them."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene

Alleles = dict[str, Allele]


def toggle(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Switch one Blackwell gene, sometimes together with a second one."""
    changed: Alleles = {}
    for _ in range(1 + int(rng.random() < 0.3)):
        gene = scene.gene(genome, rng)
        if gene is not None:
            changed[gene.name] = gene.mutate(genome[gene.name], rng)
    return genome.replace(changed) if changed else None
