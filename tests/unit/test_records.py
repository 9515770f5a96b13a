"""Records: identity is content, the status decides which parts exist, nothing changes later."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    Allele,
    Candidate,
    Conclusion,
    ConclusionKind,
    Contest,
    Environment,
    Estimate,
    Evaluation,
    GeneChange,
    Genome,
    Judged,
    Measurement,
    Proposal,
    Status,
    Tolerance,
    Verdict,
    Workload,
    allele_from_json,
    allele_text,
    canonical_json,
    fingerprint_of,
    nearest,
    same_allele,
)

plain = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
alleles: st.SearchStrategy[Allele] = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5
)
assignments = st.dictionaries(st.text(min_size=1, max_size=6), alleles, max_size=6)
SETTINGS = settings(max_examples=80, deadline=None, database=None)


@SETTINGS
@given(assignments)
def test_a_genome_comes_back_from_its_canonical_text(chosen: dict[str, Allele]) -> None:
    genome = Genome("route", chosen)
    back = Genome.from_canonical("route", genome.canonical)
    assert back == genome
    assert hash(back) == hash(genome)
    assert back.canonical == genome.canonical
    assert all(same_allele(back[name], value) for name, value in chosen.items())
    assert list(genome) == sorted(chosen)
    assert pickle.loads(pickle.dumps(genome)) == genome
    assert copy.deepcopy(genome) == genome
    shuffled = Genome("route", dict(reversed(list(chosen.items()))))
    assert shuffled.fingerprint == genome.fingerprint
    assert Genome("other", chosen) != genome


def test_alleles_are_typed() -> None:
    genomes = [Genome("r", {"g": value}) for value in (1, 1.0, True, "1", (1,), (1.0,))]
    assert len({genome.fingerprint for genome in genomes}) == len(genomes)
    assert len(set(genomes)) == len(genomes)
    assert Genome("r", {"g": 1}) != {"g": 1}
    assert not same_allele((1,), (True,))
    assert same_allele((1, ("a",)), (1, ("a",)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1.0, "1.0"), (True, "true"), ("é", '"\\u00e9"'), (("a", 1), '["a",1]')],
)
def test_canonical_text_of_alleles(value: Allele, text: str) -> None:
    assert allele_text(value) == text


def test_what_is_no_allele() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite"):
            Genome("r", {"g": value})
    bad: Any = None
    with pytest.raises(TypeError, match="NoneType is no allele"):
        Genome("r", {"g": bad})
    with pytest.raises(TypeError, match="not dict"):
        allele_from_json({})
    assert allele_from_json([1, ["a"]]) == (1, ("a",))


def test_fingerprints_are_pinned() -> None:
    """Stores keep these texts for ever: a changed recipe would orphan every one of them."""
    assert fingerprint_of("") == "e3b0c44298fc1c149afbf4c8"
    genome = Genome("cpu", {"tile": 8, "alpha": 0.5, "order": ("i", "j"), "on": True})
    assert genome.canonical == '{"alpha":0.5,"on":true,"order":["i","j"],"tile":8}'
    assert genome.fingerprint == fingerprint_of("cpu\0" + genome.canonical)
    assert genome.fingerprint == "ecbc5a826d1da725a57514af"
    assert canonical_json({"b": 1, "a": [True, None]}) == '{"a":[true,null],"b":1}'


def test_replace_lays_changes_over_a_copy() -> None:
    genome = Genome("r", {"a": 1, "b": 2})
    changed = genome.replace({"b": 3})
    assert changed == {"a": 1, "b": 3}
    genome.alleles()["a"] = 9
    assert genome["a"] == 1


def a_candidate() -> Candidate:
    genome = Genome("r", {"g": 1})
    return Candidate(number=0, round=0, workload="w", island="memory", mutation="m", genome=genome)


def test_the_status_decides_which_parts_exist() -> None:
    candidate, measured = a_candidate(), Measurement(samples=(2.0, 1.0), objective=1.5)
    ok = Evaluation(candidate=candidate, status=Status.OK, measurement=measured)
    failed = Evaluation(candidate=candidate, status=Status.TIMEOUT, failure="time limit")
    assert ok.failure is None
    assert failed.measurement is None
    with pytest.raises(ValueError, match="measurement exactly when"):
        Evaluation(candidate=candidate, status=Status.OK)
    with pytest.raises(ValueError, match="measurement exactly when"):
        Evaluation(candidate=candidate, status=Status.TIMEOUT, measurement=measured, failure="late")
    with pytest.raises(ValueError, match="failure exactly when"):
        Evaluation(candidate=candidate, status=Status.COMPILE_ERROR)
    with pytest.raises(ValueError, match="failure exactly when"):
        Evaluation(candidate=candidate, status=Status.OK, measurement=measured, failure="x")


def test_records_are_frozen_and_travel_between_processes() -> None:
    evaluation = Evaluation(
        candidate=a_candidate(),
        status=Status.OK,
        measurement=Measurement(samples=(1.0,), objective=1.0),
    )
    records: list[Any] = [
        Judged(evaluation=evaluation, verdict=Verdict.KEEP),
        Environment(identity={"cpu": "x"}),
        Proposal(genome=Genome("r", {"g": 1}), mutation="sample"),
        Contest(names=("a",), samples=((1.0,),)),
        a_conclusion(),
        Workload(operator="o", axes={"M": 1}),
    ]
    for record in records:
        assert pickle.loads(pickle.dumps(record)) == record
        name = dataclasses.fields(record)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)


@pytest.mark.parametrize(
    ("unit", "latency_us"),
    [("us", 2.0), ("ms", 2000.0), ("ns", 0.002), ("s", 2e6), ("GFLOP/s", None)],
)
def test_latency_is_known_where_the_objective_is_a_time(
    unit: str, latency_us: float | None
) -> None:
    measured = Measurement(samples=(2.0,), objective=2.0, unit=unit)
    assert measured.latency_us == (None if latency_us is None else pytest.approx(latency_us))


def test_a_contest_s_columns() -> None:
    contest = Contest(names=("a", "baseline:b"), samples=((1.0, 2.0), (3.0, 4.0)))
    assert contest.column("baseline:b") == (2.0, 4.0)
    with pytest.raises(ValueError, match="not in tuple"):
        contest.column("c")


def test_observations_do_not_change_an_environment() -> None:
    identity = {"cpu": "x", "compiler": "cc 1"}
    cool = Environment(identity=identity, observations={"temperature": "40"})
    warm = Environment(identity=dict(reversed(identity.items())), observations={"host": "h"})
    assert cool.fingerprint == warm.fingerprint
    assert cool.fingerprint != Environment(identity={**identity, "compiler": "cc 2"}).fingerprint


def a_conclusion(**changes: Any) -> Conclusion:
    fields: dict[str, Any] = {
        "kind": ConclusionKind.WIN,
        "operator": "o",
        "workload": "w",
        "route": "r",
        "island": "memory",
        "why": "Wider vectors.",
        "changes": (GeneChange(gene="vec", before=4, after=8),),
        "genome": Genome("r", {"vec": 8}),
        "speedup": Estimate(value=1.1, low=1.05, high=1.2, n=9),
        "evidence": (3, 4),
    }
    return Conclusion(**{**fields, **changes})


def test_a_conclusion_is_what_it_claims() -> None:
    claim = a_conclusion()
    told_otherwise = a_conclusion(island="fusion", why="Other words.", evidence=(9,), speedup=None)
    assert told_otherwise.fingerprint == claim.fingerprint
    others = [
        a_conclusion(kind=ConclusionKind.TRAP),
        a_conclusion(workload="v"),
        a_conclusion(changes=()),
        a_conclusion(genome=None),
        a_conclusion(region={"vec": 8}),
        a_conclusion(failure="timeout"),
    ]
    prints = {claim.fingerprint, *(other.fingerprint for other in others)}
    assert len(prints) == 1 + len(others)


def test_the_same_can_be_retracted_twice() -> None:
    first, second = (
        a_conclusion(kind=ConclusionKind.RETRACTION, retracts="f", evidence=(n,)) for n in (1, 2)
    )
    assert first.fingerprint != second.fingerprint


def test_a_workload_s_label_and_uuid_are_not_its_identity() -> None:
    named = Workload(operator="o", axes={"M": 4}, uuid="u", options={"residual": True})
    same = Workload(operator="o", axes={"M": 4}, uuid="v", options={"residual": True})
    assert named.fingerprint == same.fingerprint
    assert named.label == "M=4 residual=True"
    assert Workload(operator="o", uuid="u").label == "u"
    assert Workload(operator="o").label == "default"
    looser = Workload(operator="o", axes={"M": 4}, tolerance=Tolerance(max_atol=1.0))
    assert looser.fingerprint != Workload(operator="o", axes={"M": 4}).fingerprint


def test_the_nearest_known_word() -> None:
    assert nearest("memry", ["memory", "fusion"]) == " (did you mean 'memory'?)"
    assert nearest("xyz", ["memory", "fusion"]) == " (known: fusion, memory)"
    assert nearest("xyz", []) == ""
