"""Our own recording format: what is written comes back with equal fingerprints."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.bench import ReplayDevice, load_recording, write_recording
from kernelarc.genomes import (
    Allele,
    Boolean,
    Candidate,
    Choice,
    Environment,
    Evaluation,
    ExpressionConstraint,
    Gene,
    Genome,
    InputError,
    IntegerRange,
    Measurement,
    Permutation,
    PowerOfTwo,
    PredicateConstraint,
    Space,
    Status,
    Strategy,
    When,
    Workload,
    builtin_problem,
)

PROBLEM = builtin_problem("gemm", {"M": 8, "N": 8, "K": 8})
WORKLOAD = PROBLEM.workloads[0]
ENVIRONMENT = Environment(identity={"device": "some machine"}, observations={"host": "here"})
GENES: tuple[Gene, ...] = (
    PowerOfTwo(name="block", low=1, high=8, strategy=Strategy.MEMORY),
    Boolean(name="packed"),
    IntegerRange(name="ahead", low=0, high=9, step=3, when=When(gene="packed", values=(True,))),
    Permutation(name="order", items=("i", "j", "k")),
    Choice(name="flags", options=("-O2", "-O3"), description="optimisation level"),
    Choice(name="scale", options=(0.5, 1.0, 2.0)),
)
NAMES = tuple(gene.name for gene in GENES)


def space(*, predicate: bool = False) -> Space:
    constraints: list[Any] = [ExpressionConstraint("block * scale <= 8", NAMES)]
    if predicate:
        constraints.append(PredicateConstraint(lambda block: block != 4, genes=("block",)))
    return Space("cpu", GENES, constraints)


def evaluation(genome: Genome, number: int, objective: float | None) -> Evaluation:
    candidate = Candidate(
        number=number,
        round=0,
        workload=WORKLOAD.fingerprint,
        island="memory",
        mutation="sample",
        genome=genome,
    )
    if objective is None:
        return Evaluation(
            candidate=candidate,
            status=Status.TIMEOUT,
            failure="took too long",
            message="after 3 s",
            cost_s=3.0,
        )
    samples = (objective, objective * 1.5, objective * 0.5)
    return Evaluation(
        candidate=candidate,
        status=Status.OK,
        measurement=Measurement(samples=samples, objective=objective),
        cost_s=0.25,
    )


def everything(recorded: Space) -> list[Evaluation]:
    return [
        evaluation(genome, i, None if i % 7 == 3 else 10.0 + i)
        for i, genome in enumerate(recorded.enumerate())
    ]


def write(path: Path, recorded: Space, told: list[Evaluation], **more: Any) -> int:
    return write_recording(
        path,
        operator=PROBLEM.operator,
        workload=WORKLOAD,
        spaces={"cpu": recorded},
        environment=ENVIRONMENT,
        evaluations=told,
        **more,
    )


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_what_was_recorded_comes_back(tmp_path: Path, name: str) -> None:
    recorded, path = space(), tmp_path / name
    told = everything(recorded)
    assert write(path, recorded, told, complete=True) == len(told)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    found = load_recording(path)
    assert found.kind == "kernelarc"
    assert found.operator.fingerprint == PROBLEM.operator.fingerprint
    assert found.operator == PROBLEM.operator
    assert found.workload.fingerprint == WORKLOAD.fingerprint
    assert found.environment.identity["device"] == "some machine"
    assert found.spaces["cpu"].genes[0] == GENES[0]
    assert found.spaces["cpu"].size() == recorded.size()
    assert [c.text for c in found.spaces["cpu"].constraints] == ["block * scale <= 8"]
    for each in told:
        answer = found.answer(each.candidate.genome)
        assert answer is not None
        assert (answer.status, answer.failure) == (each.status, each.failure)
        assert (answer.message, answer.cost_s) == (each.message, each.cost_s)
        if each.measurement is not None:
            assert answer.objective == each.measurement.objective
            assert answer.samples == each.measurement.samples


def test_numbers_that_were_reported_are_replayed(tmp_path: Path) -> None:
    recorded = space()
    first, second, *_ = recorded.enumerate()
    reported: dict[str, Allele] = {"registers": 96, "binary": "0f3a", "max_error": 0.5}
    told = [
        replace(evaluation(first, 0, 5.0), properties=reported),
        replace(evaluation(second, 1, None), properties={"shared_bytes": 1024}),
    ]
    write(tmp_path / "a.json", recorded, told)
    device = ReplayDevice(tmp_path / "a.json")
    with device.open(device.problem, seed=0, artefacts=tmp_path) as session:
        session.submit([each.candidate for each in told], limit={})
        found = [dict(each.properties) for each in session.collect()]
    assert found == [{"registers": 96}, {"shared_bytes": 1024}]


def test_a_recording_from_before_properties_is_read(tmp_path: Path) -> None:
    recorded, path = space(), tmp_path / "a.json"
    told = everything(recorded)[:4]
    write(path, recorded, told)
    document = json.loads(path.read_text())
    document["columns"] = document["columns"][:-1]
    document["rows"] = [row[:-1] for row in document["rows"]]
    path.write_text(json.dumps(document))
    found = load_recording(path)
    for each in told:
        answer = found.answer(each.candidate.genome)
        assert answer is not None
        assert (answer.status, answer.properties) == (each.status, {})


def test_replayed_genomes_are_the_recorded_ones(tmp_path: Path) -> None:
    recorded = space()
    write(tmp_path / "a.json", recorded, everything(recorded), complete=True)
    device = ReplayDevice(tmp_path / "a.json")
    replayed = device.recording.spaces["cpu"]
    assert [g.fingerprint for g in replayed.enumerate()] == [
        g.fingerprint for g in recorded.enumerate()
    ]
    with device.open(device.problem, seed=0, artefacts=tmp_path) as session:
        assert session.check(WORKLOAD, list(recorded.enumerate())) == [None] * len(
            everything(recorded)
        )


def test_a_users_function_is_replaced_by_the_rows_themselves(tmp_path: Path) -> None:
    recorded = Space("cpu", GENES[:2], [PredicateConstraint(lambda block: block != 4)])
    write(tmp_path / "a.json", recorded, everything(recorded), complete=True)
    replayed = load_recording(tmp_path / "a.json").spaces["cpu"]
    assert set(replayed.enumerate()) == set(recorded.enumerate())


def test_a_part_of_a_space_allows_only_what_was_recorded(tmp_path: Path) -> None:
    recorded = Space("cpu", GENES[:2])
    told = everything(recorded)[2:5]
    write(tmp_path / "a.json", recorded, told)
    replayed = load_recording(tmp_path / "a.json").spaces["cpu"]
    assert set(replayed.enumerate()) == {each.candidate.genome for each in told}


def test_rejected_interrupted_and_other_workloads_say_nothing_of_a_genome(tmp_path: Path) -> None:
    recorded = space()
    told = everything(recorded)[:4]
    other = Workload(operator=PROBLEM.operator.fingerprint, axes={"M": 1, "N": 1, "K": 1})
    candidate = told[0].candidate
    told += [
        Evaluation(candidate=candidate, status=status, failure="x")
        for status in (Status.REJECTED, Status.INTERRUPTED)
    ]
    assert write(tmp_path / "a.json", recorded, told) == 4
    with pytest.raises(InputError):
        write_recording(
            tmp_path / "b.json",
            operator=PROBLEM.operator,
            workload=WORKLOAD,
            spaces={},
            environment=ENVIRONMENT,
            evaluations=told,
        )
    assert not (tmp_path / "b.json").exists()
    assert (
        write_recording(
            tmp_path / "c.json",
            operator=PROBLEM.operator,
            workload=other,
            spaces={"cpu": recorded},
            environment=ENVIRONMENT,
            evaluations=told,
        )
        == 0
    )


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    recorded, path = space(), tmp_path / "a.json"
    write(path, recorded, everything(recorded)[:2])
    path.write_text(path.read_text().replace('"kernelarc_recording":1', '"kernelarc_recording":2'))
    with pytest.raises(InputError, match="schema 2; this version reads 1"):
        load_recording(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"kind":"boolean"', '"kind":"bolean"'),
        ('"low":1', '"low":3'),
        ('"unit":"us",', ""),
        ('"axes"', '"axles"'),
        ('"OK"', '"FINE"'),
        ("[[0,", "[[9,"),
        ('"strategy":"memory"', '"strategy":"memories"'),
    ],
)
def test_a_malformed_recording_is_one_clear_line(tmp_path: Path, old: str, new: str) -> None:
    recorded, path = space(), tmp_path / "a.json"
    write(path, recorded, everything(recorded)[:2])
    text = path.read_text().replace('"rows":[\n', '"rows":[')
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_recording(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_place_must_be_writable_and_nothing_half_written_stays(tmp_path: Path) -> None:
    recorded = space()
    for path in (tmp_path, tmp_path / "absent" / "a.json"):
        with pytest.raises(InputError, match=r"regular|written"):
            write(path, recorded, everything(recorded)[:2])
    assert list(tmp_path.iterdir()) == []


def test_equal_recordings_are_equal_bytes(tmp_path: Path) -> None:
    recorded = space()
    for name in ("a.json.gz", "b.json.gz"):
        write(tmp_path / name, recorded, everything(recorded)[:9])
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert "kernelarc_recording" in json.loads(
        gzip.decompress((tmp_path / "a.json.gz").read_bytes())
    )


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 143), st.none() | st.floats(1e-3, 1e9, allow_nan=False)),
        max_size=12,
    )
)
def test_the_last_row_of_a_genome_is_what_comes_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, float | None]]
) -> None:
    path = tmp_path_factory.mktemp("drawn") / "a.json"
    recorded = space()
    genomes = list(recorded.enumerate())
    told = [evaluation(genomes[i], n, time) for n, (i, time) in enumerate(drawn)]
    write(path, recorded, told)
    found = load_recording(path)
    last = {each.candidate.genome: each for each in told}
    assert found.counts.genomes == len(last)
    for genome, each in last.items():
        answer = found.answer(genome)
        assert answer is not None
        assert answer.status is each.status
