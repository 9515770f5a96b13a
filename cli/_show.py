"""``kernelarc show``: one genome and all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from kernelarc import engine
from kernelarc.cli._arguments import AS_JSON, STORE
from kernelarc.cli._stores import reading, workload_labels
from kernelarc.cli._text import allele, count, interval, print_json, quantity, table
from kernelarc.genomes import Conclusion, Evaluation, Genome, InputError, Judged
from kernelarc.storage import ContestRecord, StoreReader, store_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a store knows of one genome.

    Attributes:
        evaluations: (campaign, judged evaluation), oldest first.
        contests: Those that tried it: confirmations, audits, verifications.
        conclusions: Those that rest on it.
        labels: What people call a workload, by fingerprint.
        source: What would be compiled, None where there is no source (a recorded space).
    """

    genome: Genome
    evaluations: Sequence[tuple[int, Judged]]
    contests: Sequence[ContestRecord]
    conclusions: Sequence[Conclusion]
    labels: dict[str, str]
    source: str | None


_NO_SOURCE = "a recorded space or a library answered, or its kernel file has changed"


@click.command("show")
@STORE
@click.argument("fingerprint", metavar="FINGERPRINT")
@click.option("--rerun", "again", is_flag=True, help="Measure it once, now; nothing is recorded.")
@click.option("--source", "only_source", is_flag=True, help="Print the source, nothing else.")
@AS_JSON
def command(store: str, fingerprint: str, *, again: bool, only_source: bool, as_json: bool) -> None:
    """Show one genome: alleles and evidence, or its source.

    FINGERPRINT may be shortened to any beginning that only one genome has. With --source the
    output is a C file that compiles as it is, with the options that its first lines name; of a
    kernel file its text, with the genome in the first lines.
    """
    with reading(store) as reader:
        evidence = gather(reader, fingerprint)
    if only_source:
        click.echo(needed_source(evidence))
        return
    measured = engine.rerun(store, evidence.genome.fingerprint) if again else []
    if as_json:
        print_json({"schema": 1, "store": store_name(store), **_json(evidence, measured)})
    else:
        click.echo(_text(evidence, measured, store_name(store)))


def needed_source(evidence: Evidence) -> str:
    """Return the source, which was asked for.

    Raises:
        InputError: There is none.
    """
    if evidence.source is None:
        raise InputError(f"genome {evidence.genome.fingerprint} has no source here: {_NO_SOURCE}")
    return evidence.source


def gather(reader: StoreReader, fingerprint: str) -> Evidence:
    """Read what a store knows of a genome.

    Raises:
        InputError: No genome begins so, or several do.
    """
    evaluations = reader.find(fingerprint)
    candidate = evaluations[-1][1].evaluation.candidate
    labels: dict[str, str] = {}
    contests: list[ContestRecord] = []
    for campaign in sorted({campaign for campaign, _ in evaluations}):
        labels.update(workload_labels(reader.campaign(campaign)))
        tried = reader.contests(campaign)
        contests += [c for c in tried if c.subject == candidate.genome.fingerprint]
    row = reader.campaign(evaluations[-1][0])
    return Evidence(
        genome=candidate.genome,
        evaluations=evaluations,
        contests=contests,
        conclusions=[c for _, c in reader.conclusions() if c.genome == candidate.genome],
        labels=labels,
        source=engine.source_of(row, candidate.genome),
    )


def _text(evidence: Evidence, again: Sequence[Evaluation], store: str) -> str:
    genome = evidence.genome
    parts = [f"genome {genome.fingerprint}, route {genome.route}", _alleles(genome)]
    parts.append("evaluations\n" + _evaluations(evidence))
    if evidence.contests:
        parts.append("interleaved contests\n" + _contests(evidence))
    if evidence.conclusions:
        told = [f"  {c.kind.value} ({c.island}): {c.why}" for c in evidence.conclusions]
        parts.append("conclusions that rest on it\n" + "\n".join(told))
    if again:
        lines = [f"  {evidence.labels[e.candidate.workload]}: {outcome(e)}" for e in again]
        parts.append("measured now\n" + "\n".join(lines))
    parts.append(_where_source(evidence, store))
    return "\n\n".join(parts)


