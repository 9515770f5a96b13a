"""Precision moves: accumulators, intermediate types and fast math are switches.

Every proposal is checked numerically before it is timed, so a toggle needs no caution here.
"""

from __future__ import annotations

import numpy as np

from kernelarc.genomes import Allele, Genome
from kernelarc.islands._terrain import Scene

Alleles = dict[str, Allele]


def toggle_all(genome: Genome, scene: Scene, rng: np.random.Generator) -> Alleles | None:
    """Draw every precision gene anew: switches that only pay together."""
    own = [gene for gene in scene.terrain.own if gene.name in genome]
    if len(own) < 2:
        return None
    return genome.replace({gene.name: gene.sample(rng) for gene in own})
