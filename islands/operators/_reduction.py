"""Reduction moves: splits are factors, so steps multiply."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Gene, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]

_FACTORS = (0.25, 0.5, 2.0, 4.0)


def multiply(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Multiply an ordered numeric gene by a power of two, to the nearest allele there is."""
    gene = scene.gene(genome, rng, ordered=True)
    if gene is None:
        return None
    old = genome[gene.name]
    if isinstance(old, bool) or not isinstance(old, int | float) or old <= 0:
        return genome.replace({gene.name: gene.mutate(old, rng)})
    new = _nearest(scene, gene, old * pick(rng, _FACTORS))
    return None if new is None or new == old else genome.replace({gene.name: new})


def _nearest(scene: Scene, gene: Gene, wanted: float) -> Allele | None:
    values = scene.terrain.domains.get(gene.name)
    if values is None:
        return round(wanted) if gene.contains(round(wanted)) else None
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return min(numbers, key=lambda v: (abs(v - wanted), v)) if numbers else None


def scheme(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Switch an unordered gene (the way partial results meet) and redraw the split beside it."""
    gene = scene.gene(genome, rng, ordered=False)
    if gene is None:
        return None
    changed: Alleles = {gene.name: gene.mutate(genome[gene.name], rng)}
    beside = [g for g in scene.terrain.own if g is not gene and g.name in genome]
    if beside and rng.random() < 0.5:
        split = pick(rng, beside)
        changed[split.name] = split.mutate(genome[split.name], rng)
    return genome.replace(changed)
