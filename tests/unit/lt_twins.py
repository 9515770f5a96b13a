"""Campaigns between two names of one algorithm, many of them in one open session.

What a genome of cuBLASLt may use as scratch memory is part of its name; an algorithm that needs
none is launched in the same way whatever it may use. So the two names are one thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelarc.bench import Device
from kernelarc.bench.cuda import CudaSession
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import (
    LT_ROUTE,
    Environment,
    Evaluation,
    Genome,
    Judged,
    Verdict,
    Workload,
)
from kernelarc.storage import ContestRecord, open_reader

REACH = 1.04
"""Who looks slower than the best by more than this meets it in no final."""


def twins(session: CudaSession, workload: Workload) -> tuple[Genome, Genome]:
    """Return the first heuristic that needs no scratch memory: with leave to use some, and without.

    Raises:
        LookupError: Every heuristic needs some.
    """
    for proposal in session.seeds(workload):
        alleles = proposal.genome.alleles()
        bare = Genome(LT_ROUTE, {**alleles, "workspace_mib": 0})
        free = alleles.get("splitk", 1) == 1 and alleles["workspace_mib"] != 0
        if free and session.check(workload, [proposal.genome, bare]) == [None, None]:
            return proposal.genome, bare
    raise LookupError("every heuristic needs scratch memory")


class Lent(Device):
    """Hands out an open session, which nobody closes.

    Args:
        session: Of one workload.
        overrated: A genome whose evaluations say four fifths of its time; contests are honest.
    """

    deterministic = False

    def __init__(self, session: CudaSession, overrated: Genome | None = None) -> None:
        self.name, self._session, self._overrated = session.device, session, overrated

    def environment(self) -> Environment:
        return self._session.environment

    def open(self, *_: Any, **__: Any) -> Any:
        return _Kept(self._session, self._overrated)


class _Kept:
    def __init__(self, session: CudaSession, overrated: Genome | None) -> None:
        self._session, self._overrated = session, overrated

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave it open: others follow."""

    def collect(self) -> Iterator[Evaluation]:
        for evaluation in self._session.collect():
            timed, genome = evaluation.measurement, evaluation.candidate.genome
            if timed is None or genome != self._overrated:
                yield evaluation
                continue
            samples = tuple(0.8 * sample for sample in timed.samples)
            told = replace(timed, samples=samples, objective=0.8 * timed.objective)
            yield replace(evaluation, measurement=told)


@dataclass(frozen=True, slots=True)
class Met:
    """How a campaign between two names ended.

    Attributes:
        judged: Every evaluation.
        contests: Those between the two, audits apart.
        start: The genome that it started from.
        best: Which one stands in the end.
    """

    judged: Sequence[Judged]
    contests: Sequence[ContestRecord]
    start: str
    best: str

    @property
    def keeps(self) -> int:
        """How many KEEPs there were, whatever an audit said of them."""
        return sum(judged.verdict is Verdict.KEEP for judged in self.judged)

    @property
    def apart(self) -> float:
        """By what factor the lone evaluations of the two differ."""
        timed = (judged.evaluation.measurement for judged in self.judged)
        times = [measurement.objective for measurement in timed if measurement]
        return max(times) / min(times)


def met(pair: tuple[Genome, Genome], store: Path, *, seed: int, **own: Any) -> Met:
    """Run a campaign in which only these two genomes are left, and say how it went.

    Args:
        pair: As ``twins`` finds them.
        store: A new file.
        seed: The campaign's.
        own: Further settings; ``device`` and ``problem`` where they are brought.
    """
    brought = {name: own.pop(name) for name in ("device", "problem") if name in own}
    settings = CampaignSettings(
        target="matmul",
        # A route without these genes would take part as it is, and bring other kernels.
        routes=(LT_ROUTE,),
        pins={name: str(allele) for name, allele in pair[0].items() if name != "workspace_mib"},
        store=str(store),
        budget=len(pair),
        seed=seed,
        models=False,
        **own,
    )
    result = run(settings, **brought)
    both = {genome.fingerprint for genome in pair}
    with open_reader(settings.store) as reader:
        judged = list(reader.evaluations(1))
        contests = [c for c in reader.contests(1) if c.purpose != "audit"]
    assert {j.evaluation.candidate.genome.fingerprint for j in judged} == both
    assert all(set(contest.contest.names) == both for contest in contests)
    assert not any(contest.contest.failures for contest in contests)
    (best,) = result.bests
    start = judged[0].evaluation.candidate.genome.fingerprint
    return Met(judged, contests, start, best.fingerprint)
