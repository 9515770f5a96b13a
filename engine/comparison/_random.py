"""Random search: what it is expected to reach, exactly, and runs of it as a control."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine.comparison._play import Play
from kernelarc.engine.comparison._table import Table


def play_random(table: Table, budget: int, seed: int) -> list[float]:
    """Draw legal genomes evenly, none twice."""
    play = Play(table, budget)
    for row in np.random.default_rng(seed).permutation(len(table.objectives))[:budget]:
        play.evaluate(int(row))
    return play.objectives


def chance_of_best(table: Table, length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distribution of the best after n draws without repetition, exactly.

    Returns:
        The objectives in rising order with the worst repeated for "none has worked", shape
        (k + 1,); and the chance that the best of n draws is no better than each of them, shape
        (length, k + 1), row 0 for one draw.
    """
    working = np.sort(table.objectives[~np.isnan(table.objectives)])
    total, k = len(table.objectives), len(working)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    at_least = np.zeros((length, k + 1))
    # The best is no better than the i-th when all draws lie among the total - i others.
    others = total - np.arange(k + 1)
    for place in range(length):
        draws = min(place + 1, total)
        possible = others[others >= draws]
        chance = logs[possible] - logs[possible - draws] - (logs[total] - logs[total - draws])
        at_least[place, : len(possible)] = np.exp(chance)
    return np.append(working, working[-1]), at_least


def expected_best(table: Table, length: int) -> NDArray[np.float64]:
    """Return the expected best of random search after 1, 2, ... evaluations, shape (length,)."""
    objectives, at_least = chance_of_best(table, length)
    exactly = at_least - np.append(at_least[:, 1:], np.zeros((length, 1)), axis=1)
    mean: NDArray[np.float64] = exactly @ objectives
    return mean


def median_best(table: Table, length: int) -> NDArray[np.float64]:
    """Return the median best of random search after 1, 2, ... evaluations, shape (length,)."""
    objectives, at_least = chance_of_best(table, length)
    places = (at_least > 0.5).sum(axis=1) - 1
    found: NDArray[np.float64] = objectives[places]
    return found


def chance_of_optimum(table: Table, budget: int) -> float:
    """Return the chance that random search meets an optimum within the budget."""
    _, at_least = chance_of_best(table, budget)
    optima = int((table.objectives == table.optimum).sum())
    return 1.0 - float(at_least[-1, optima])
