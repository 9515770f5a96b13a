"""Our own search with one thing changed: what it is good for shows in the difference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kernelarc.engine.comparison._ours import play_campaign
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Strategy

_WITHOUT = {
    f"without_{strategy.value}": {"without": [strategy.value]}
    for strategy in Strategy
    if strategy is not Strategy.BLACKWELL  # asleep wherever nothing is Blackwell's
}

# Campaign settings that differ from the defaults, by arm.
ARMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "isolated": {"conclusions": False, "share_log": False},
        "conclusions_only": {"share_log": False},
        "log_only": {"conclusions": False},
        "unbounded": {"retention": "unbounded"},
        **_WITHOUT,
        "without_traps": {"traps": False},
        "without_controller": {"controller": False},
        "without_optuna": {"optuna": False},
        "without_model": {"surrogate": False},
        "without_models": {"models": False},
        "two_islands": {"islands": ["tensor_core", "memory"]},
        "four_islands": {"islands": ["tensor_core", "memory", "fusion", "scheduling"]},
    }
)
ONE_ISLAND = "one_island"


def play_arm(table: Table, budget: int, seed: int, arm: str) -> list[float]:
    """Run one campaign with the arm's settings; see ``play_campaign``."""
    if arm == ONE_ISLAND:
        # Owner of every gene, whatever the rule says; it reads the whole log, being alone.
        owner = Strategy.TENSOR_CORE.value
        genes = {gene.name: owner for gene in table.genes}
        return play_campaign(table, budget, seed, {"islands": [owner], "strategy": genes})
    return play_campaign(table, budget, seed, ARMS[arm])
