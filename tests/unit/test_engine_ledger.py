"""The best is a query over claims, confirmations and audits."""

from __future__ import annotations

from kernelarc.engine._ledger import Ledger, fingerprint
from kernelarc.genomes import (
    Candidate,
    Contest,
    Estimate,
    Evaluation,
    Genome,
    Judged,
    Measurement,
    Status,
    Verdict,
)
from kernelarc.storage import ContestRecord


def judged(number: int, objective: float, verdict: Verdict) -> Judged:
    candidate = Candidate(
        number=number,
        round=number,
        workload="w",
        island="memory",
        mutation="sample",
        genome=Genome("r", {"x": number}),
    )
    measurement = Measurement(samples=(objective,), objective=objective)
    evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=measurement)
    return Judged(evaluation=evaluation, verdict=verdict)


def audit(subject: Judged, *, upheld: bool, against: str = "baseline:b") -> ContestRecord:
    return ContestRecord(
        purpose="audit",
        workload="w",
        subject=fingerprint(subject),
        against=against,
        contest=Contest(names=(fingerprint(subject),), samples=((1.0,),)),
        speedup=Estimate(value=1.5, low=1.4, high=1.6, n=40),
        upheld=upheld,
    )


def ledger() -> tuple[Ledger, list[Judged]]:
    claims = [
        judged(0, 9.0, Verdict.ACCEPT),
        judged(1, 8.0, Verdict.KEEP),
        judged(2, 7.0, Verdict.KEEP),
    ]
    return Ledger(claims=list(claims)), claims


def test_the_newest_claim_is_the_best_and_the_start_is_no_keep() -> None:
    book, claims = ledger()
    assert book.incumbent is claims[2]
    assert book.keeps == 2


def test_a_refuted_claim_gives_way_to_the_one_before() -> None:
    book, claims = ledger()
    book.apply(audit(claims[2], upheld=False))
    assert book.incumbent is claims[1]
    assert book.keeps == 1


def test_when_all_claims_fall_nothing_is_left() -> None:
    book, claims = ledger()
    for claim in claims:
        book.apply(audit(claim, upheld=False))
    assert book.incumbent is None


def test_an_upheld_audit_keeps_its_speedup_over_the_baseline_only() -> None:
    book, claims = ledger()
    book.apply(audit(claims[2], upheld=True))
    book.apply(audit(claims[1], upheld=True, against=""))
    speedup = book.audited[fingerprint(claims[2])]
    assert speedup is not None
    assert speedup.value == 1.5
    assert book.audited[fingerprint(claims[1])] is None


def test_every_confirmation_counts_as_a_try() -> None:
    book, claims = ledger()
    record = audit(claims[2], upheld=True)
    for upheld in (True, False):
        book.apply(
            ContestRecord(
                purpose="confirm",
                workload="w",
                subject=record.subject,
                against="x",
                contest=record.contest,
                speedup=None,
                upheld=upheld,
            )
        )
    assert book.tried == 2


def test_a_contest_lowers_the_bar_of_a_genome_that_was_timed_in_a_slow_moment() -> None:
    book, claims = ledger()
    best = claims[2]
    assert book.bar(best) == 7.0
    name = fingerprint(best)
    for fast, slow in [(6.0, 6.2), (6.5, 6.4)]:
        book.apply(
            ContestRecord(
                purpose="confirm",
                workload="w",
                subject="challenger",
                against=name,
                contest=Contest(names=("challenger", name), samples=((9.0, fast), (9.0, slow))),
                speedup=None,
                upheld=False,
            )
        )
    assert book.bar(best) == 6.1
