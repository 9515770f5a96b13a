"""What is compiled first: genomes whose alleles did well."""

from __future__ import annotations

from kernelarc.bench.kernels._outlook import Outlook
from kernelarc.genomes import Candidate, Choice, Evaluation, Genome, Measurement, Space, Status

SPACE = Space("r", [Choice(name="a", options=(1, 2, 3)), Choice(name="b", options=(1, 2))])


def _evaluation(genome: Genome, latency_us: float | None) -> Evaluation:
    candidate = Candidate(
        number=0, round=0, workload="w", island="user", mutation="seed", genome=genome
    )
    if latency_us is None:
        return Evaluation(
            candidate=candidate, status=Status.COMPILE_ERROR, failure="compile error", message="x"
        )
    measured = Measurement(samples=(latency_us,), objective=latency_us)
    return Evaluation(candidate=candidate, status=Status.OK, measurement=measured)


def test_nothing_is_known_at_first() -> None:
    assert Outlook().value(SPACE.genome({"a": 1, "b": 1})) == 0.0


def test_alleles_that_did_well_come_first_and_failures_last() -> None:
    outlook = Outlook()
    for a, latency_us in ((1, 100.0), (2, 10.0), (3, None)):
        for b in (1, 2):
            outlook.learn(_evaluation(SPACE.genome({"a": a, "b": b}), latency_us))
    values = {a: outlook.value(SPACE.genome({"a": a, "b": 1})) for a in (1, 2, 3)}
    assert values[2] < values[1] < values[3]


def test_before_anything_is_measured_the_route_s_guess_decides() -> None:
    outlook = Outlook(lambda genome: 4.0 - float(genome["a"]))  # type: ignore[arg-type]
    values = [outlook.value(SPACE.genome({"a": a, "b": 1})) for a in (1, 2, 3)]
    assert values == sorted(values, reverse=True)
    for a, latency_us in ((1, 10.0), (2, 100.0), (3, 1000.0)):
        outlook.learn(_evaluation(SPACE.genome({"a": a, "b": 1}), latency_us))
    measured = [outlook.value(SPACE.genome({"a": a, "b": 1})) for a in (1, 2, 3)]
    assert measured == sorted(measured)
