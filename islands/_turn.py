"""One call of ``ask``: its stream, its view, what it has drafted so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernelarc.genomes import Genome
from kernelarc.islands._island import View
from kernelarc.islands._traps import Traps


@dataclass(slots=True)
class Turn:
    """What lives as long as one ``ask``.

    Attributes:
        rng: The stream of this ask.
        view: What may be read.
        traps: What is closed.
        trapped_share: Share of trapped proposals that are tried anyway.
        taken: Fingerprints proposed earlier in this ask.
        bold: Whether the proposal being made may lie in a trap.
    """

    rng: np.random.Generator
    view: View
    traps: Traps
    trapped_share: float
    taken: set[str] = field(default_factory=set)
    bold: bool = False

    def next(self) -> None:
        """Begin a proposal: one in twenty may lie in a trap, however many drafts it takes."""
        self.bold = float(self.rng.random()) < self.trapped_share

    def fresh(self, genome: Genome) -> bool:
        """Tell whether a genome is new to this ask and to the log."""
        key = genome.fingerprint
        return key not in self.taken and not self.view.evaluated(key)

    def admits(self, genome: Genome) -> bool:
        """Tell whether to propose a genome: fresh, and not trapped unless the proposal is bold."""
        return self.fresh(genome) and (self.bold or not self.traps.holds(genome))
