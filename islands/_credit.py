"""Credit per mutation operator, and the choice among operators that it leads to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelarc.genomes import Verdict

_KEPT = 1.0
_ACCEPTED = 0.4
_BETTER = 0.25
_PRIOR_TRIALS = 4.0


@dataclass(slots=True)
class _Account:
    told: int = 0
    keeps: int = 0
    trials: float = 0.0
    reward: float = 0.0


class Credit:
    """Probability matching: an operator's chance is its prior weight times its faded reward."""

    def __init__(self, *, memory: int, floor: float) -> None:
        self._fade = math.exp(-1.0 / memory)
        self._floor = floor
        self._accounts: dict[str, _Account] = {}
        self._total = _Account()

    def record(self, name: str, verdict: Verdict, *, better: bool) -> None:
        """Book one told outcome.

        Args:
            name: The operator.
            verdict: What the guardrails said.
            better: Whether it measured better than its direct parent.
        """
        account, total, fade = self._accounts.get(name), self._total, self._fade
        if account is None:
            account = self._accounts[name] = _Account()
        reward = _BETTER if better else 0.0
        if verdict is Verdict.KEEP:
            account.keeps += 1
            reward = _KEPT
        elif verdict is Verdict.ACCEPT:
            reward = _ACCEPTED
        account.told += 1
        account.trials = account.trials * fade + 1.0
        account.reward = account.reward * fade + reward
        total.trials = total.trials * fade + 1.0
        total.reward = total.reward * fade + reward

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Return (told, KEEPs) by operator, in the order of first use."""
        return {name: (a.told, a.keeps) for name, a in self._accounts.items()}

    def score(self, name: str) -> float:
        """Return the expected reward, drawn towards the island's mean where little is known."""
        mean = (self._total.reward + 0.2) / (self._total.trials + 1.0)
        account = self._accounts.get(name)
        if account is None:
            return mean
        return (account.reward + _PRIOR_TRIALS * mean) / (account.trials + _PRIOR_TRIALS)

    def chances(self, priors: Mapping[str, float]) -> dict[str, float]:
        """Return each operator's probability; every one keeps at least the floor's share."""
        raw = {name: prior * self.score(name) for name, prior in priors.items()}
        total = sum(raw.values()) or 1.0
        lifted = {name: max(value / total, self._floor) for name, value in raw.items()}
        return {name: value / sum(lifted.values()) for name, value in lifted.items()}


def draw(rng: np.random.Generator, names: Sequence[str], chances: Sequence[float]) -> str:
    """Draw one name by its probability."""
    point = float(rng.random()) * sum(chances)
    for name, chance in zip(names, chances, strict=True):
        point -= chance
        if point < 0.0:
            return name
    return names[-1]
