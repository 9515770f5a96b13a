"""A folder of recordings is one problem with a workload a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelarc.bench import ReplayFolder, replay_device, write_recording
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import (
    Candidate,
    Choice,
    Environment,
    Evaluation,
    InputError,
    Measurement,
    Problem,
    Space,
    Status,
    Strategy,
    builtin_problem,
)

SPACE = Space(
    "cpu",
    [Choice(name=n, options=(1, 2, 4, 8), strategy=Strategy.MEMORY) for n in ("block", "ahead")],
)


def write(path: Path, problem: Problem, best: tuple[int, int]) -> None:
    """Record a space whose best genome is named."""
    workload = problem.workloads[0]
    rows = []
    for number, genome in enumerate(SPACE.enumerate()):
        far = abs(int(str(genome["block"])) - best[0]) + abs(int(str(genome["ahead"])) - best[1])
        candidate = Candidate(
            number=number,
            round=0,
            workload=workload.fingerprint,
            island="memory",
            mutation="sample",
            genome=genome,
        )
        timed = Measurement(samples=(1.0 + far,), objective=1.0 + far)
        rows.append(Evaluation(candidate=candidate, status=Status.OK, measurement=timed))
    write_recording(
        path,
        operator=problem.operator,
        workload=workload,
        spaces={"cpu": SPACE},
        environment=Environment(identity={"device": "there"}, observations={}),
        evaluations=rows,
    )


def gemm(m: int) -> Problem:
    return builtin_problem("gemm", {"M": m, "N": 8, "K": 8})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "recorded"
    place.mkdir()
    write(place / "a.json.gz", gemm(8), (8, 1))
    write(place / "b.json", gemm(16), (1, 8))
    return place


def test_one_campaign_finds_the_best_of_every_file(folder: Path, tmp_path: Path) -> None:
    result = run(CampaignSettings(target=str(folder), store=str(tmp_path / "s.db"), budget=32))
    found = [(b.genome["block"], b.genome["ahead"], b.objective) for b in result.bests]
    assert found == [(8, 1, 1.0), (1, 8, 1.0)]
    assert result.evaluations.unique == 32


def test_the_environment_is_what_the_files_share(folder: Path) -> None:
    identity = replay_device(folder).environment().identity
    assert identity["device"] == "there"
    write(folder / "c.json", gemm(32), (1, 1))
    assert replay_device(folder).environment().identity["recording"] != identity["recording"]


def test_answers_come_in_the_order_of_submission(folder: Path, tmp_path: Path) -> None:
    device = ReplayFolder(folder)
    genomes = list(SPACE.enumerate())
    candidates = [
        Candidate(
            number=n,
            round=0,
            workload=device.problem.workloads[n % 2].fingerprint,
            island="memory",
            mutation="sample",
            genome=genomes[n],
        )
        for n in range(6)
    ]
    with device.open(device.problem, seed=0, artefacts=tmp_path) as session:
        session.submit(candidates, limit={})
        assert [e.candidate.number for e in session.collect()] == list(range(6))


def test_bad_folders_are_one_clear_line(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="holds neither a problem"):
        replay_device(empty)
    write(folder / "again.json", gemm(8), (1, 1))
    with pytest.raises(InputError, match=r"a\.json\.gz and again\.json record the same workload"):
        replay_device(folder)
    (folder / "again.json").unlink()
    write(folder / "other.json", builtin_problem("add_rmsnorm", {"rows": 8, "hidden": 8}), (1, 1))
    with pytest.raises(InputError, match="a problem has one operator"):
        replay_device(folder)
