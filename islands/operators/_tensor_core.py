"""Tile moves: a tile is an area of work, so one side grows while another shrinks."""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Gene, Genome
from kernelarc.islands._terrain import Scene, pick

Alleles = dict[str, Allele]


def _numbers(scene: Scene, gene: Gene) -> tuple[int, ...]:
    values = scene.terrain.domains.get(gene.name, ())
    return tuple(v for v in values if type(v) is int and v > 0)


def _sides(genome: Genome, scene: Scene) -> list[Gene]:
    genes = (*scene.terrain.own, *scene.terrain.coupled)
    return [g for g in genes if g.name in genome and g.ordered and len(_numbers(scene, g)) > 1]


def area_move(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Multiply one side of the tile and divide another by the same factor.

    The first side is an own gene, the second an own one where possible, else a coupled one.
    """
    sides = _sides(genome, scene)
    first = [gene for gene in sides if gene in scene.terrain.own]
    if not first or len(sides) < 2:
        return None
    grown = pick(rng, first)
    old = genome[grown.name]
    new = pick(rng, _numbers(scene, grown))
    if type(old) is not int or new == old:
        return None
    partners = [g for g in sides if g is not grown and _partner(genome, scene, g, old, new)]
    partners = [g for g in partners if g in scene.terrain.own] or partners
    if not partners:
        return None
    shrunk = pick(rng, partners)
    return genome.replace({grown.name: new, shrunk.name: _partner(genome, scene, shrunk, old, new)})


def _partner(genome: Genome, scene: Scene, gene: Gene, old: int, new: int) -> int:
    """Return the other side's length that keeps the area, or 0 where its domain has none."""
    length = genome[gene.name]
    if type(length) is not int or length * old % new:
        return 0
    wanted = length * old // new
    return wanted if wanted in _numbers(scene, gene) else 0


def resize(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Move one or two tile genes to a neighbouring allele: the area changes."""
    changed: Alleles = {}
    for _ in range(1 + int(rng.random() < 0.3)):
        gene = scene.gene(genome, rng)
        if gene is None:
            return None
        options = gene.neighbours(genome[gene.name])
        if options:
            changed[gene.name] = pick(rng, options)
    return genome.replace(changed) if changed else None
