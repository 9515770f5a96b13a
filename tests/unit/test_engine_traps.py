"""The evidence rule: when failures close a region, and what opens it again."""

from __future__ import annotations

from kernelarc.engine._traps import Region, TrapEvidence
from kernelarc.genomes import Genome, Status


def genome(a: int, b: int, c: int) -> Genome:
    return Genome("r", {"a": a, "b": b, "c": c})


def fail_many(evidence: TrapEvidence, failing: list[Genome]) -> list[Region]:
    closed: list[Region] = []
    for number, each in enumerate(failing):
        found = evidence.failed(each, Status.LAUNCH_ERROR, "crash", number)
        closed += [each.region for each in found]
    return closed


def with_passes() -> TrapEvidence:
    evidence = TrapEvidence(["a", "b", "c"])
    for b in range(4):
        for c in range(4):
            evidence.passed(genome(0, b, c))
    return evidence


def test_a_region_closes_after_five_failures_of_one_class_without_a_pass() -> None:
    evidence = with_passes()
    failing = [genome(1, b, c) for b in range(2) for c in range(3)]
    assert fail_many(evidence, failing[:4]) == []
    assert fail_many(evidence, failing[4:5]) == [(("a", 1),)]


def test_one_pass_inside_keeps_a_region_open() -> None:
    evidence = with_passes()
    evidence.passed(genome(1, 3, 3))
    failing = [genome(1, b, c) for b in range(3) for c in range(3)]
    closed = fail_many(evidence, failing)
    assert (("a", 1),) not in closed


def test_one_pass_opens_a_closed_region_again() -> None:
    evidence = with_passes()
    fail_many(evidence, [genome(1, b, c) for b in range(2) for c in range(3)])
    opened = evidence.passed(genome(1, 3, 3))
    assert [each.region for each in opened] == [(("a", 1),)]
    assert evidence.passed(genome(1, 3, 2)) == []


def test_different_failure_classes_do_not_add_up() -> None:
    evidence = with_passes()
    for number in range(8):
        status = Status.LAUNCH_ERROR if number % 2 else Status.COMPILE_ERROR
        failure = "crash" if number % 2 else "compiler"
        assert evidence.failed(genome(1, number % 4, number // 4), status, failure, number) == []


def test_timeouts_close_nothing() -> None:
    evidence = with_passes()
    for number in range(12):
        each = genome(1, number % 4, number // 4)
        assert evidence.failed(each, Status.TIMEOUT, "too slow", number) == []


def test_where_nearly_everything_fails_no_region_is_to_blame() -> None:
    evidence = TrapEvidence(["a", "b", "c"])
    failing = [genome(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    assert fail_many(evidence, failing) == []


def test_a_pair_inside_a_closed_single_is_not_closed_too() -> None:
    evidence = with_passes()
    closed = fail_many(evidence, [genome(1, 2, c % 4) for c in range(4)] * 4)
    assert len(closed) == 1
