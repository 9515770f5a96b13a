"""When failures become traps: the evidence rule.

A failing genome is never evaluated again, so its own trap costs nothing. A *region* (one allele,
or two together) is closed only after ``evidence`` different genomes failed inside it with one
failure class, none passed, and failing is not simply what most genomes do. One pass inside takes
the region back. Timeouts and slowness close nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernelarc.genomes import Allele, Genome, Status

Region = tuple[tuple[str, Allele], ...]

# Beyond this many regions with a pass inside, domains are so wide that pairs of alleles hardly
# recur: no further region is closed, and memory stays bounded.
_PASSED_LIMIT = 200_000
# Alleles are numbered from 1; a region's key is one number, or two side by side.
_SHIFT = 24

_CLOSING = frozenset({Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT})


@dataclass(slots=True)
class _Tally:
    failure: str
    numbers: list[int]


@dataclass(frozen=True, slots=True)
class ClosedRegion:
    """A region that the evidence closes: its alleles, failure class and candidate numbers."""

    region: Region
    failure: str
    evidence: tuple[int, ...]


class TrapEvidence:
    """Counts failures and passes by region of one workload and route. Deterministic."""

    def __init__(self, genes: Collection[str], evidence: int = 5) -> None:
        """Start with nothing known.

        Args:
            genes: The genes that vary; one with a single allele says nothing about failures.
            evidence: Failures that close a region.
        """
        # One fixed order: the same evidence gives the same numbers, live or read from a log.
        self._genes = sorted(genes)
        self._needed = evidence
        self._numbers: dict[tuple[str, type, Allele], int] = {}
        self._alleles: list[tuple[str, Allele]] = []
        self._failing: dict[int, _Tally] = {}
        self._passed: set[int] = set()
        self._closed: dict[int, ClosedRegion] = {}
        self._passes = 0
        self._fails = 0

    def _keys(self, genome: Genome) -> list[int]:
        """Return the keys of all regions a genome lies in, single alleles first."""
        ids = [self._number(name, genome[name]) for name in self._genes if name in genome]
        pairs = [(left << _SHIFT) | right for i, left in enumerate(ids) for right in ids[i + 1 :]]
        return ids + pairs

    def _number(self, name: str, value: Allele) -> int:
        key = (name, type(value), value)
        found = self._numbers.get(key)
        if found is None:
            self._alleles.append((name, value))
            found = self._numbers[key] = len(self._alleles)
        return found

    def _region(self, key: int) -> Region:
        parts = (key >> _SHIFT, key & ((1 << _SHIFT) - 1))
        return tuple(self._alleles[part - 1] for part in parts if part)

    def failed(
        self, genome: Genome, status: Status, failure: str, number: int
    ) -> list[ClosedRegion]:
        """Count one failure; return the regions that it closes (smallest first, at most one)."""
        if status not in _CLOSING:
            return []
        self._fails += 1
        ripe = [key for key in self._keys(genome) if self._count(key, failure, number)]
        return self._close(ripe)

    def _count(self, key: int, failure: str, number: int) -> bool:
        """Count a failure inside a region; tell whether the evidence closes it."""
        if key in self._passed or key in self._closed or len(self._passed) > _PASSED_LIMIT:
            return False
        tally = self._failing.get(key)
        if tally is None or tally.failure != failure:
            # A second class inside the region restarts the count: one cause, one trap.
            self._failing[key] = _Tally(failure, [number])
            return False
        tally.numbers.append(number)
        return len(tally.numbers) >= self._needed and self._surprising(len(tally.numbers))

    def _surprising(self, failures: int) -> bool:
        share = (self._fails + 1) / (self._fails + self._passes + 2)
        return bool(share**failures < 0.01)

    def _close(self, ripe: list[int]) -> list[ClosedRegion]:
        for key in ripe:
            region = self._region(key)
            inside = set(region)
            if not any(set(known.region) <= inside for known in self._closed.values()):
                tally = self._failing.pop(key)
                self._closed[key] = ClosedRegion(region, tally.failure, tuple(tally.numbers))
                return [self._closed[key]]
        return []

    def passed(self, genome: Genome) -> list[ClosedRegion]:
        """Count one pass; return the closed regions that it opens again."""
        self._passes += 1
        keys = self._keys(genome)
        if len(self._passed) <= _PASSED_LIMIT:
            self._passed.update(keys)
        if not self._failing and not self._closed:
            return []
        for key in self._failing.keys() & set(keys):
            del self._failing[key]
        return [self._closed.pop(key) for key in keys if key in self._closed]
