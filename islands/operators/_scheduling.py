"""Scheduling moves: orders are permuted, and settings that belong together move as a block."""

from __future__ import annotations

import numpy as np
from deap import tools

from kernelarc.genomes import Allele, Gene, Genome, Permutation, same_allele
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def permute(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Shuffle a few places of a permutation gene (DEAP), or let two alike genes swap alleles.

    Must run inside a fenced block: DEAP draws the numbers.
    """
    own = [gene for gene in scene.terrain.own if gene.name in genome]
    orders = [gene for gene in own if isinstance(gene, Permutation)]
    if not orders:
        return _swap(genome, own, rng)
    gene = pick(rng, orders)
    old = genome[gene.name]
    assert isinstance(old, tuple)
    (shuffled,) = tools.mutShuffleIndexes(list(old), 1.5 / len(old))
    return genome.replace({gene.name: tuple(shuffled)})


def _swap(genome: Genome, genes: list[Gene], rng: np.random.Generator) -> Alleles | None:
    pairs = [
        (left.name, right.name)
        for i, left in enumerate(genes)
        for right in genes[i + 1 :]
        if not same_allele(genome[left.name], genome[right.name])
        and left.contains(genome[right.name])
        and right.contains(genome[left.name])
    ]
    if not pairs:
        return None
    one, other = pick(rng, pairs)
    return genome.replace({one: genome[other], other: genome[one]})


def block(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Draw two or more neighbouring own genes anew, together."""
    own = [gene for gene in scene.terrain.own if gene.name in genome]
    if not own:
        return None
    start = int(rng.random() * len(own))
    length = 2 + int(rng.random() < 0.3)
    return genome.replace({g.name: g.sample(rng) for g in own[start : start + length]})


def step(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Move one scheduling gene to a neighbouring allele."""
    gene = scene.gene(genome, rng)
    if gene is None:
        return None
    options = gene.neighbours(genome[gene.name])
    return genome.replace({gene.name: pick(rng, options)}) if options else None
