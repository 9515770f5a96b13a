"""What islands may read of a workload's evaluations."""

from __future__ import annotations

from kernelarc.engine._view import LogView
from kernelarc.genomes import Candidate, Evaluation, Genome, Judged, Measurement, Status, Verdict


def _judged(genome: Genome, number: int, latency_us: float | None) -> Judged:
    candidate = Candidate(
        number=number, round=0, workload="w", island="memory", mutation="step", genome=genome
    )
    if latency_us is None:
        evaluation = Evaluation(
            candidate=candidate, status=Status.INTERRUPTED, failure="time was up", message="m"
        )
        return Judged(evaluation=evaluation, verdict=Verdict.REJECT)
    measured = Measurement(samples=(latency_us,), objective=latency_us)
    evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=measured)
    return Judged(evaluation=evaluation, verdict=Verdict.ACCEPT)


def test_what_came_back_untried_may_be_proposed_again_and_teaches_nothing() -> None:
    """A win is drawn from reverts that were evaluated: one that was given up is none of them."""
    log, genome = LogView(), Genome("r", {"a": 1})
    log.reserve(genome.fingerprint)
    assert log.evaluated(genome.fingerprint)
    log.add(_judged(genome, 0, None))
    assert not log.evaluated(genome.fingerprint)
    assert not log.recent(5) and not log.best(5)
    log.add(_judged(genome, 1, 12.0))
    log.add(_judged(genome, 2, None))  # asked for again, and given up: it stays what it was
    assert log.evaluated(genome.fingerprint)
    assert [j.evaluation.candidate.number for j in log.recent(5)] == [1]
