"""What an output must be, available row by row so that large ones are compared within caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"


class Reference(ABC):
    """Exact outputs for one set of inputs, in float64."""

    @abstractmethod
    def rows(self, output: str, start: int, stop: int) -> NDArray[np.generic]:
        """Return rows ``start`` to ``stop`` along the first axis of one output."""


class WholeReference(Reference):
    """Outputs that were computed whole."""

    def __init__(self, outputs: Arrays) -> None:
        self._outputs = outputs

    def rows(self, output: str, start: int, stop: int) -> NDArray[np.generic]:
        """Return rows of one output; a 0-D output has no rows and comes whole."""
        whole = self._outputs[output]
        return whole[start:stop] if whole.ndim else whole


class ValueSource(ABC):
    """Fills the inputs of one workload, again and again, and knows the exact answer each time."""

    @abstractmethod
    def fill(self, inputs: Arrays, rng: np.random.Generator) -> Reference:
        """Write fresh values into every input; return what the outputs must be."""

    @abstractmethod
    def stir(self, inputs: Arrays, reference: Reference, rng: np.random.Generator) -> Reference:
        """Change values in place, cheaply and such that the outputs change; return the new answer.

        Args:
            inputs: As ``fill`` or ``stir`` left them.
            reference: What that call returned; of no use afterwards.
            rng: Where values and places are drawn from.
        """
