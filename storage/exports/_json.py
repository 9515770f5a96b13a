"""Format ``json``: the whole campaign with its evidence, one object."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelarc.genomes import Conclusion, Estimate, Genome, Judged, Measurement
from kernelarc.storage._contract import Best, ContestRecord
from kernelarc.storage._texts import operator_text, workload_text
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

SCHEMA = 1


def json_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write head, bests, conclusions, contests, events and every evaluation."""

    def write(aside: Path) -> None:
        with aside.open("w", encoding="utf-8") as file:
            file.writelines(_texts(subject))

    return {path: write}


def _texts(subject: Subject) -> Iterator[str]:
    reader, campaign = subject.reader, subject.campaign
    yield _text(_head(subject))[:-1]
    yield from _list("bests", (_best(b) for b in subject.bests))
    yield from _list(
        "conclusions", (_conclusion(c) for _, c in reader.conclusions(campaign=campaign.id))
    )
    yield from _list("contests", (_contest(record) for record in reader.contests(campaign.id)))
    yield from _list("events", (asdict(event) for event in reader.events(campaign.id)))
    yield from _list("evaluations", (_judged(j) for j in reader.evaluations(campaign.id)))
    yield "\n}\n"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _list(name: str, values: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield f',\n"{name}":['
    for number, value in enumerate(values):
        yield (",\n" if number else "\n") + _text(value)
    yield "]"


def _head(subject: Subject) -> dict[str, Any]:
    campaign, spec = subject.campaign, subject.campaign.spec
    workloads = [
        {"fingerprint": w.fingerprint, "label": w.label, **json.loads(workload_text(w))}
        for w in subject.workloads
    ]
    return {
        "schema": SCHEMA,
        "campaign": {
            "id": campaign.id,
            "created_unix_s": campaign.created_unix_s,
            "target": spec.target,
            "device": spec.device,
            "seed": spec.seed,
            "settings": dict(spec.settings),
        },
        "environment": {
            "fingerprint": campaign.environment.fingerprint,
            "identity": dict(campaign.environment.identity),
            "observations": dict(campaign.environment.observations),
        },
        "operator": {
            "fingerprint": subject.operator.fingerprint,
            **json.loads(operator_text(subject.operator)),
        },
        "workloads": workloads,
        "counts": asdict(subject.reader.counts(campaign.id)),
    }


def _genome(genome: Genome) -> dict[str, Any]:
    return {
        "fingerprint": genome.fingerprint,
        "route": genome.route,
        "genome": genome.alleles(),
    }


def _best(best: Best) -> dict[str, Any]:
    timed = best.evaluation.measurement
    return {
        "workload": best.workload,
        **_genome(best.evaluation.candidate.genome),
        "candidate": best.number,
        "objective": None if timed is None else timed.objective,
        "unit": None if timed is None else timed.unit,
        "latency_us": None if timed is None else timed.latency_us,
        "speedup": _estimate(best.speedup),
        "against": best.against,
        "audited": best.audited,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    found = asdict(estimate)
    return {"estimate": found.pop("value"), **found}


def _judged(judged: Judged) -> dict[str, Any]:
    evaluation = judged.evaluation
    candidate = evaluation.candidate
    return {
        "candidate": candidate.number,
        "round": candidate.round,
        "workload": candidate.workload,
        "island": candidate.island,
        "mutation": candidate.mutation,
        "parents": candidate.parents,
        **_genome(candidate.genome),
        "status": evaluation.status.value,
        "verdict": judged.verdict.value,
        "measurement": _measurement(evaluation.measurement),
        "failure": evaluation.failure,
        "message": evaluation.message,
        "cost_s": evaluation.cost_s,
        "properties": dict(evaluation.properties),
    }


def _measurement(timed: Measurement | None) -> dict[str, Any] | None:
    return None if timed is None else {**asdict(timed), "latency_us": timed.latency_us}


def _contest(record: ContestRecord) -> dict[str, Any]:
    contest = record.contest
    return {
        "purpose": record.purpose,
        "workload": record.workload,
        "subject": record.subject,
        "against": record.against,
        "upheld": record.upheld,
        "speedup": _estimate(record.speedup),
        "names": contest.names,
        "unit": contest.unit,
        "samples": [[None if math.isnan(s) else s for s in row] for row in contest.samples],
        "failures": dict(contest.failures),
    }


def _conclusion(conclusion: Conclusion) -> dict[str, Any]:
    genome = conclusion.genome
    return {
        "kind": conclusion.kind.value,
        "fingerprint": conclusion.fingerprint,
        "workload": conclusion.workload,
        "route": conclusion.route,
        "island": conclusion.island,
        "why": conclusion.why,
        "changes": [asdict(change) for change in conclusion.changes],
        "genome": None if genome is None else _genome(genome),
        "region": dict(conclusion.region),
        "failure": conclusion.failure,
        "speedup": _estimate(conclusion.speedup),
        "evidence": conclusion.evidence,
        "retracts": conclusion.retracts,
        "predicate": conclusion.predicate,
    }
