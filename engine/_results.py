"""What a campaign comes to: the one object that ``--json`` prints, from the store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernelarc.bench import Score
from kernelarc.engine._baselines import (
    Tried,
    baseline_remarks,
    left_out_of,
    only_eager,
    tried_in,
)
from kernelarc.engine._scores import mean_score, score_of, score_remark
from kernelarc.engine._suspicions import busy_remark, suspicions
from kernelarc.genomes import Allele, Estimate, Verdict, Workload
from kernelarc.storage import Best, CampaignRow, Counts, Event, StoreReader, store_name

_EXIT_CODES = {"finished": 0, "interrupted": 3, "stopped": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class BestResult:
    """The best of one workload.

    Attributes:
        objective: The device's own number, lower is better.
        latency_us: The same as a time, None when it is none.
        speedup: Over the baseline, once measured beside it; None before, and where there is no
            baseline.
        audited: Whether a fresh process upheld it.
        is_start: Whether it is the genome the search started from: nothing beat it.
        score: Of a SOL-ExecBench problem on a device whose data sheet is known, else None.
        baselines: What came of each baseline that was on offer, by name: ``us`` of one call, or
            why it ``failed``, and what trying it took (``seconds``); or that it was ``left_out``.
            Empty where there was no choice.
    """

    workload: str
    fingerprint: str
    route: str
    genome: Mapping[str, Allele]
    objective: float
    unit: str
    latency_us: float | None
    speedup: Estimate | None
    against: str | None
    audited: bool
    is_start: bool
    score: Score | None = None
    baselines: Tried = field(default_factory=dict)

    @property
    def only_eager(self) -> bool:
        """Whether torch's eager mode is the baseline as nothing else could be one, or should."""
        return only_eager(self.against, self.baselines)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the baselines that ``--baselines`` left out."""
        return left_out_of(self.baselines)

    def to_json(self) -> dict[str, Any]:
        """Return it as the command line's contract words it."""
        speedup = self.speedup
        return {
            "workload": self.workload,
            "fingerprint": self.fingerprint,
            "route": self.route,
            "genome": dict(self.genome),
            "objective": self.objective,
            "latency_us": self.latency_us,
            "speedup": None
            if speedup is None
            else {"estimate": speedup.value, "low": speedup.low, "high": speedup.high},
            "audited": self.audited,
            **({} if self.against is None else {"against": _bare(self.against)}),
            **({} if not self.baselines else {"baselines": self.baselines}),
            **({} if self.score is None else {"score": self._score_json(self.score)}),
        }

    def _score_json(self, score: Score) -> dict[str, Any]:
        marks = {"only_eager": self.only_eager, "left_out": list(self.left_out)}
        return {**asdict(score), **marks}


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """How a campaign stands or ended.

    Attributes:
        campaign_id: None where there was nothing to search: no campaign was begun.
        status: ``"finished"``, ``"interrupted"`` or ``"stopped"``; ``"running"`` for a campaign
            that another process drives, or that was killed.
        reason: ``"budget"``, ``"seconds"``, ``"plateau"``, ``"exhausted"``, ``"target"``,
            ``"signal"`` or ``"fault: ..."``; empty while running.
        bests: One per workload that has any, in the problem's order.
        remarks: In words, what a person should know: best equals start, genes without effect.
        score: Mean of the workloads' scores, None unless every workload has one.
    """

    campaign_id: int | None
    status: str
    reason: str
    evaluations: Counts
    bests: Sequence[BestResult]
    seconds: float
    store: str
    remarks: Sequence[str] = field(default_factory=tuple)
    score: float | None = None

    @property
    def best(self) -> BestResult | None:
        """The first workload's best."""
        return self.bests[0] if self.bests else None

    @property
    def exit_code(self) -> int:
        """What the command exits with: 0, 1 when nothing valid was found, 3 when resumable."""
        code = _EXIT_CODES.get(self.status, 0)
        return 1 if code == 0 and not self.bests else code

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "schema": 1,
            "campaign_id": self.campaign_id,
            "status": self.status,
            "reason": self.reason,
            "evaluations": asdict(self.evaluations),
            "best": self.best.to_json() if self.best else None,
            "bests": [best.to_json() for best in self.bests],
            **({} if self.score is None else {"score": self.score}),
            "remarks": list(self.remarks),
            "seconds": self.seconds,
            "store": self.store,
        }


