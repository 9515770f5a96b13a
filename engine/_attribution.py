"""Which of the changed genes made a win: they are tried reverted, and those that matter remain.

Few changes are reverted one by one. Where a genome differs in many, the genes of one strategy are
reverted together first, and one by one only where the gain goes with the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

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

# So many changes are reverted one by one; more of them in blocks.
FEW = 4
# Slower than the child by more than this, unpaired: the gain went with the block.
_LOST = 1.01

Trial: TypeAlias = tuple[str, ...]
"""Names of the genes that are reverted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Changes that are reverted together.

    Attributes:
        changes: At least one.
        reverted: The child with all of them as in the parent; None where that is illegal.
        singles: Per gene of a block of several, the child with this gene alone reverted (legal
            ones only).
    """

    changes: tuple[GeneChange, ...]
    reverted: Genome | None
    singles: Mapping[str, Genome]

    @property
    def genes(self) -> Trial:
        """Names of the genes that change."""
        return tuple(change.gene for change in self.changes)

    def trials(self, lost: bool) -> Iterator[tuple[Trial, Genome]]:
        """Yield what is to be tried; the single genes only if the gain is ``lost`` without all."""
        if self.reverted is not None:
            yield self.genes, self.reverted
        if lost or self.reverted is None:
            yield from (((gene,), genome) for gene, genome in self.singles.items())

    def needed(self, kept: Mapping[Trial, bool]) -> tuple[GeneChange, ...]:
        """Return the changes of this block without which the gain is lost."""
        if kept.get(self.genes, False):
            return ()
        needed = tuple(c for c in self.changes if not kept.get((c.gene,), False))
        # Where every gene alone can be spared, they replace one another: the block stays whole.
        return needed or self.changes


@dataclass(slots=True)
class Job:
    """One KEEP whose changed genes are being tried reverted.

    Attributes:
        child: The KEEP.
        parent: What it is compared with: its direct parent, or the best before it.
        changes: The genes that differ.
        blocks: The same, as they are reverted; none where there is but one change.
        speedup: Of the child over the parent.
    """

    child: Judged
    parent: Judged
    changes: tuple[GeneChange, ...]
    speedup: Estimate
    blocks: tuple[Block, ...] = field(default=())

    def trials(self, objectives: Mapping[str, float]) -> dict[Trial, Genome]:
        """Return what must be tried, as far as is known from what was tried.

        Args:
            objectives: By fingerprint, the objective of every genome that works.
        """
        child = self.child.evaluation.measurement
        assert child is not None
        found: dict[Trial, Genome] = {}
        for block in self.blocks:
            key = "" if block.reverted is None else block.reverted.fingerprint
            lost = objectives.get(key, 0.0) > child.objective * _LOST
            found.update(block.trials(lost))
        return found

    def teaches(self, tried: Callable[[Genome], bool]) -> bool:
        """Tell whether an end before all trials leaves a lesson: of many changes not without them.

        Args:
            tried: Whether a genome was evaluated.
        """
        whole = [block.reverted for block in self.blocks if block.reverted is not None]
        return len(self.changes) <= FEW or all(map(tried, whole))


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

    def by_worth(self) -> list[Job]:
        """Return the jobs, those of few changes first, among them the newest first."""
        newest_first = self.jobs[::-1]
        return sorted(newest_first, key=lambda job: len(job.changes) > FEW)


def plan_job(child: Judged, parents: Iterable[tuple[Judged, Estimate]], space: Space) -> Job | None:
    """Return what must be tried to attribute a KEEP, or None where nothing can be learned.

    Args:
        child: The KEEP.
        parents: What it is surely faster than, and by how much.
        space: Of the child.
    """
    jobs = [job for over in parents if (job := _job(child, over, space)) is not None]
    return min(jobs, key=lambda job: len(job.changes), default=None)


def _job(child: Judged, over: tuple[Judged, Estimate], space: Space) -> Job | None:
    parent, speedup = over
    new, old = child.evaluation.candidate.genome, parent.evaluation.candidate.genome
    if new.route != old.route or speedup.low <= 1.0:
        return None
    changes = space.diff(old, new)
    if not changes:
        return None
    job = Job(child=child, parent=parent, changes=changes, speedup=speedup)
    if len(changes) > 1:
        job.blocks = tuple(_block(new, group, space) for group in _groups(changes, space))
    return job


def _groups(changes: Sequence[GeneChange], space: Space) -> list[tuple[GeneChange, ...]]:
    """Return each change alone where they are few, else those of each strategy together.

    What a change switches on or off is no change of its own: alone it cannot be reverted.
    """
    changed = {change.gene: change for change in changes}
    units: dict[str, list[GeneChange]] = {}
    for change in changes:
        units.setdefault(_head(change, changed, space), []).append(change)
    if len(units) <= FEW:
        return [tuple(unit) for unit in units.values()]
    groups: dict[str, list[GeneChange]] = {}
    for head, unit in units.items():
        owner = space.gene(head).strategy
        groups.setdefault("" if owner is None else owner.value, []).extend(unit)
    return [tuple(group) for group in groups.values()]


def _head(change: GeneChange, changed: Mapping[str, GeneChange], space: Space) -> str:
    """Return the gene whose change switched this one on or off, else its own."""
    while change.before is None or change.after is None:
        when = space.gene(change.gene).when
        if when is None or when.gene not in changed:
            break
        change = changed[when.gene]
    return change.gene


def _block(child: Genome, changes: tuple[GeneChange, ...], space: Space) -> Block:
    singles: dict[str, Genome] = {}
    if len(changes) > 1:
        singles = {c.gene: g for c in changes if (g := _reverted(child, [c], space)) is not None}
    return Block(changes=changes, reverted=_reverted(child, changes, space), singles=singles)


def _reverted(genome: Genome, changes: Sequence[GeneChange], space: Space) -> Genome | None:
    alleles = genome.alleles()
    for change in changes:
        if change.before is None:
            alleles.pop(change.gene, None)
        else:
            alleles[change.gene] = change.before
    try:
        reverted = space.genome(alleles)
    except IllegalGenomeError:
        return None
    return None if reverted == genome else reverted


def needed_changes(job: Job, kept: Mapping[Trial, bool]) -> tuple[GeneChange, ...]:
    """Return the changes without which the gain is lost.

    Args:
        job: A finished job.
        kept: Per trial, whether the child is as fast without those changes.
    """
    needed = tuple(change for block in job.blocks for change in block.needed(kept))
    # Where every block alone can be spared, they replace one another: the set stays whole.
    return needed or job.changes


def win(job: Job, changes: tuple[GeneChange, ...], operator: str, workload: str) -> Conclusion:
    """Word a finished job as a conclusion."""
    candidate = job.child.evaluation.candidate
    spared = len(job.changes) - len(changes)
    tried = f"; {spared} other change{'s' * (spared != 1)} made no difference" if spared else ""
    text = ", ".join(f"{c.gene} {_shown(c.before)} -> {_shown(c.after)}" for c in changes)
    gain = (job.speedup.value - 1) * 100
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
