"""Mutation and crossover operators by stable name: the registry.

Every operator is ``operator(genome, scene, rng) -> alleles``: it reads a frozen genome and
returns a new assignment, not yet repaired, or None where it does not apply. It draws from ``rng``
alone (DEAP's own operators draw from it through the fence).

========== =====================================================================
family     names
========== =====================================================================
every      neighbour.step, mutate.resample, crossover.uniform
drafting   draft.redraw, draft.hinted
library    library.algorithm, library.option
tensor_core tensor_core.area_move, tensor_core.resize
memory     memory.step, memory.trade
fusion     fusion.toggle, fusion.exchange
precision  precision.toggle, precision.toggle_all
reduction  reduction.multiply, reduction.scheme
scheduling scheduling.permute, scheduling.block, scheduling.step
blackwell  blackwell.toggle
========== =====================================================================

Beside them stand what islands propose without changing one genome: ``sample``, ``win.apply``,
``win.genome``, ``plateau.restart``, ``plateau.route``, ``plateau.algorithm``,
``sweep`` and the models' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from deap import base

from kernelarc.genomes import Allele, Genome, Strategy
from kernelarc.islands._terrain import Scene
from kernelarc.islands.operators import (
    _blackwell,
    _drafting,
    _fusion,
    _generic,
    _library,
    _memory,
    _precision,
    _reduction,
    _scheduling,
    _tensor_core,
)

Move: TypeAlias = Callable[[Genome, Scene, np.random.Generator], "dict[str, Allele] | None"]

GENERIC: Mapping[str, Move] = MappingProxyType(
    {
        "neighbour.step": _generic.step,
        "mutate.resample": _generic.resample,
        "crossover.uniform": _generic.crossover,
    }
)

FAMILIES: Mapping[Strategy, Mapping[str, Move]] = MappingProxyType(
    {
        Strategy.LIBRARY: {
            "library.algorithm": _library.algorithm,
            "library.option": _library.option,
        },
        Strategy.TENSOR_CORE: {
            "tensor_core.area_move": _tensor_core.area_move,
            "tensor_core.resize": _tensor_core.resize,
        },
        Strategy.MEMORY: {"memory.step": _memory.step, "memory.trade": _memory.trade},
        Strategy.FUSION: {"fusion.toggle": _generic.toggle, "fusion.exchange": _fusion.exchange},
        Strategy.PRECISION: {
            "precision.toggle": _generic.toggle,
            "precision.toggle_all": _precision.toggle_all,
        },
        Strategy.REDUCTION: {
            "reduction.multiply": _reduction.multiply,
            "reduction.scheme": _reduction.scheme,
        },
        Strategy.SCHEDULING: {
            "scheduling.permute": _scheduling.permute,
            "scheduling.block": _scheduling.block,
            "scheduling.step": _scheduling.step,
        },
        Strategy.BLACKWELL: {"blackwell.toggle": _blackwell.toggle},
    }
)


DRAFTING: Mapping[str, Move] = MappingProxyType(
    {"draft.redraw": _drafting.redraw, "draft.hinted": _drafting.hinted}
)
"""Beside the others, where a device refuses much: they are cheap, and nothing repairs them."""


def every_family() -> Mapping[str, Move]:
    """Return the operators of all strategies, by name."""
    return {name: move for family in FAMILIES.values() for name, move in family.items()}


def toolbox_for(family: Mapping[str, Move]) -> base.Toolbox:
    """Return a DEAP toolbox with an island's own operators and the common ones, by name."""
    toolbox = base.Toolbox()
    for name, move in (*family.items(), *GENERIC.items(), *DRAFTING.items()):
        toolbox.register(name, move)
    return toolbox


__all__ = ["DRAFTING", "FAMILIES", "GENERIC", "Move", "every_family", "toolbox_for"]