def nothing_to_search(why: str, *, store: str) -> CampaignResult:
    """Return the result of a space that has no legal genome: finished, without a best."""
    return CampaignResult(
        campaign_id=None,
        status="finished",
        reason="exhausted",
        evaluations=Counts(),
        bests=(),
        seconds=0.0,
        store=store_name(store),
        remarks=(why,),
    )


def result_of(reader: StoreReader, campaign: int | None, *, store: str) -> CampaignResult:
    """Read how a campaign stands.

    Raises:
        InputError: There is no such campaign.
    """
    row = reader.campaign(campaign)
    events = reader.events(row.id)
    status, reason = _status(events)
    counts = reader.counts(row.id)
    bests = [_best(best, row, tried_in(events)) for best in reader.bests(row.id)]
    scores = [best.score for best in bests]
    said = (
        row.environment.observations.get("note"),
        score_remark(row, scores),
        _continued(events),
        busy_remark(reader.failures(row.id)),
    )
    whole = len(bests) == len(row.spec.problem.workloads)
    return CampaignResult(
        campaign_id=row.id,
        status=status,
        reason=reason,
        evaluations=counts,
        bests=bests,
        seconds=round(sum(float(e.payload.get("process_seconds", 0)) for e in events), 3),
        store=store_name(store),
        remarks=(
            *_remarks(counts, bests, reason),
            *_baseline_remarks(bests),
            *(() if _found(bests) or counts.unique < 2 else suspicions(reader, row.id)),
            *filter(None, said),
        ),
        score=mean_score(scores) if whole else None,
    )


def _status(events: Sequence[Event]) -> tuple[str, str]:
    for event in reversed(events):
        if event.kind in _EXIT_CODES:
            return event.kind, str(event.payload.get("reason", ""))
        if event.kind in {"started", "resumed", "extended"}:
            break
    return "running", ""


def workloads_of(row: CampaignRow) -> dict[str, Workload]:
    """Return the campaign's workloads by fingerprint."""
    return {workload.fingerprint: workload for workload in row.spec.problem.workloads}


def _baseline_remarks(bests: Sequence[BestResult]) -> tuple[str, ...]:
    scored = [best for best in bests if best.score is not None]
    return baseline_remarks(
        {best.workload: _bare(best.against) for best in scored},
        {best.workload: best.baselines for best in bests},
        [best.workload for best in scored if best.only_eager],
    )


def _best(best: Best, row: CampaignRow, tried: Mapping[str, Tried]) -> BestResult:
    evaluation = best.evaluation
    measurement = evaluation.measurement
    assert measurement is not None
    workload = workloads_of(row)[best.workload]
    return BestResult(
        workload=workload.label,
        fingerprint=evaluation.candidate.genome.fingerprint,
        route=evaluation.candidate.genome.route,
        genome=evaluation.candidate.genome.alleles(),
        objective=measurement.objective,
        unit=measurement.unit,
        latency_us=measurement.latency_us,
        speedup=best.speedup,
        against=best.against,
        audited=best.audited,
        is_start=best.verdict is not Verdict.KEEP,
        score=score_of(row, best, workload),
        baselines=tried.get(best.workload, {}),
    )


def _found(bests: Sequence[BestResult]) -> bool:
    return any(not best.is_start for best in bests)


def _remarks(counts: Counts, bests: Sequence[BestResult], reason: str) -> tuple[str, ...]:
    told = []
    if reason == "plateau":
        told.append("the genes have no measurable effect on the objective here")
    tried = (
        f"of {counts.unique} evaluated, {counts.failed} failed and {counts.measured} were "
        f"measured; {counts.rejected} proposals were rejected before that"
    )
    if not bests and counts.unique:
        told.append(f"nothing valid was found: {tried}")
    for best in bests:
        if best.is_start and counts.unique > 1:
            told.append(f"{best.workload}: the best equals the starting genome: {tried}")
        if best.speedup is not None and best.speedup.high < 1.0:
            told.append(
                f"{best.workload}: the best is slower than {_bare(best.against)}: keep using that"
            )
    return tuple(told)


def _continued(events: Sequence[Event]) -> str:
    """Say of a campaign that goes on in another environment what has changed."""
    for event in events:
        if event.kind == "started" and event.payload.get("changed"):
            return (
                f"goes on from campaign {event.payload['continues']} in a changed environment "
                f"({'; '.join(event.payload['changed'])}): what was measured there is tried first "
                f"and measured again"
            )
    return ""


def _bare(against: str | None) -> str:
    return (against or "the baseline").removeprefix("baseline:")
