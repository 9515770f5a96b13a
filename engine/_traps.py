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
    """Counts failures and passes by region of one workload and route. Deterministic.

    Where something passed is kept allele by allele, as the set of alleles that stood beside it (a
    bit for each number): two dozen operations a pass, where a genome lies in hundreds of regions.
    """

    def __init__(self, genes: Collection[str], evidence: int = 5) -> None:
        """Start with nothing known.

        Args:
            genes: The genes that vary; one with a single allele says nothing about failures.
            evidence: Failures that close a region.
        """
        self._needed = evidence
        self._varying = frozenset(genes)
        self._numbers: dict[tuple[str, type, Allele], int] = {}
        self._pieces: dict[str, int] = {}
        self._alleles: list[tuple[str, Allele]] = []
        self._failing: dict[int, _Tally] = {}
        self._beside: list[int] = [0]
        self._passed = 0
        self._closed: dict[int, ClosedRegion] = {}
        self._passes = 0
        self._fails = 0

    def _ids(self, genome: Genome) -> list[int]:
        """Return the numbers of a genome's alleles, by gene name.

        Genomes out of a store are not parsed for this: the canonical text is cut at its commas.
        A comma inside of a value leaves pieces that are no gene with its allele and have no
        number; then, as for an allele that is new, the genome itself is looked at.
        """
        ids = list(map(self._pieces.get, genome.canonical[1:-1].split(",")))
        found = self._looked_up(genome) if None in ids else ids
        return [number for number in found if number]

    def _looked_up(self, genome: Genome) -> list[int]:
        return [self._number(name, value) for name, value in genome.alleles().items()]

    def _number(self, name: str, value: Allele) -> int:
        """Return an allele's number; 0 for a gene that does not vary."""
        key = (name, type(value), value)
        found = self._numbers.get(key)
        if found is None:
            found = 0
            if name in self._varying:
                self._alleles.append((name, value))
                self._beside.append(0)
                found = len(self._alleles)
            self._numbers[key] = found
            self._pieces[Genome("", {name: value}).canonical[1:-1]] = found
        return found

    def _keys(self, ids: list[int]) -> list[int]:
        """Return the keys of all regions that hold these alleles, single alleles first."""
        pairs = [(left << _SHIFT) | right for i, left in enumerate(ids) for right in ids[i + 1 :]]
        return ids + pairs

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
        keys = self._keys(self._ids(genome))
        ripe = [key for key in keys if self._count(key, failure, number)]
        return self._close(ripe)

    def _count(self, key: int, failure: str, number: int) -> bool:
        """Count a failure inside a region; tell whether the evidence closes it."""
        if self._has_passed(key) or key in self._closed or self._passed > _PASSED_LIMIT:
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
        ids = self._ids(genome)
        # What failed or is closed had no pass inside: only a new region can be among it.
        new = self._passed > _PASSED_LIMIT or self._mark(ids)
        if not new or not (self._failing or self._closed):
            return []
        keys = self._keys(ids)
        for key in keys:
            self._failing.pop(key, None)
        return [self._closed.pop(key) for key in keys if key in self._closed]

    def _mark(self, ids: list[int]) -> bool:
        """Note a pass in every region of these alleles; tell whether that is new of any."""
        together = 0
        for number in ids:
            together |= 1 << number
        alleles = marks = 0
        for number in ids:
            before = self._beside[number]
            if before | together != before:
                self._beside[number] = before | together
                alleles += not before
                marks += (together & ~before).bit_count()
        # A pair is marked at both of its alleles, an allele beside itself once.
        self._passed += (marks + alleles) // 2
        return marks > 0

    def _has_passed(self, key: int) -> bool:
        left, right = key >> _SHIFT, key & ((1 << _SHIFT) - 1)
        return bool(self._beside[left or right] >> right & 1)
