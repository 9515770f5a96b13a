"""Who proposes: strategies, mutation and crossover operators, models, Optuna samplers.

- the contract: Island, Habitat, View
- the eight: LibraryIsland, TensorCoreIsland, MemoryIsland, FusionIsland, PrecisionIsland,
  ReductionIsland, SchedulingIsland, BlackwellIsland, made by build_islands
- tuning: IslandSettings
"""

from kernelarc.islands._eight import (
    BlackwellIsland,
    FusionIsland,
    LibraryIsland,
    MemoryIsland,
    PrecisionIsland,
    ReductionIsland,
    SchedulingIsland,
    TensorCoreIsland,
    build_islands,
)
from kernelarc.islands._evolving import EvolvingIsland
from kernelarc.islands._fence import fenced
from kernelarc.islands._island import Habitat, Island, View
from kernelarc.islands._settings import IslandSettings

__all__ = [
    "BlackwellIsland",
    "EvolvingIsland",
    "FusionIsland",
    "Habitat",
    "Island",
    "IslandSettings",
    "LibraryIsland",
    "MemoryIsland",
    "PrecisionIsland",
    "ReductionIsland",
    "SchedulingIsland",
    "TensorCoreIsland",
    "View",
    "build_islands",
    "fenced",
]
