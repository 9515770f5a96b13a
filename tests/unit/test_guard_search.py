"""Rows 33, 34 and 35: a search that finds nothing says so, and none reads the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from math import comb, log2
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench import ReplayDevice, write_recording
from kernelarc.engine import CampaignResult, CampaignSettings, run
from kernelarc.genomes import (
    Allele,
    Axis,
    Candidate,
    Choice,
    Environment,
    Evaluation,
    Measurement,
    Operator,
    PowerOfTwo,
    Space,
    Status,
    Verdict,
    Workload,
)
from kernelarc.storage import open_reader

BUDGET = 40
CAMPAIGNS = 16
SPACE = Space(
    "recorded",
    [
        PowerOfTwo(name="tile_m", low=8, high=128),
        PowerOfTwo(name="tile_n", low=8, high=128),
        Choice(name="stages", options=(1, 2, 3, 4)),
        Choice(name="order", options=("mn", "nm", "z")),
        Choice(name="vector", options=(1, 2, 4)),
    ],
)
SIZE = SPACE.size().legal
Cost = Callable[[Mapping[str, Allele]], float]


def smooth(alleles: Mapping[str, Allele]) -> float:
    """A landscape that a search can learn: one best tile, depth and width."""
    tile_m, tile_n, stages = (int(str(alleles[k])) for k in ("tile_m", "tile_n", "stages"))
    penalty = {"mn": 0.0, "nm": 6.0, "z": 3.0}[str(alleles["order"])]
    return float(
        50.0
        + 8.0 * abs(log2(tile_m) - 5) ** 1.3
        + 7.0 * abs(log2(tile_n) - 6) ** 1.3
        + 5.0 * abs(stages - 3)
        + 4.0 * abs(int(str(alleles["vector"])) - 4)
        + penalty
    )


def recorded(path: Path, cost: Cost) -> Path:
    operator = Operator(
        name="recorded", axes={"n": Axis(name="n", kind="var")}, inputs=(), outputs=()
    )
    workload = Workload(operator=operator.fingerprint, axes={"n": 1})
    evaluations = []
    for number, genome in enumerate(SPACE.enumerate()):
        time_us = float(cost(genome))
        candidate = Candidate(
            number=number,
            round=0,
            workload=workload.fingerprint,
            island="user",
            mutation="sample",
            genome=genome,
        )
        evaluations.append(
            Evaluation(
                candidate=candidate,
                status=Status.OK,
                measurement=Measurement(samples=(time_us,), objective=time_us, cache="recorded"),
                cost_s=0.1,
            )
        )
    write_recording(
        path,
        operator=operator,
        workload=workload,
        spaces={SPACE.route: SPACE},
        environment=Environment(identity={"device": "table"}),
        evaluations=evaluations,
        complete=True,
    )
    return path


def searched(
    table: Path,
    store: Path,
    *,
    seed: int,
    permute: int | None = None,
    budget: int = BUDGET,
    seed_genomes: tuple[Path, ...] = (),
) -> CampaignResult:
    device = ReplayDevice(table, permute_seed=permute)
    settings = CampaignSettings(
        target=str(table), budget=budget, seed=seed, store=str(store), seed_genomes=seed_genomes
    )
    return run(settings, device=device, problem=device.problem)


def chance(device: ReplayDevice, result: CampaignResult) -> float:
    """How likely as many random genomes hold a better one, ties split evenly.

    Over tables whose numbers are exchanged at random this is 0.5 on average for any search that
    does not read them, whatever it proposes; near 0 is what only knowledge can reach.
    """
    assert result.best is not None
    values = [
        answer.objective
        for genome in SPACE.enumerate()
        if (answer := device.recording.answer(genome))
    ]
    best, tried = result.best.objective, result.evaluations.unique

    def holds(as_good: int) -> float:
        return 1.0 - comb(SIZE - as_good, tried) / comb(SIZE, tried)

    return 0.5 * (holds(sum(v <= best for v in values)) + holds(sum(v < best for v in values)))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("table") / "smooth.json", smooth)


def test_with_permuted_times_a_search_is_as_good_as_chance(table: Path, tmp_path: Path) -> None:
    """Row 35: better than chance on shuffled answers means that it read them."""
    found = [
        chance(
            ReplayDevice(table, permute_seed=seed),
            searched(table, tmp_path / f"{seed}.db", seed=seed, permute=seed),
        )
        for seed in range(CAMPAIGNS)
    ]
    assert abs(float(np.mean(found)) - 0.5) < 4.0 * 0.29 / CAMPAIGNS**0.5


def test_with_the_true_times_the_same_search_learns(table: Path, tmp_path: Path) -> None:
    """The honest twin: on a landscape with structure it is better than chance."""
    found = [
        chance(ReplayDevice(table), searched(table, tmp_path / f"{seed}.db", seed=seed))
        for seed in range(6)
    ]
    assert float(np.mean(found)) < 0.2


def test_a_search_that_was_told_the_answer_is_seen(table: Path, tmp_path: Path) -> None:
    """The planted fault: the best genome of each shuffled table is slipped in."""
    found = []
    for seed in range(4):
        device = ReplayDevice(table, permute_seed=seed)
        answers = {g: device.recording.answer(g) for g in SPACE.enumerate()}
        best = min(answers, key=lambda g: answers[g].objective if answers[g] else np.inf)  # type: ignore[union-attr]
        told = tmp_path / f"{seed}.json"
        told.write_text(json.dumps({"route": best.route, "genome": best.alleles()}))
        result = searched(
            table, tmp_path / f"{seed}.db", seed=seed, permute=seed, seed_genomes=(told,)
        )
        found.append(chance(device, result))
    assert float(np.mean(found)) < 0.5 - 4.0 * 0.29 / CAMPAIGNS**0.5


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("flat") / "flat.json", lambda _: 80.0)


@pytest.mark.parametrize("seed", range(3))
def test_genes_without_effect_end_the_search_and_are_named(
    flat: Path, tmp_path: Path, seed: int
) -> None:
    """Rows 33 and 34 on a table; tests/device has them on real kernels."""
    result = searched(flat, tmp_path / "flat.db", seed=seed, budget=600)
    assert (result.status, result.reason) == ("finished", "plateau")
    assert result.evaluations.unique < 600
    assert result.best is not None
    assert result.best.is_start
    assert verdicts(tmp_path / "flat.db")[Verdict.KEEP] == 0
    said = " ".join(result.remarks)
    assert "no measurable effect" in said
    assert "the best equals the starting genome" in said
    assert f"{result.evaluations.measured} were measured" in said


def test_a_search_that_finds_something_says_neither(table: Path, tmp_path: Path) -> None:
    result = searched(table, tmp_path / "smooth.db", seed=1)
    assert verdicts(tmp_path / "smooth.db")[Verdict.KEEP] > 0
    assert result.best is not None
    assert not result.best.is_start
    assert not any("no measurable effect" in remark for remark in result.remarks)
    assert not any("equals the starting genome" in remark for remark in result.remarks)


def verdicts(store: Path) -> Counter[Verdict]:
    with closing(open_reader(str(store))) as reader:
        return Counter(judged.verdict for judged in reader.evaluations(1))
