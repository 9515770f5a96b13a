"""The eight strategies as islands, and how they are built for a habitat."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernelarc.genomes import Gene, InputError, Space, Strategy, nearest
from kernelarc.islands._evolving import EvolvingIsland
from kernelarc.islands._island import Habitat, Island
from kernelarc.islands._settings import IslandSettings
from kernelarc.islands.models import Ranker, Surrogate

_BLACKWELL_CAPABILITY = 100


class LibraryIsland(EvolvingIsland):
    """Which library algorithm, and the options it has: an Optuna study per algorithm."""

    owner = Strategy.LIBRARY

    def _studied(self, space: Space) -> Mapping[str, Sequence[Gene]]:
        return {"library.study": space.genes}


class TensorCoreIsland(EvolvingIsland):
    """Tile shapes, MMA shapes, warps: an Optuna study over tiles, moves that keep the area."""

    owner = Strategy.TENSOR_CORE

    def _studied(self, space: Space) -> Mapping[str, Sequence[Gene]]:
        tiles = [gene for gene in space.genes if gene.strategy is self.owner]
        return {"tensor_core.study": tiles, "tensor_core.whole_study": space.genes}


class MemoryIsland(EvolvingIsland):
    """Stages, vector width, staging, cache hints: one-step moves along ordered genes."""

    owner = Strategy.MEMORY


class FusionIsland(EvolvingIsland):
    """What is fused where: toggles, and pairs of genes exchanged with elites."""

    owner = Strategy.FUSION


class PrecisionIsland(EvolvingIsland):
    """Accumulators, intermediate types, fast math: toggles."""

    owner = Strategy.PRECISION


class ReductionIsland(EvolvingIsland):
    """Splits of the reduction and how partial results meet: multiplicative steps."""

    owner = Strategy.REDUCTION


class SchedulingIsland(EvolvingIsland):
    """Orders, persistence, clusters: permutation and block moves."""

    owner = Strategy.SCHEDULING


class BlackwellIsland(EvolvingIsland):
    """Fifth-generation tensor cores: awake only where the device has them."""

    owner = Strategy.BLACKWELL


STRATEGIES: tuple[type[EvolvingIsland], ...] = (
    LibraryIsland,
    TensorCoreIsland,
    MemoryIsland,
    FusionIsland,
    PrecisionIsland,
    ReductionIsland,
    SchedulingIsland,
    BlackwellIsland,
)


def build_islands(
    habitat: Habitat,
    *,
    only: Collection[str] | None = None,
    settings: IslandSettings | None = None,
) -> list[Island]:
    """Build one island per strategy, in a fixed order: those with genes to change are awake.

    Where none of the islands owns a gene, the first that may wake does so anyway: its generic
    operators treat all genes alike.

    Args:
        habitat: Workload, spaces and device.
        only: Names of strategies to build; all by default. An empty collection builds none.
        settings: Tuning constants; the defaults are the product's.

    Raises:
        InputError: ``only`` names no strategy (the message says the nearest).
    """
    chosen = _chosen(only)
    asleep = {island: _reason(island.owner, habitat) for island in chosen}
    if chosen and all(asleep.values()):
        able = [island for island in chosen if island is not BlackwellIsland]
        asleep[(able or chosen)[0]] = None
    settings = settings or IslandSettings()
    surrogates = {route: Surrogate(space, settings) for route, space in habitat.spaces.items()}
    rankers = {route: Ranker(space) for route, space in habitat.spaces.items()}
    return [
        island(habitat, settings, surrogates, rankers, sleeps=asleep[island]) for island in chosen
    ]


def _chosen(only: Collection[str] | None) -> list[type[EvolvingIsland]]:
    known = {island.owner.value: island for island in STRATEGIES}
    for name in only or ():
        if name not in known:
            raise InputError(f"there is no island {str(name)!r}{nearest(str(name), known)}")
    wanted = set(known if only is None else map(str, only))
    return [island for name, island in known.items() if name in wanted]


def _reason(strategy: Strategy, habitat: Habitat) -> str | None:
    """Say in one sentence why a strategy's island sleeps here, or None."""
    if not any(space.owned(strategy) for space in habitat.spaces.values()):
        return f"No gene here belongs to {strategy.value}."
    capability = habitat.capability
    if strategy is Strategy.BLACKWELL and (capability or 0) < _BLACKWELL_CAPABILITY:
        has = "none" if capability is None else f"{capability // 10}.{capability % 10}"
        return f"Needs compute capability 10.0 or newer; this device has {has}."
    return None