def _where_source(evidence: Evidence, store: str) -> str:
    """Return one line: a source has hundreds, under which the evidence would be out of sight."""
    if evidence.source is None:
        return f"There is no source here: {_NO_SOURCE}."
    command = f"kernelarc show {store} {evidence.genome.fingerprint} --source"
    return f"source ({count(len(evidence.source.splitlines()), 'line')}): {command}"


def _alleles(genome: Genome) -> str:
    return table(("gene", "allele"), [(name, allele(value)) for name, value in genome.items()])


def outcome(evaluation: Evaluation) -> str:
    """Return an evaluation's number, or how it failed."""
    measured = evaluation.measurement
    if measured is None:
        return f"{evaluation.status.value}: {evaluation.failure}: {evaluation.message}"
    bound = " or more (stopped early)" if measured.censored else ""
    samples = count(len(measured.samples), "sample")
    return f"{quantity(measured.objective, measured.unit)}{bound}, {samples}"


def _evaluations(evidence: Evidence) -> str:
    rows = []
    for campaign, judged in evidence.evaluations:
        evaluation = judged.evaluation
        made_by = f"{evaluation.candidate.island}/{evaluation.candidate.mutation}"
        label = evidence.labels[evaluation.candidate.workload]
        place = f"{campaign} #{evaluation.candidate.number}"
        rows.append((place, label, made_by, judged.verdict.value, outcome(evaluation)))
    return table(("campaign", "workload", "proposed by", "verdict", "outcome"), rows)


def _contests(evidence: Evidence) -> str:
    rows = [
        (
            record.purpose,
            evidence.labels[record.workload],
            _against(record.against),
            interval(record.speedup),
            "upheld" if record.upheld else "not upheld",
        )
        for record in evidence.contests
    ]
    return table(("purpose", "workload", "against", "speed-up", "claim"), rows)


def _against(name: str) -> str:
    """Return a contender's name: a baseline's in full, a genome's fingerprint shortened."""
    return name.removeprefix("baseline:") if ":" in name else name[:12] or "-"


def _json(evidence: Evidence, again: Sequence[Evaluation]) -> dict[str, object]:
    return {
        "fingerprint": evidence.genome.fingerprint,
        "route": evidence.genome.route,
        "genome": evidence.genome.alleles(),
        "source": evidence.source,
        "evaluations": [
            {"campaign": campaign, "verdict": judged.verdict.value, **_outcome(judged.evaluation)}
            for campaign, judged in evidence.evaluations
        ],
        "contests": [
            {
                "purpose": record.purpose,
                "workload": record.workload,
                "against": record.against,
                "speedup": None
                if record.speedup is None
                else {
                    "estimate": record.speedup.value,
                    "low": record.speedup.low,
                    "high": record.speedup.high,
                },
                "upheld": record.upheld,
            }
            for record in evidence.contests
        ],
        "conclusions": [
            {"kind": c.kind.value, "island": c.island, "why": c.why} for c in evidence.conclusions
        ],
        "rerun": [_outcome(evaluation) for evaluation in again],
    }


def _outcome(evaluation: Evaluation) -> dict[str, object]:
    measured = evaluation.measurement
    return {
        "number": evaluation.candidate.number,
        "workload": evaluation.candidate.workload,
        "island": evaluation.candidate.island,
        "mutation": evaluation.candidate.mutation,
        "status": evaluation.status.value,
        "failure": evaluation.failure,
        "message": evaluation.message,
        "objective": None if measured is None else measured.objective,
        "unit": None if measured is None else measured.unit,
        "censored": None if measured is None else measured.censored,
        "samples": [] if measured is None else list(measured.samples),
    }
