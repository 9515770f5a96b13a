"""Traps an island has been told of: exact genomes and regions, until they are retracted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelarc.genomes import Allele, Conclusion, ConclusionKind, Genome, same_allele


@dataclass(frozen=True, slots=True)
class _Region:
    route: str
    alleles: Mapping[str, Allele]

    def holds(self, genome: Genome) -> bool:
        return genome.route == self.route and all(
            name in genome and same_allele(genome[name], allele)
            for name, allele in self.alleles.items()
        )


class Traps:
    """What is closed at the moment. The oldest traps are forgotten above ``limit`` of each kind."""

    def __init__(self, workload: str, limit: int = 4096) -> None:
        self._workload = workload
        self._limit = limit
        self._exact: dict[str, str] = {}
        self._regions: dict[str, _Region] = {}
        self._trapped: set[str] = set()

    def receive(self, conclusion: Conclusion) -> None:
        """Take in a trap of this workload or a retraction; other conclusions are not ours."""
        if conclusion.kind is ConclusionKind.RETRACTION:
            self._forget(conclusion.retracts or "")
        elif conclusion.kind is ConclusionKind.TRAP and conclusion.workload == self._workload:
            self._close(conclusion)

    def holds(self, genome: Genome) -> bool:
        """Tell whether the genome is trapped."""
        if genome.fingerprint in self._trapped:
            return True
        return any(region.holds(genome) for region in self._regions.values())

    def _close(self, conclusion: Conclusion) -> None:
        key = conclusion.fingerprint
        if conclusion.region:
            self._regions[key] = _Region(conclusion.route, dict(conclusion.region))
            self._trim(self._regions)
        elif conclusion.genome is not None:
            self._exact[key] = conclusion.genome.fingerprint
            self._trim(self._exact)
            self._trapped = set(self._exact.values())

    def _trim(self, traps: dict[str, str] | dict[str, _Region]) -> None:
        while len(traps) > self._limit:
            del traps[next(iter(traps))]

    def _forget(self, key: str) -> None:
        self._regions.pop(key, None)
        if self._exact.pop(key, None) is not None:
            self._trapped = set(self._exact.values())
