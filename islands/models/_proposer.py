"""The contract of a model that proposes genomes from the evaluations that may be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kernelarc.genomes import Genome
from kernelarc.islands._turn import Turn


class Proposer(Protocol):
    """Proposes from the readable log. Whatever it keeps between calls is only a cache.

    Attributes:
        name: Stable name of the operator that proposals are credited to.
    """

    name: str

    def propose(
        self, turn: Turn, parent: Genome | None, draft: Callable[[], Genome | None]
    ) -> Genome | None:
        """Return an admitted legal genome, or None when the model has nothing to say.

        Args:
            turn: The ask's stream, view and admission.
            parent: An elite of the island: genes the model does not cover are taken from it.
            draft: Makes a legal genome of the parent's route by the island's operators, or None.
        """
