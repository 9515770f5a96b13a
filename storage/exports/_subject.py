"""What is exported: a campaign with its bests and, per workload, one row for each genome."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelarc.genomes import (
    Evaluation,
    Genome,
    Measurement,
    Operator,
    Status,
    Verdict,
    Workload,
)
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.storage._contract import Best, CampaignRow, ContestRecord, StoreReader

_SILENT = frozenset({Status.REJECTED, Status.INTERRUPTED})
# Far below any clock's resolution, far above what a conversion of units rounds away.
_JUST_ABOVE = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GenomeRow:
    """What a campaign knows of one genome on one workload.

    Attributes:
        objective: What tables of other tools rank by; None unless it worked. Where a single
            measurement looked better than the best although the claim was refused, this is
            what its contest found, and never better than the best.
        measured: The single measurement's own number.
        audited: Whether it is the best and an audit upheld it.
    """

    evaluation: Evaluation
    verdict: Verdict
    objective: float | None
    best: bool
    audited: bool

    @property
    def genome(self) -> Genome:
        """The genome."""
        return self.evaluation.candidate.genome

    @property
    def measured(self) -> float | None:
        """The single measurement's own number."""
        timed = self.evaluation.measurement
        return None if timed is None else timed.objective


@dataclass(frozen=True, slots=True)
class Subject:
    """A campaign as exporters see it."""

    reader: StoreReader
    campaign: CampaignRow
    bests: Sequence[Best]

    @property
    def operator(self) -> Operator:
        """The campaign's operator."""
        return self.campaign.spec.problem.operator

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The campaign's workloads, in its order."""
        return self.campaign.spec.problem.workloads

    def device(self, arch: str) -> DeviceLimits:
        """Return an architecture's device with as many multiprocessors as were measured on."""
        told = self.campaign.environment.identity.get("multiprocessors", "")
        usual = DeviceLimits.of_arch(arch)
        return replace(usual, multiprocessors=int(told)) if told.isdigit() else usual

    @property
    def device_label(self) -> str:
        """What people call the device that was measured on."""
        identity = self.campaign.environment.identity
        device = identity.get("device", self.campaign.spec.device)
        named = identity.get("cpu", device) if device == "cpu" else device
        return named.partition(" (")[0].strip() or "unknown"

    def best(self, workload: Workload) -> Best | None:
        """Return what stands as best of a workload."""
        return next((b for b in self.bests if b.workload == workload.fingerprint), None)

    def rows(self, workload: Workload) -> list[GenomeRow]:
        """Return one row for each genome that was tried, in the order first asked.

        Of several evaluations a measurement counts before a failure, a whole one before a
        censored one, and the newest among equals. Rejected and interrupted ones say nothing.
        """
        best = self.best(workload)
        refused = _contest_medians(
            self.reader.contests(self.campaign.id), workload.fingerprint, best
        )
        return [_ranked(row, best, refused) for row in self._chosen(workload)]

    def _chosen(self, workload: Workload) -> Iterator[GenomeRow]:
        chosen: dict[str, GenomeRow] = {}
        for judged in self.reader.evaluations(self.campaign.id, workload=workload.fingerprint):
            evaluation = judged.evaluation
            name = evaluation.candidate.genome.fingerprint
            if evaluation.status in _SILENT or (
                name in chosen and _worth(evaluation) < _worth(chosen[name].evaluation)
            ):
                continue
            chosen[name] = GenomeRow(
                evaluation=evaluation,
                verdict=judged.verdict,
                objective=None,
                best=False,
                audited=False,
            )
        yield from chosen.values()


def _worth(evaluation: Evaluation) -> int:
    timed: Measurement | None = evaluation.measurement
    return 0 if timed is None else 1 if timed.censored else 2


def _ranked(row: GenomeRow, best: Best | None, medians: dict[str, float]) -> GenomeRow:
    measured = row.measured
    if measured is None or best is None or best.evaluation.measurement is None:
        return replace(row, objective=measured)
    if row.genome == best.evaluation.candidate.genome:
        found = best.evaluation.measurement.objective
        return replace(row, objective=found, best=True, audited=best.audited)
    least = best.evaluation.measurement.objective * _JUST_ABOVE
    if measured > best.evaluation.measurement.objective:
        return replace(row, objective=measured)
    return replace(row, objective=max(medians.get(row.genome.fingerprint, least), least))


def _contest_medians(
    contests: Sequence[ContestRecord], workload: str, best: Best | None
) -> dict[str, float]:
    """Return the newest contest's median of every genome that took part in one, by fingerprint."""
    timed = None if best is None else best.evaluation.measurement
    medians: dict[str, float] = {}
    for record in contests:
        contest = record.contest
        if timed is None or record.workload != workload or contest.unit != timed.unit:
            continue
        for name in contest.names:
            if name not in contest.failures:
                medians[name] = statistics.median(contest.column(name))
    return medians
