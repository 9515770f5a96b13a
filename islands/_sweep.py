"""Walking a small space in its fixed order, for when random drafts only repeat what is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kernelarc.genomes import Genome, Space


class Sweep:
    """Finds the first genome of a space, in enumeration order, that is not evaluated yet.

    The place it has reached is a cache: behind it lie evaluated genomes only.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._ahead: Iterator[Genome] | None = None
        self._waiting: deque[Genome] = deque()

    def first(
        self, evaluated: Callable[[str], bool], admitted: Callable[[Genome], bool]
    ) -> Genome | None:
        """Return the first genome that is admitted, or None when there is none left."""
        if self._ahead is None:
            self._ahead = self._space.enumerate()
        while self._waiting and evaluated(self._waiting[0].fingerprint):
            self._waiting.popleft()
        for genome in self._waiting:
            if admitted(genome):
                return genome
        for genome in self._ahead:
            if self._waiting or not evaluated(genome.fingerprint):
                self._waiting.append(genome)
            if admitted(genome):
                return genome
        return None
