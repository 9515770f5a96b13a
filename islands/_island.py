"""The contract of an island: what may change, what it may see, what makes it reproducible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelarc.genomes import Conclusion, Genome, Judged, Proposal, Space, Strategy


class View(Protocol):
    """Read-only cross-island state for one workload. An island never copies individuals from it.

    With the log readable, ``recent`` and ``best`` show every island's evaluations; with it
    closed (for ablation), only the asking island's own.
    """

    def evaluated(self, fingerprint: str) -> bool:
        """Tell whether a genome was evaluated, is in flight, or is known from the store."""

    def recent(self, n: int) -> Sequence[Judged]:
        """Return the newest evaluations, oldest first, at most ``n``."""

    def best(self, n: int) -> Sequence[Judged]:
        """Return the best OK evaluations, best first (ties by fingerprint), at most ``n``."""

    def count(self) -> int:
        """Return how many evaluations there are in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habitat:
    """Everything an island is made for: one workload on one device.

    Attributes:
        spaces: By route name; at least one. Every gene carries a strategy.
        axes: The workload's, for wins that say on which shapes they hold.
        capability: Compute capability of the device times ten (90 for Hopper),
            or None where it has none (``cpu``); on ``replay`` the recorded device's.
        plateau: Measured non-improvements after which the island must change route or restart.
    """

    spaces: Mapping[str, Space]
    workload: str
    axes: Mapping[str, int] = field(default_factory=dict)
    capability: int | None = None
    plateau: int = 60


class Island(ABC):
    """One population with its own mutation operators. Never touches a device or the store.

    Reproducibility: every random number comes from the ``rng`` handed to ``ask``. ``ask`` leaves
    no trace that the next ``tell`` or ``receive`` does not restore: an island built anew and
    given the same sequence of ``tell`` and ``receive`` calls answers every ``ask`` alike. Resume
    relies on it.

    Attributes:
        name: Unique in the campaign; the strategy's value unless there are several.
        strategy: Whose genes it mutates first.
    """

    name: str
    strategy: Strategy

    @abstractmethod
    def asleep(self) -> str | None:
        """Say in one sentence why this island has nothing to propose here, or None if awake."""

    def advise(self, factors: Mapping[str, float]) -> None:
        """Hear by what to multiply its operators' chances, until the next call; no duty.

        Whoever asks says it before each ``ask`` or ``draft``, so it is no state of the island's.
        """
        del factors

    @abstractmethod
    def ask(self, n: int, rng: np.random.Generator, view: View) -> list[Proposal]:
        """Propose up to ``n`` different legal genomes, none of them evaluated where avoidable.

        Fewer, or none, is a legal answer: the engine gives the rest of the budget away.
        """

    def draft(self, n: int, rng: np.random.Generator, view: View) -> list[Proposal]:
        """Propose up to ``n`` genomes cheaply, for a device that refuses many: ``choose`` follows.

        They are legal in the space and new; what the device takes of them is handed back.
        """
        return self.ask(n, rng, view)

    def choose(
        self, drafts: Sequence[Proposal], n: int, rng: np.random.Generator, view: View
    ) -> list[Proposal]:
        """Choose up to ``n`` of this island's drafts, all of which the device takes."""
        del rng, view
        return list(drafts[:n])

    @abstractmethod
    def tell(self, judged: Sequence[Judged]) -> None:
        """Learn the outcomes of this island's own candidates, in ask order."""

    @abstractmethod
    def receive(self, conclusions: Sequence[Conclusion]) -> None:
        """Learn conclusions (wins, traps, retractions), its own included, each at most once."""

    @abstractmethod
    def elites(self) -> Sequence[Genome]:
        """Return the current best individuals, best first."""

    @abstractmethod
    def credit(self) -> Mapping[str, tuple[int, int]]:
        """Return per mutation operator (told, KEEPs): the basis of status and of the bandit."""
