"""Genes that decide what else there is to choose, and which of their alleles to try next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from kernelarc.genomes import Allele, AllowedAlleles, Gene, Judged, Space, same_allele
from kernelarc.islands._population import fitness_of

_LEAST_DEPENDENT = 3  # domains that hang on a gene before it counts as a branch
_CURIOSITY = 0.15  # what an arm that was hardly tried is forgiven, in log time


def branch_genes(space: Space) -> tuple[Gene, ...]:
    """Return genes that others' conditions name, and those on which several domains depend.

    A library's algorithm id is one: most of what else there is to choose hangs on it.
    """
    parents = {gene.when.gene for gene in space.genes if gene.when is not None}
    dependent = Counter(
        rule.genes[0] for rule in space.constraints if isinstance(rule, AllowedAlleles)
    )
    parents |= {name for name, count in dependent.items() if count >= _LEAST_DEPENDENT}
    return tuple(g for g in space.genes if g.name in parents and g.cardinality > 1)


def arm(gene: Gene, log: Sequence[Judged], rng: np.random.Generator) -> Allele | None:
    """Return the allele that a bandit plays next: how good its best is, and how little is known.

    Only alleles that were evaluated are arms: a library's heuristics try each algorithm once.

    Returns:
        None while the log says nothing of the gene.
    """
    found: list[tuple[Allele, list[float]]] = []
    for judged in log:
        genome, fitness = judged.evaluation.candidate.genome, fitness_of(judged)
        if gene.name not in genome or fitness is None:
            continue
        allele = genome[gene.name]
        known = next((times for other, times in found if same_allele(other, allele)), None)
        if known is None:
            found.append((allele, [fitness]))
        else:
            known.append(fitness)
    if not found:
        return None
    total = sum(len(times) for _, times in found)
    ties = rng.random(len(found))
    worth = [
        (max(times) + _CURIOSITY * math.sqrt(math.log(total + 1) / len(times)), ties[i], i)
        for i, (_, times) in enumerate(found)
    ]
    return found[max(worth)[2]][0]
