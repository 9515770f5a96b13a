"""The replay device: deterministic, without noise, and nothing of the table in the spaces."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kernelarc.bench import ReplayDevice, Session
from kernelarc.genomes import Candidate, Genome, InputError, Operator, Problem, Status, Workload

TIMES: dict[tuple[int, int], Any] = {
    (a, b): (a * 10.0 + b if a < 8 else "RuntimeFailedConfig") for a in (1, 2, 4, 8) for b in (0, 1)
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = {
        f"{a},{b}": {"a": a, "b": b, "time": time, "compile_time": 500.0, "benchmark_time": 250.0}
        for (a, b), time in TIMES.items()
    }
    document = {
        "kernel_name": "k",
        "problem_size": [64],
        "tune_params_keys": ["a", "b"],
        "tune_params": {"a": [1, 2, 4, 8], "b": [0, 1]},
        "restrictions": [],
        "cache": rows,
    }
    found = tmp_path / "space.json"
    found.write_text(json.dumps(document))
    return found


def opened(device: ReplayDevice, tmp_path: Path) -> Session:
    return device.open(device.problem, seed=1, artefacts=tmp_path)


def genome(a: int, b: int) -> Genome:
    return Genome("recorded", {"a": a, "b": b})


def candidates(device: ReplayDevice, genomes: list[Genome]) -> list[Candidate]:
    return [
        Candidate(
            number=i,
            round=0,
            workload=device.recording.workload.fingerprint,
            island="memory",
            mutation="sample",
            genome=genome,
        )
        for i, genome in enumerate(genomes)
    ]


def test_every_row_comes_back_as_its_evaluation_in_order(path: Path, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    asked = candidates(device, [genome(a, b) for a, b in TIMES])
    with opened(device, tmp_path) as session:
        session.submit(asked[:5], limit={})
        session.submit(asked[5:], limit={asked[0].workload: 1.0})
        told = list(session.collect())
        assert list(session.collect()) == []
    assert [e.candidate for e in told] == asked
    for evaluation, recorded in zip(told, TIMES.values(), strict=True):
        assert evaluation.cost_s == pytest.approx(0.75)
        if isinstance(recorded, str):
            assert evaluation.status is Status.LAUNCH_ERROR
        else:
            assert evaluation.measurement is not None
            assert evaluation.measurement.objective == recorded
            assert evaluation.measurement.latency_us == recorded * 1000.0
            assert evaluation.measurement.cache == "recorded"


def test_the_contract_of_a_deterministic_device(path: Path, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    with opened(device, tmp_path) as session:
        workload = device.recording.workload
        assert device.deterministic
        assert session.deterministic
        assert (session.window, session.lag) == (1, 0)
        assert session.seeds(workload) == ()
        assert session.baseline_name(workload) is None
        assert session.environment == device.environment()
        assert session.spaces(workload).keys() == {"recorded"}


def test_check_speaks_of_legality_alone(path: Path, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    with opened(device, tmp_path) as session:
        told = session.check(
            device.recording.workload,
            [genome(1, 0), genome(8, 1), genome(3, 0), Genome("other", {"a": 1})],
        )
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert told[3] is not None
    assert "route" in told[3]


def test_a_contest_repeats_the_recorded_numbers_without_noise(path: Path, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    contenders = [genome(1, 0), genome(2, 1), genome(8, 0)]
    with opened(device, tmp_path) as session:
        found = session.contest(device.recording.workload, contenders, rounds=3, baseline=True)
    assert found.names == tuple(g.fingerprint for g in contenders)
    assert found.column(contenders[0].fingerprint) == (10.0,) * 3
    assert found.column(contenders[1].fingerprint) == (21.0,) * 3
    assert all(math.isnan(x) for x in found.column(contenders[2].fingerprint))
    assert found.failures == {contenders[2].fingerprint: "does not launch"}
    assert found.unit == "ms"


def test_nothing_of_the_table_is_reachable_from_a_space(path: Path) -> None:
    (space,) = ReplayDevice(path).recording.spaces.values()
    assert space.constraints == ()
    assert {gene.name for gene in space.genes} == {"a", "b"}


def test_replaying_never_writes_to_the_file(path: Path, tmp_path: Path) -> None:
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    device = ReplayDevice(path)
    with opened(device, tmp_path) as session:
        session.submit(candidates(device, [genome(1, 0)]), limit={})
        list(session.collect())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, stamp)
    assert list(tmp_path.iterdir()) == [path]


def test_permuting_exchanges_times_among_the_working_rows_and_says_so(path: Path) -> None:
    plain, permuted = ReplayDevice(path), ReplayDevice(path, permute_seed=3)
    again = ReplayDevice(path, permute_seed=3)

    def times(device: ReplayDevice) -> list[float | None]:
        found = []
        for a, b in TIMES:
            answer = device.recording.answer(genome(a, b))
            assert answer is not None
            found.append(answer.objective if answer.failure is None else None)
        return found

    assert times(permuted) == times(again)
    assert times(permuted) != times(plain)
    assert sorted(t for t in times(permuted) if t) == sorted(t for t in times(plain) if t)
    assert times(permuted)[-2:] == [None, None]
    assert permuted.environment().fingerprint != plain.environment().fingerprint


def test_another_problem_is_refused(path: Path, tmp_path: Path) -> None:
    operator = Operator(name="other", axes={}, inputs=(), outputs=())
    problem = Problem(operator=operator, workloads=(Workload(operator=operator.fingerprint),))
    with pytest.raises(InputError, match="another problem"):
        ReplayDevice(path).open(problem, seed=0, artefacts=tmp_path)


def test_a_genome_without_a_row_is_rejected_and_does_not_raise(path: Path, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    with opened(device, tmp_path) as session:
        session.submit(candidates(device, [genome(3, 0)]), limit={})
        (told,) = session.collect()
    assert (told.status, told.failure) == (Status.REJECTED, "not recorded")
