"""Which of the changed genes made a win: each is tried reverted, and those that matter remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelarc.genomes import (
    Conclusion,
    ConclusionKind,
    Estimate,
    GeneChange,
    Genome,
    IllegalGenomeError,
    Judged,
    Space,
)

# A change of more genes than this is a new genome, not a gene change: reverting each one costs
# more evaluations than the lesson is worth.
MOST_CHANGES = 4


@dataclass(slots=True)
class Job:
    """One KEEP whose changed genes are being tried reverted.

    Attributes:
        child: The KEEP.
        parent: Its direct parent's evaluation.
        changes: The genes that differ.
        reverts: Per gene, the child with this gene as in the parent (legal ones only).
        speedup: Of the child over the parent.
    """

    child: Judged
    parent: Judged
    changes: tuple[GeneChange, ...]
    reverts: dict[str, Genome] = field(default_factory=dict)
    speedup: Estimate | None = None


class AttributionQueue:
    """Jobs of one workload, oldest first. Changed only by the fold over the log."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.spent = 0

    def push(self, job: Job) -> None:
        """Queue a job."""
        self.jobs.append(job)

    def drop(self, child: str) -> None:
        """Remove the job of the child with this fingerprint."""
        self.jobs = [
            j for j in self.jobs if j.child.evaluation.candidate.genome.fingerprint != child
        ]


def plan_job(child: Judged, parent: Judged, space: Space, speedup: Estimate) -> Job | None:
    """Return what must be tried to attribute a KEEP, or None where it is no gene change."""
    new = child.evaluation.candidate.genome
    old = parent.evaluation.candidate.genome
    if new.route != old.route:
        return None
    changes = space.diff(old, new)
    if not changes or len(changes) > MOST_CHANGES:
        return None
    job = Job(child=child, parent=parent, changes=changes, speedup=speedup)
    if len(changes) > 1:
        job.reverts = {c.gene: g for c in changes if (g := _reverted(new, c, space)) is not None}
    return job


def _reverted(genome: Genome, change: GeneChange, space: Space) -> Genome | None:
    alleles = genome.alleles()
    if change.before is None:
        alleles.pop(change.gene, None)
    else:
        alleles[change.gene] = change.before
    try:
        reverted = space.genome(alleles)
    except IllegalGenomeError:
        return None
    return None if reverted == genome else reverted


def needed_changes(job: Job, gain_kept: Mapping[str, bool]) -> tuple[GeneChange, ...]:
    """Return the changes without which the gain is lost.

    Args:
        job: A finished job.
        gain_kept: Per reverted gene, whether the child is as fast without that change.
    """
    needed = tuple(c for c in job.changes if not gain_kept.get(c.gene, False))
    # Where every gene alone can be spared, they replace one another: the set stays whole.
    return needed or job.changes


def win(job: Job, changes: tuple[GeneChange, ...], operator: str, workload: str) -> Conclusion:
    """Word a finished job as a conclusion."""
    candidate = job.child.evaluation.candidate
    spared = len(job.changes) - len(changes)
    tried = f"; {spared} other change{'s' * (spared != 1)} made no difference" if spared else ""
    text = ", ".join(f"{c.gene} {_shown(c.before)} -> {_shown(c.after)}" for c in changes)
    gain = (job.speedup.value - 1) * 100 if job.speedup else 0.0
    return Conclusion(
        kind=ConclusionKind.WIN,
        operator=operator,
        workload=workload,
        route=candidate.genome.route,
        island=candidate.island,
        why=f"{text} made it {gain:.1f} % faster than its parent{tried}",
        changes=changes,
        genome=candidate.genome,
        speedup=job.speedup,
        evidence=(job.parent.evaluation.candidate.number, candidate.number),
    )


def _shown(allele: object) -> str:
    if allele is None:
        return "off"
    return ">".join(map(str, allele)) if isinstance(allele, tuple) else str(allele)
