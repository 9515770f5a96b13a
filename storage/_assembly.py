"""Records put together from stored columns, without the generated constructors.

A frozen dataclass's own ``__init__`` looks up and calls ``object.__setattr__`` for every field,
which takes two to three times as long as filling the slots, and most of the time of reading a
long log. What is stored was made by the constructors once, so their checks have been passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from kernelarc.genomes import (
    Allele,
    Candidate,
    Evaluation,
    Genome,
    Judged,
    Measurement,
    Status,
    Verdict,
)

_Fill = Callable[[object, Any], None]
_new = object.__new__


def _fillers(record: type, *names: str) -> tuple[_Fill, ...]:
    """Return what fills each slot; fails on import when the record has other fields by now."""
    has = tuple(field.name for field in fields(record))
    if set(has) != set(names):
        raise TypeError(f"{record.__name__} has the fields {has}, the store knows {names}")
    return tuple(record.__dict__[name].__set__ for name in names)


_c_number, _c_round, _c_workload, _c_island, _c_mutation, _c_genome, _c_parents = _fillers(
    Candidate, "number", "round", "workload", "island", "mutation", "genome", "parents"
)
_m_samples, _m_objective, _m_unit, _m_censored, _m_cache, _m_launches = _fillers(
    Measurement, "samples", "objective", "unit", "censored", "cache", "launches"
)
_e_candidate, _e_status, _e_measurement, _e_failure, _e_message, _e_cost, _e_properties = _fillers(
    Evaluation, "candidate", "status", "measurement", "failure", "message", "cost_s", "properties"
)
_j_evaluation, _j_verdict = _fillers(Judged, "evaluation", "verdict")


def candidate(
    *,
    number: int,
    asked: int,
    workload: str,
    island: str,
    mutation: str,
    genome: Genome,
    parents: tuple[str, ...],
) -> Candidate:
    """Make a candidate of a round."""
    made = _new(Candidate)
    _c_number(made, number)
    _c_round(made, asked)
    _c_workload(made, workload)
    _c_island(made, island)
    _c_mutation(made, mutation)
    _c_genome(made, genome)
    _c_parents(made, parents)
    return made


def measurement(
    *,
    samples: tuple[float, ...],
    objective: float,
    unit: str,
    censored: bool,
    cache: str,
    launches: int,
) -> Measurement:
    """Make a measurement."""
    made = _new(Measurement)
    _m_samples(made, samples)
    _m_objective(made, objective)
    _m_unit(made, unit)
    _m_censored(made, censored)
    _m_cache(made, cache)
    _m_launches(made, launches)
    return made


def judged(
    *,
    verdict: Verdict,
    of: Candidate,
    status: Status,
    measured: Measurement | None,
    failure: str | None,
    message: str,
    cost_s: float,
    properties: Mapping[str, Allele],
) -> Judged:
    """Make an evaluation with its verdict."""
    evaluation = _new(Evaluation)
    _e_candidate(evaluation, of)
    _e_status(evaluation, status)
    _e_measurement(evaluation, measured)
    _e_failure(evaluation, failure)
    _e_message(evaluation, message)
    _e_cost(evaluation, cost_s)
    _e_properties(evaluation, properties)
    made = _new(Judged)
    _j_evaluation(made, evaluation)
    _j_verdict(made, verdict)
    return made
