"""Our own search with one thing changed: what it is good for shows in the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernelarc.engine._identity import capability_of
from kernelarc.engine.comparison._ours import play_campaign
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import InputError, Strategy, nearest

# Campaign settings that differ from the defaults, by arm. The full program keeps 16 wins and 16
# traps in mind, lets all islands that have genes take part, and everything else is on.
ARMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "isolated": {"conclusions": False, "share_log": False},
        "conclusions_only": {"share_log": False},
        "log_only": {"conclusions": False},
        "unbounded": {"retention": "unbounded"},
        **{f"without_{strategy.value}": {"without": [strategy.value]} for strategy in Strategy},
        "without_traps": {"traps": False},
        "without_controller": {"controller": False},
        "without_optuna": {"optuna": False},
        "without_model": {"surrogate": False},
        "without_models": {"models": False},
    }
)
# Among so many islands, each with genes of its own, all genes are divided. One is the whole
# program in one population: every gene, every operator, the models and all of the budget.
DIVIDED: Mapping[str, int] = MappingProxyType(
    {"one_island": 1, "two_islands": 2, "four_islands": 4, "eight_islands": 8}
)
ARM_NAMES = (*DIVIDED, *ARMS)

_CAPABILITY_OF_BLACKWELL = 100
_BY_IMPORTANCE = (
    Strategy.TENSOR_CORE,
    Strategy.MEMORY,
    Strategy.SCHEDULING,
    Strategy.FUSION,
    Strategy.REDUCTION,
    Strategy.PRECISION,
    Strategy.LIBRARY,
    Strategy.BLACKWELL,
)


def arms_named(names: Sequence[str]) -> tuple[str, ...]:
    """Return arms by name, each once; none named is all of them.

    Raises:
        InputError: A name is unknown; the message says the nearest.
    """
    for name in names:
        if name not in ARM_NAMES:
            raise InputError(f"--arms: unknown arm {name!r}{nearest(name, ARM_NAMES)}")
    return tuple(dict.fromkeys(names)) or ARM_NAMES


def arm_settings(table: Table, arm: str) -> Mapping[str, Any] | None:
    """Return the campaign settings that an arm changes on a table.

    None where it changes nothing: the strategy that it removes has no gene there and sleeps, or
    the table has too few genes (or no Blackwell device) for so many islands.
    """
    if arm in DIVIDED:
        return _divided(table, DIVIDED[arm])
    settings = ARMS[arm]
    awake = _awake(table)
    if any(Strategy(name) not in awake for name in settings.get("without", ())):
        return None
    if settings.get("without") == [strategy.value for strategy in awake]:
        return None  # nobody would be left to search
    return settings


def play_arm(
    table: Table, budget: int, seed: int, arm: str, until: float | None = None
) -> list[float]:
    """Run one campaign with the arm's settings; see ``play_campaign``."""
    return play_campaign(table, budget, seed, arm_settings(table, arm), until=until)


def _awake(table: Table) -> list[Strategy]:
    able = _able(table)
    owners = {gene.strategy for gene in table.genes}
    return [strategy for strategy in _BY_IMPORTANCE if strategy in owners and strategy in able]


def _able(table: Table) -> list[Strategy]:
    """Return the strategies whose islands may wake on the table's device."""
    capability = capability_of(table.device.environment().identity) or 0
    return [
        strategy
        for strategy in _BY_IMPORTANCE
        if strategy is not Strategy.BLACKWELL or capability >= _CAPABILITY_OF_BLACKWELL
    ]


def _divided(table: Table, count: int) -> Mapping[str, Any] | None:
    """Divide the genes among ``count`` islands; each keeps its owner where that takes part.

    The islands are those that own most already. A gene whose owner stays away goes to the island
    with the fewest; an island without a gene gets one of the island with the most.
    """
    free = [gene for gene in table.genes if gene.cardinality > 1]
    able = _able(table)
    if len(free) < count or len(able) < count:
        return None
    owned = {s: [g.name for g in free if g.strategy is s] for s in able}
    chosen = sorted(able, key=lambda s: -len(owned[s]))[:count]
    if count == 1:
        chosen = [Strategy.TENSOR_CORE]  # alone it has all operators, and its studies are over all
    given = {strategy: list(owned[strategy]) for strategy in chosen}
    for gene in free:
        if gene.strategy not in chosen:
            min(given.values(), key=len).append(gene.name)
    for names in given.values():
        if not names:
            names.append(max(given.values(), key=len).pop())
    fixed = {gene.name: chosen[0].value for gene in table.genes if gene.cardinality == 1}
    dealt = {name: strategy.value for strategy, names in given.items() for name in names}
    return {"islands": [strategy.value for strategy in chosen], "strategy": {**fixed, **dealt}}
