"""Whether the bests still hold today, in a fresh worker, beside the baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.bench import Device, Session
from kernelarc.engine._baselines import chosen_in
from kernelarc.engine._campaign import limited
from kernelarc.engine._compare import baseline_column, column_speedup
from kernelarc.engine._identity import changed_parts
from kernelarc.engine._results import workloads_of
from kernelarc.engine._run import artefacts_of, settings_of
from kernelarc.engine._targets import device_for
from kernelarc.genomes import Contest, Estimate, NothingValidError
from kernelarc.storage import (
    Best,
    CampaignRow,
    ContestRecord,
    Event,
    StoreWriter,
    open_writer,
    store_name,
)

# Part of a gain, as its logarithm, that must be found again.
_OF_THE_GAIN = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One best, measured again.

    Attributes:
        holds: Correct, and about as fast against the baseline as was claimed (``still_holds``);
            where there is no baseline, the same number as recorded.
        claimed: The speed-up that the store held, None where it held none.
        speedup: The one measured now, None without a baseline or when it failed.
        why: One sentence.
    """

    workload: str
    fingerprint: str
    holds: bool
    claimed: Estimate | None
    speedup: Estimate | None
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "workload": self.workload,
            "fingerprint": self.fingerprint,
            "holds": self.holds,
            "claimed": _interval(self.claimed),
            "speedup": _interval(self.speedup),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What ``verify`` found.

    Attributes:
        environment_changed: Which parts of the identity differ from the campaign's, in words.
    """

    campaign_id: int
    store: str
    environment_changed: Sequence[str]
    verified: Sequence[Verified]

    @property
    def exit_code(self) -> int:
        """0 when every claim holds, 1 when one does not."""
        return 0 if all(v.holds for v in self.verified) else 1

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "schema": 1,
            "campaign_id": self.campaign_id,
            "holds": self.exit_code == 0,
            "environment_changed": list(self.environment_changed),
            "verified": [v.to_json() for v in self.verified],
            "store": self.store,
        }


def _interval(estimate: Estimate | None) -> Mapping[str, float] | None:
    if estimate is None:
        return None
    return {"estimate": estimate.value, "low": estimate.low, "high": estimate.high}


def verify(
    store: str, campaign: int | None = None, *, device: Device | None = None
) -> VerifyResult:
    """Measure a campaign's bests again, interleaved with the baseline, in a fresh worker.

    Everything measured is appended to the log. In another environment than the campaign's the
    result says so and takes nothing back.

    Raises:
        InputError: There is no such store or campaign.
        NothingValidError: The campaign has no best.
        MissingPartError: The device or toolchain is missing.
    """
    with open_writer(store) as writer:
        row = writer.campaign(campaign)
        bests = writer.bests(row.id)
        if not bests:
            raise NothingValidError(
                f"campaign {row.id} of {store_name(store)} has no valid genome to verify"
            )
        writer.claim(row.id)
        chosen = chosen_in(writer.events(row.id), row.spec.settings)
        settings = settings_of(row, store, None, baselines=chosen)
        opened = (device or device_for(settings)).open(
            row.spec.problem, seed=settings.seed + 1, artefacts=artefacts_of(store)
        )
        with limited(opened, settings.baselines) as session:
            rounds = 1 if session.deterministic else settings.audit_rounds
            changed = changed_parts(row.environment.identity, session.environment.identity)
            if changed:
                writer.environment(session.environment)
            # A measurement elsewhere is an observation: it takes nothing back here.
            purpose = "verify elsewhere" if changed else "verify"
            again = _Again(session, writer, row, rounds, purpose)
            verified = [again.verify(best) for best in bests]
    return VerifyResult(
        campaign_id=row.id, store=store_name(store), environment_changed=changed, verified=verified
    )


@dataclass(frozen=True, slots=True)
class _Again:
    """Measures bests again and appends what it finds."""

    session: Session
    writer: StoreWriter
    row: CampaignRow
    rounds: int
    purpose: str

    def verify(self, best: Best) -> Verified:
        """Time one best beside the baseline and judge its claim."""
        workload = workloads_of(self.row)[best.workload]
        genome = best.evaluation.candidate.genome
        contest = self.session.contest(
            workload,
            [genome],
            rounds=self.rounds,
            baseline=self.session.baseline_name(workload) is not None,
        )
        baseline = baseline_column(contest)
        name = genome.fingerprint
        speedup = column_speedup(contest, name, baseline, claims=1) if baseline else None
        holds, why = _judge(best, contest, speedup, baseline)
        record = ContestRecord(
            purpose=self.purpose,
            workload=best.workload,
            subject=name,
            against=baseline or "",
            contest=contest,
            speedup=speedup,
            upheld=holds,
        )
        payload = {"genome": name, "holds": holds}
        event = Event(kind="verified", payload=payload, unix_s=time.time())
        self.writer.append(self.row.id, [record, event])
        return Verified(
            workload=workload.label,
            fingerprint=name,
            holds=holds,
            claimed=best.speedup,
            speedup=speedup,
            why=why,
        )


def _judge(
    best: Best, contest: Contest, speedup: Estimate | None, baseline: str | None
) -> tuple[bool, str]:
    name = best.evaluation.candidate.genome.fingerprint
    if name in contest.failures:
        return False, f"it fails now: {contest.failures[name]}"
    if baseline is None or speedup is None:
        return _judge_value(best, contest)
    against = baseline.removeprefix("baseline:")
    if best.speedup is None:
        return True, f"correct, {_faster(speedup)} than {against}; nothing was claimed before"
    holds = still_holds(best.speedup, speedup)
    gain = "as claimed" if holds else "by clearly less than was claimed"
    return holds, f"correct, {_faster(speedup)} than {against}, {gain}"


def still_holds(claimed: Estimate, now: Estimate) -> bool:
    """Tell whether a speed-up that was claimed is found again.

    Intervals are those of one sitting. Between sittings a ratio drifts with clocks, memory
    placement and neighbours, so that the intervals need not overlap: nine tenths of the gain
    suffice. Of a small gain that is little, so that one that vanished is not said to hold.
    """
    if now.high >= claimed.low:
        return True
    return now.low > 1.0 and math.log(now.high) >= _OF_THE_GAIN * math.log(claimed.low)


def _faster(speedup: Estimate) -> str:
    if speedup.low > 1.0:
        return "faster"
    return "slower" if speedup.high < 1.0 else "not surely faster"


def _judge_value(best: Best, contest: Contest) -> tuple[bool, str]:
    measurement = best.evaluation.measurement
    assert measurement is not None
    found = contest.samples[0][0]
    same = found == measurement.objective
    unit = measurement.unit
    return same, f"recorded {measurement.objective:g} {unit}, now {found:g} {unit}"
