"""What the islands learned, gathered from conclusions into lessons a person can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.cli._text import allele, count, genome, interval, table
from kernelarc.genomes import Conclusion, ConclusionKind, Estimate, GeneChange

_MANY, _GENES = 3, 6  # wins that need a summary; genes that it names


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """All conclusions that say the same thing of one workload.

    Attributes:
        claims: (campaign, conclusion), oldest first; for a win of several genomes, all of them.
        retraction: What took the lesson back, if anything did.
    """

    claims: tuple[tuple[int, Conclusion], ...]
    retraction: Conclusion | None = None

    @property
    def first(self) -> Conclusion:
        """The conclusion that all of them agree with."""
        return self.claims[0][1]

    @property
    def islands(self) -> tuple[str, ...]:
        """The islands that drew it, without repetition."""
        return tuple(dict.fromkeys(conclusion.island for _, conclusion in self.claims))

    @property
    def best(self) -> Estimate | None:
        """The largest gain that was confirmed, with its interval."""
        gains = [c.speedup for _, c in self.claims if c.speedup is not None]
        return max(gains, key=lambda gain: gain.value, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the lesson as JSON values."""
        first, best = self.first, self.best
        return {
            "workload": first.workload,
            "route": first.route,
            "changes": [_change_json(change) for change in first.changes],
            "region": dict(first.region),
            "genome": None if first.genome is None else first.genome.fingerprint,
            "failure": first.failure,
            "speedup": None
            if best is None
            else {"estimate": best.value, "low": best.low, "high": best.high},
            "times": len(self.claims),
            "evidence": sorted({n for _, claim in self.claims for n in claim.evidence}),
            "islands": list(self.islands),
            "campaigns": sorted({campaign for campaign, _ in self.claims}),
            "predicate": first.predicate,
            "why": [claim.why for _, claim in self.claims],
            "retracted_because": None if self.retraction is None else self.retraction.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Standing wins (largest gain first), standing traps (most evidence first), the retracted."""

    wins: tuple[Lesson, ...]
    traps: tuple[Lesson, ...]
    retracted: tuple[Lesson, ...]


def gather(told: Iterable[tuple[int, Conclusion]]) -> Lessons:
    """Sort conclusions, told in the order of the store, into lessons.

    A retraction takes back what was stated before it; what is stated again later stands again.
    """
    standing: dict[str, list[tuple[int, Conclusion]]] = {}
    fallen: list[Lesson] = []
    for campaign, conclusion in told:
        if conclusion.kind is not ConclusionKind.RETRACTION:
            standing.setdefault(conclusion.fingerprint, []).append((campaign, conclusion))
        elif (claims := standing.pop(conclusion.retracts or "", None)) is not None:
            fallen.append(Lesson(claims=tuple(claims), retraction=conclusion))
    lessons = _same_said(standing.values())
    return Lessons(
        wins=tuple(sorted(_of(lessons, ConclusionKind.WIN), key=_gain)),
        traps=tuple(sorted(_of(lessons, ConclusionKind.TRAP), key=_weight)),
        retracted=tuple(fallen),
    )


def _same_said(groups: Iterable[Sequence[tuple[int, Conclusion]]]) -> list[Lesson]:
    """Put together the wins of one gene change that were found on different genomes."""
    said: dict[object, list[tuple[int, Conclusion]]] = {}
    for group in groups:
        first = group[0][1]
        alike = (first.workload, first.route, _changes_text(first.changes))
        key = alike if first.changes else first.fingerprint
        said.setdefault(key, []).extend(group)
    return [Lesson(claims=tuple(claims)) for claims in said.values()]


def _of(lessons: Sequence[Lesson], kind: ConclusionKind) -> list[Lesson]:
    return [lesson for lesson in lessons if lesson.first.kind is kind]


def _gain(lesson: Lesson) -> tuple[float, str]:
    return (-lesson.best.value if lesson.best else 0.0, _changes_text(lesson.first.changes))


def _weight(lesson: Lesson) -> tuple[int, str]:
    return (-len(lesson.first.evidence), lesson.first.fingerprint)


def _change_json(change: GeneChange) -> dict[str, Any]:
    return {"gene": change.gene, "before": change.before, "after": change.after}


def _changes_text(changes: Sequence[GeneChange]) -> str:
    return ", ".join(f"{c.gene} {allele(c.before)} -> {allele(c.after)}" for c in changes)


def lesson_text(lessons: Lessons, labels: Mapping[str, str]) -> str:
    """Return everything in words, one section a workload.

    Args:
        lessons: What was gathered.
        labels: What people call a workload, by fingerprint.
    """
    everything = (*lessons.wins, *lessons.traps, *lessons.retracted)
    workloads = dict.fromkeys(lesson.first.workload for lesson in everything)
    if not workloads:
        return (
            "The islands have concluded nothing yet: of no new best was it tried to the end which "
            "of its changed genes\nmade it faster, and no region of genomes failed again and again."
        )
    return "\n\n".join(
        _section(labels.get(workload, workload), _on(lessons, workload)) for workload in workloads
    )


def _on(lessons: Lessons, workload: str) -> Lessons:
    def here(found: Sequence[Lesson]) -> tuple[Lesson, ...]:
        return tuple(lesson for lesson in found if lesson.first.workload == workload)

    return Lessons(
        wins=here(lessons.wins), traps=here(lessons.traps), retracted=here(lessons.retracted)
    )


def _section(label: str, lessons: Lessons) -> str:
    parts = [label, "=" * len(label)]
    if lessons.wins:
        parts += ["", _wins_text(lessons.wins)]
    if lessons.traps:
        parts += ["", _traps_text(lessons.traps)]
    if lessons.retracted:
        parts += ["", _retracted_text(lessons.retracted)]
    return "\n".join(parts)


def _wins_text(wins: Sequence[Lesson]) -> str:
    rows = [
        (
            interval(lesson.best),
            str(len(lesson.claims)),
            ", ".join(lesson.islands),
            lesson.first.predicate or "this workload",
            _changes_text(lesson.first.changes) or "(whole genome)",
        )
        for lesson in wins
    ]
    heading = (
        f"{count(len(wins), 'win')}: each is what made a genome faster than the one that it is "
        f"compared with, its parent,\nwithout the changes that made no difference; undone, the "
        f"gain was lost. 1.25 x is 25 % faster."
    )
    columns = ("gain over parent (95 % interval)", "times", "found by", "holds for", "gene change")
    return "\n".join([heading, *_often(wins), "", table(columns, rows)])


def _often(wins: Sequence[Lesson]) -> list[str]:
    """Say which genes stand in most wins, and what they were most often changed to."""
    changes = [change for lesson in wins for change in lesson.first.changes]
    if len(wins) < _MANY:
        return []
    genes = Counter(change.gene for change in changes).most_common(_GENES)
    said = []
    for gene, times in genes:
        after = Counter(allele(change.after) for change in changes if change.gene == gene)
        (value, often), *_ = after.most_common(1)
        said.append(f"{gene} in {times}" + (f" ({often} times to {value})" if often > 1 else ""))
    return [f"Genes that were changed most: {', '.join(said)}."]


def _traps_text(traps: Sequence[Lesson]) -> str:
    rows = [
        (
            _trap_place(lesson.first),
            lesson.first.failure or "-",
            str(len(lesson.first.evidence)),
            ", ".join(lesson.islands),
        )
        for lesson in traps
    ]
    heading = (
        f"{count(len(traps), 'trap')}: every genome tried with these alleles failed, in the same "
        f"way;\nthe islands rarely propose there, and one genome that works opens the region again."
    )
    return f"{heading}\n{table(('region', 'failure', 'genomes', 'found by'), rows)}"


def _trap_place(conclusion: Conclusion) -> str:
    if conclusion.region:
        return genome(conclusion.region)
    return f"genome {conclusion.genome.fingerprint}" if conclusion.genome is not None else "-"


def _retracted_text(retracted: Sequence[Lesson]) -> str:
    rows = [
        (
            lesson.first.kind.value,
            _changes_text(lesson.first.changes) or _trap_place(lesson.first),
            lesson.retraction.why if lesson.retraction else "",
        )
        for lesson in retracted
    ]
    heading = (
        f"{count(len(retracted), 'retraction')}: said once, refuted by a later measurement, and no "
        f"longer acted on"
    )
    return f"{heading}\n{table(('kind', 'what was said', 'why it fell'), rows)}"
