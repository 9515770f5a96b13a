"""The evidence rule: when failures close a region, and what opens it again."""

from __future__ import annotations

import numpy as np
import pytest

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


def _text(value: str) -> Genome:
    return Genome("r", {"a": value, "b": 1, "c": ("x", "y") if value else ("y", "x")})


def test_alleles_with_commas_and_quotes_are_told_apart() -> None:
    evidence = TrapEvidence(["a", "b", "c"])
    for number in range(16):
        evidence.passed(_text(f'fine "a":{number},"b":1'))
    failing = [Genome("r", {"a": 'x,"b":2', "b": b, "c": ("x", "y")}) for b in range(2, 8)]
    assert fail_many(evidence, failing) == [(("a", 'x,"b":2'),)]


def test_equal_numbers_of_different_types_are_different_alleles() -> None:
    evidence = TrapEvidence(["a", "b"])
    for b in range(12):
        evidence.passed(Genome("r", {"a": 1, "b": b}))
    failing = [Genome("r", {"a": True, "b": b}) for b in range(5)]
    assert [repr(region) for region in fail_many(evidence, failing)] == ["(('a', True),)"]


class _Plain:
    """The evidence rule with sets of regions, written down once more."""

    def __init__(self) -> None:
        self.passed: set[Region] = set()
        self.failing: dict[Region, int] = {}
        self.closed: set[Region] = set()
        self.passes = self.fails = 0

    @staticmethod
    def regions(each: Genome) -> list[Region]:
        single = tuple(each.items())
        pairs = [(x, y) for i, x in enumerate(single) for y in single[i + 1 :]]
        return [*((x,) for x in single), *pairs]

    def passes_in(self, each: Genome) -> set[Region]:
        self.passes += 1
        inside = set(self.regions(each))
        self.passed |= inside
        for region in inside:
            self.failing.pop(region, None)
        opened = self.closed & inside
        self.closed -= inside
        return opened

    def fails_in(self, each: Genome) -> set[Region]:
        self.fails += 1
        share = (self.fails + 1) / (self.fails + self.passes + 2)
        ripe = []
        for region in self.regions(each):
            if region not in self.passed and region not in self.closed:
                n = self.failing[region] = self.failing.get(region, 0) + 1
                ripe += [region] if n >= 5 and share**n < 0.01 else []
        for region in ripe:
            if not any(set(known) <= set(region) for known in self.closed):
                del self.failing[region]
                self.closed.add(region)
                return {region}
        return set()


@pytest.mark.parametrize("seed", range(12))
def test_the_rule_is_the_one_written_down_with_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, plain = TrapEvidence(["a", "b", "c"]), _Plain()
    closed = opened = 0
    for number in range(300):
        a, b, c = map(int, rng.integers([3, 4, 5]))
        each, luck = genome(a, b, c), float(rng.random())
        if luck > (0.97 if (a, b) == (0, 1) or c == 4 else 0.02):
            found = {r.region for r in evidence.passed(each)}
            assert found == plain.passes_in(each)
            opened += len(found)
        else:
            found = {r.region for r in evidence.failed(each, Status.LAUNCH_ERROR, "x", number)}
            assert found == plain.fails_in(each)
            closed += len(found)
    assert closed > 0, "nothing was closed: the comparison says nothing"
    assert opened <= closed
