"""What an island knows of one route's space before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kernelarc.genomes import Allele, Gene, Genome, Space, Strategy
from kernelarc.islands._branches import branch_genes
from kernelarc.islands._hint_order import HintOrder, hint_order

T = TypeVar("T")
_LISTED = 256  # domains up to this size are listed once


@dataclass(frozen=True, slots=True)
class Terrain:
    """One route's space as one strategy sees it. Genes with a single allele are left out.

    Attributes:
        space: The space.
        own: Genes that the strategy owns.
        coupled: Others' genes that share a constraint or a condition with an own gene.
        free: All genes that can change.
        branches: Genes on which others depend (a library's algorithm id).
        domains: Alleles by gene name, for domains small enough to list.
        order: What the route's hint says of its genes: the own ones if there are any, else those
            that belong to the owner of the first it reads. False where there is no hint.
    """

    space: Space
    own: tuple[Gene, ...]
    coupled: tuple[Gene, ...]
    free: tuple[Gene, ...]
    branches: tuple[Gene, ...]
    domains: Mapping[str, tuple[Allele, ...]]
    order: HintOrder


def survey(space: Space, strategy: Strategy) -> Terrain:
    """Look at a space with a strategy's eyes."""
    free = tuple(gene for gene in space.genes if gene.cardinality > 1)
    own = tuple(gene for gene in free if gene.strategy is strategy)
    tied = _tied({gene.name for gene in own}, space)
    read = [g for g in free if space.hint is not None and g.name in space.hint.genes]
    hinted = [g for g in read if g.strategy is strategy] or [
        g for g in read if g.strategy is read[0].strategy
    ]
    return Terrain(
        space=space,
        own=own,
        coupled=tuple(gene for gene in free if gene.name in tied and gene not in own),
        free=free,
        branches=branch_genes(space),
        domains={gene.name: gene.values() for gene in free if gene.cardinality <= _LISTED},
        order=hint_order(space, tuple(hinted)),
    )


def _tied(names: set[str], space: Space) -> set[str]:
    tied: set[str] = set()
    for constraint in space.constraints:
        if names.intersection(constraint.genes):
            tied.update(constraint.genes)
    for gene in space.genes:
        if gene.when is not None and names.intersection({gene.name, gene.when.gene}):
            tied.update({gene.name, gene.when.gene})
    return tied


def pick(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Draw one item evenly. Much cheaper than ``Generator.choice``."""
    return items[int(rng.random() * len(items))]


@dataclass(frozen=True, slots=True)
class Scene:
    """What a mutation operator sees beside the genome it changes.

    Attributes:
        terrain: The genome's route.
        mates: Elites of the same route, best first, the genome itself perhaps among them.
        bias: Chance that an own-gene operator stays with own genes, rather than a coupled one.
    """

    terrain: Terrain
    mates: tuple[Genome, ...]
    bias: float = 0.85

    def gene(
        self, genome: Genome, rng: np.random.Generator, *, ordered: bool | None = None
    ) -> Gene | None:
        """Draw an active gene to change: mostly an own one, sometimes a coupled one.

        Args:
            genome: Whose active genes count.
            rng: The stream.
            ordered: Only ordered genes (True), only unordered ones (False), or any.
        """
        terrain = self.terrain
        genes = terrain.own
        if not genes or (terrain.coupled and rng.random() >= self.bias):
            genes = terrain.coupled or terrain.free
        fitting = [
            gene
            for gene in genes
            if gene.name in genome and (ordered is None or gene.ordered == ordered)
        ]
        return pick(rng, fitting) if fitting else None

    def mate(self, genome: Genome, rng: np.random.Generator) -> Genome | None:
        """Draw another elite of the same route."""
        others = [mate for mate in self.mates if mate.fingerprint != genome.fingerprint]
        return pick(rng, others) if others else None
