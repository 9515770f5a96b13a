"""When failures become traps: the evidence rule.

A failing genome is never evaluated again, so its own trap costs nothing. A *region* (one allele,
or two together) is closed only after ``evidence`` different genomes failed inside it with one
failure class, none passed, and failing is not simply what most genomes do. One pass inside takes
the region back. Timeouts and slowness close nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from kernelarc.genomes import Allele, Genome, Status, allele_text

Region = tuple[tuple[str, Allele], ...]
RegionKey = tuple[str, ...]

# Beyond this many regions with a pass inside, domains are so wide that pairs of alleles hardly
# recur: no further region is closed, and memory stays bounded.
_PASSED_LIMIT = 200_000

_CLOSING = frozenset({Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT})


@dataclass(slots=True)
class _Tally:
    failure: str
    numbers: list[int]


def _regions(genome: Genome) -> Iterator[tuple[RegionKey, Region]]:
    parts = [(f"{name}={allele_text(value)}", (name, value)) for name, value in genome.items()]
    for text, part in parts:
        yield (text,), (part,)
    for (left, one), (right, two) in combinations(parts, 2):
        yield (left, right), (one, two)


@dataclass(frozen=True, slots=True)
class ClosedRegion:
    """A region that the evidence closes: its alleles, failure class and candidate numbers."""

    key: RegionKey
    region: Region
    failure: str
    evidence: tuple[int, ...]


class TrapEvidence:
    """Counts failures and passes by region of one workload and route. Deterministic."""

    def __init__(self, evidence: int = 5) -> None:
        self._needed = evidence
        self._failing: dict[RegionKey, _Tally] = {}
        self._passed: set[RegionKey] = set()
        self._closed: dict[RegionKey, ClosedRegion] = {}
        self._passes = 0
        self._fails = 0

    def failed(
        self, genome: Genome, status: Status, failure: str, number: int
    ) -> list[ClosedRegion]:
        """Count one failure; return the regions that it closes (smallest first, at most one)."""
        if status not in _CLOSING:
            return []
        self._fails += 1
        ripe = [
            closed
            for key, region in _regions(genome)
            if (closed := self._count(key, region, failure, number)) is not None
        ]
        return self._close(ripe)

    def _count(
        self, key: RegionKey, region: Region, failure: str, number: int
    ) -> ClosedRegion | None:
        if key in self._passed or key in self._closed or len(self._passed) > _PASSED_LIMIT:
            return None
        tally = self._failing.get(key)
        if tally is None or tally.failure != failure:
            # A second class inside the region restarts the count: one cause, one trap.
            self._failing[key] = _Tally(failure, [number])
            return None
        tally.numbers.append(number)
        if len(tally.numbers) < self._needed or not self._surprising(len(tally.numbers)):
            return None
        return ClosedRegion(key, region, failure, tuple(tally.numbers))

    def _surprising(self, failures: int) -> bool:
        share = (self._fails + 1) / (self._fails + self._passes + 2)
        return share**failures < 0.01

    def _close(self, ripe: list[ClosedRegion]) -> list[ClosedRegion]:
        for closed in ripe:
            if not any(set(known) <= set(closed.key) for known in self._closed):
                self._closed[closed.key] = closed
                return [closed]
        return []

    def passed(self, genome: Genome) -> list[ClosedRegion]:
        """Count one pass; return the closed regions that it opens again."""
        self._passes += 1
        opened = []
        full = len(self._passed) > _PASSED_LIMIT
        for key, _ in _regions(genome):
            if not full:
                self._passed.add(key)
            self._failing.pop(key, None)
            if (closed := self._closed.pop(key, None)) is not None:
                opened.append(closed)
        return opened
