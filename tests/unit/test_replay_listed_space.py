"""A space that is a list of rows behaves like one that is told by constraints."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.bench import load_recording, write_recording
from kernelarc.genomes import (
    Boolean,
    Candidate,
    Environment,
    Evaluation,
    ExpressionConstraint,
    Genome,
    IllegalGenomeError,
    IntegerRange,
    NothingValidError,
    Permutation,
    Space,
    Status,
    Strategy,
    When,
    builtin_problem,
)

PARAMS: dict[str, list[Any]] = {"a": [1, 2, 4, 8], "b": [1, 2, 3], "c": ["x", "y"]}
RULE = "a * b <= 8"


def listed(path: Path, points: list[tuple[Any, ...]], **header: Any) -> Space:
    rows = {
        ",".join(map(str, p)): {**dict(zip(PARAMS, p, strict=True)), "time": 1.0} for p in points
    }
    document = {
        "kernel_name": "k",
        "tune_params_keys": list(PARAMS),
        "tune_params": PARAMS,
        **header,
        "cache": rows,
    }
    path.write_text(json.dumps(document))
    (space,) = load_recording(path).spaces.values()
    return space


def all_points() -> list[tuple[Any, ...]]:
    return list(itertools.product(*PARAMS.values()))


@pytest.fixture
def told(tmp_path: Path) -> Space:
    return listed(tmp_path / "told.json", all_points(), restrictions=[RULE])


@pytest.fixture
def rows(tmp_path: Path) -> Space:
    return listed(tmp_path / "rows.json", [p for p in all_points() if p[0] * p[1] <= 8])


def test_both_hold_the_same_genomes(told: Space, rows: Space) -> None:
    assert type(told) is Space
    assert set(told.enumerate()) == set(rows.enumerate())
    assert rows.size().exact
    assert rows.size().legal == told.size().legal == len(list(rows.enumerate()))
    assert rows.size().raw == told.size().raw == 24


def test_both_judge_and_step_alike(told: Space, rows: Space) -> None:
    for point in all_points():
        alleles = dict(zip(PARAMS, point, strict=True))
        assert (told.violation(alleles) is None) == (rows.violation(alleles) is None)
        genome = Genome("recorded", alleles)
        assert told.contains(genome) == rows.contains(genome)
        if told.violation(alleles) is None:
            assert set(told.neighbours(genome)) == set(rows.neighbours(genome))
        else:
            with pytest.raises(IllegalGenomeError, match="a row for it"):
                rows.genome(alleles)
    assert rows.violation({"a": 3, "b": 1, "c": "x"}) == told.violation({"a": 3, "b": 1, "c": "x"})


def test_draws_are_even(rows: Space) -> None:
    rng = np.random.default_rng(0)
    legal = rows.size().legal
    counts = Counter(rows.sample(rng) for _ in range(100 * legal))
    assert len(counts) == legal
    assert all(60 < n < 145 for n in counts.values())
    assert rows.even


def test_repair_changes_as_few_genes_as_can_be(told: Space, rows: Space) -> None:
    rng = np.random.default_rng(0)
    for point in all_points():
        wanted = dict(zip(PARAMS, point, strict=True))
        found = rows.repair(wanted, rng)
        assert found is not None
        least = min(sum(g[n] != v for n, v in wanted.items()) for g in told.enumerate())
        assert sum(found[n] != v for n, v in wanted.items()) == least
    partial = rows.repair({"a": 8, "nothing": 1}, rng)
    assert partial is not None
    assert partial["a"] == 8


def test_pinning_and_relabelling_keep_what_they_should(told: Space, rows: Space) -> None:
    assert set(rows.pin({"a": 4}).enumerate()) == set(told.pin({"a": 4}).enumerate())
    twice = rows.pin({"a": 4}).pin({"c": "y"})
    assert set(twice.enumerate()) == set(told.pin({"a": 4, "c": "y"}).enumerate())
    assert rows.pin({"a": 4}).sample(np.random.default_rng(0))["a"] == 4
    labelled = rows.relabelled({"a": Strategy.FUSION})
    assert labelled.gene("a").strategy is Strategy.FUSION
    assert list(labelled.enumerate()) == list(rows.enumerate())


def test_restrictions_still_hold_beside_the_rows(tmp_path: Path) -> None:
    some = all_points()[::2]
    space = listed(tmp_path / "a.json", some, restrictions=[RULE])
    expected = {p for p in some if p[0] * p[1] <= 8}
    assert {tuple(g[n] for n in PARAMS) for g in space.enumerate()} == expected
    assert RULE in [constraint.text for constraint in space.constraints]


def test_no_rows_is_nothing_valid(tmp_path: Path) -> None:
    space = listed(tmp_path / "a.json", [])
    assert space.size().legal == 0
    assert list(space.enumerate()) == []
    assert space.repair({"a": 1}, np.random.default_rng(0)) is None
    with pytest.raises(NothingValidError, match="no row of the recording"):
        space.sample(np.random.default_rng(0))


def test_conditional_genes_are_listed_too(tmp_path: Path) -> None:
    genes = (
        Boolean(name="on"),
        IntegerRange(name="depth", low=0, high=10**9, when=When(gene="on", values=(True,))),
        Permutation(name="order", items=("i", "j", "k")),
    )
    problem = builtin_problem("gemm", {"M": 8, "N": 8, "K": 8})
    (workload,) = problem.workloads
    space = Space("cpu", genes, [ExpressionConstraint("depth != 5", ["depth"])])
    rng = np.random.default_rng(1)
    genomes = [space.sample(rng) for _ in range(20)]
    told = [
        Evaluation(
            candidate=Candidate(
                number=i,
                round=0,
                workload=workload.fingerprint,
                island="a",
                mutation="m",
                genome=genome,
            ),
            status=Status.TIMEOUT,
            failure="took too long",
        )
        for i, genome in enumerate(genomes)
    ]
    write_recording(
        tmp_path / "a.json",
        operator=problem.operator,
        workload=workload,
        spaces={"cpu": space},
        environment=Environment(identity={"device": "d"}),
        evaluations=told,
    )
    found = load_recording(tmp_path / "a.json").spaces["cpu"]
    assert set(found.enumerate()) == set(genomes)
    assert all(found.sample(rng) in genomes for _ in range(50))
    for genome in genomes:
        assert found.repair(genome.alleles(), rng) == genome
    assert all(step in genomes for genome in genomes for step in found.neighbours(genome))
    assert set(pickle.loads(pickle.dumps(found)).enumerate()) == set(genomes)


def test_few_rows_of_a_huge_space_are_drawn_at_once(tmp_path: Path) -> None:
    names = [f"g{i}" for i in range(15)]
    rng = np.random.default_rng(2)
    points = rng.integers(0, 8, size=(1000, 15)).tolist()
    rows = {
        ",".join(map(str, p)): {**dict(zip(names, p, strict=True)), "time": 1.0} for p in points
    }
    params = {name: list(range(8)) for name in names}
    document = {"tune_params_keys": names, "tune_params": params, "cache": rows}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    (space,) = load_recording(path).spaces.values()
    started = time.perf_counter()
    assert space.size().raw == 8**15
    assert all(space.contains(space.sample(rng)) for _ in range(100))
    assert time.perf_counter() - started < 5.0
