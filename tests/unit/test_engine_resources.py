"""The bandit of register caps and pipeline depths: pure, learning, quiet at first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench import ReplayDevice
from kernelarc.engine import CampaignSettings, run
from kernelarc.engine._campaign import build_state
from kernelarc.engine._resource_lessons import bandits_of
from kernelarc.engine._resources import ResourceBandit, context_of, intensity_of, lessons_from
from kernelarc.engine._view import LogView
from kernelarc.genomes import (
    Allele,
    Axis,
    Candidate,
    Choice,
    Evaluation,
    ExpressionConstraint,
    Genome,
    IntegerRange,
    Judged,
    Measurement,
    Operator,
    PowerOfTwo,
    Proposal,
    Space,
    Status,
    TensorSpec,
    Verdict,
    Workload,
    assign_strategies,
)
from kernelarc.storage import open_reader

GENES = (
    PowerOfTwo(name="BLOCK_M", low=32, high=256),
    PowerOfTwo(name="BLOCK_N", low=32, high=256),
    PowerOfTwo(name="num_warps", low=2, high=8),
    IntegerRange(name="num_stages", low=1, high=5),
    Choice(name="maxnreg", options=(0, 64, 96, 128, 192)),
)
SPACE = assign_strategies(
    Space(
        "triton",
        GENES,
        [ExpressionConstraint("BLOCK_M * BLOCK_N <= 8192 * num_warps", [g.name for g in GENES])],
    )
)


def latency(genome: Genome) -> float:
    """A plain law: a cap below what a tile needs spills, one above it costs occupancy."""
    values = {name: int(str(value)) for name, value in genome.items()}
    m, n, warps = values["BLOCK_M"], values["BLOCK_N"], values["num_warps"]
    needed = 32 + m * n / (32 * warps)
    cap = values["maxnreg"] or 255
    spilled = max(needed / cap, 1.0) ** 2
    crowded = 1 + 0.4 * max(cap - needed, 0.0) / 255
    deep = 1 + 0.08 * abs(values["num_stages"] - 3)
    return float(100.0 * spilled * crowded * deep * (1 + 0.1 * abs(math.log2(m / n))))


def judged(
    genomes: Sequence[Genome], law: Callable[[Genome], float | None] = latency
) -> list[Judged]:
    found = []
    for number, genome in enumerate(genomes):
        candidate = Candidate(
            number=number, round=0, workload="w", island="memory", mutation="step", genome=genome
        )
        took = law(genome)
        evaluation = (
            Evaluation(candidate=candidate, status=Status.COMPILE_ERROR,
                       failure="too many registers", message="m")
            if took is None
            else Evaluation(candidate=candidate, status=Status.OK,
                            measurement=Measurement(samples=(took,), objective=took))
        )  # fmt: skip
        found.append(Judged(evaluation=evaluation, verdict=Verdict.ACCEPT))
    return found


def log_of(entries: Sequence[Judged]) -> LogView:
    log = LogView()
    for entry in entries:
        log.add(entry)
    return log


def samples(count: int, seed: int) -> list[Genome]:
    rng = np.random.default_rng(seed)
    return list({g.fingerprint: g for g in (SPACE.sample(rng) for _ in range(count))}.values())


def settled(log: LogView, seed: int = 1, count: int = 60) -> list[tuple[Genome, Genome]]:
    """Return what islands proposed, and what became of it."""
    proposals = [Proposal(genome=g, mutation="step") for g in samples(count, 77)]
    bandit = ResourceBandit(SPACE, 8.0)
    found = bandit.settle(proposals, log, log, np.random.default_rng(seed))
    assert len(found) == len(proposals)
    return [(a.genome, b.genome) for a, b in zip(proposals, found, strict=True)]


def test_equal_logs_give_equal_draws_and_only_its_genes_change() -> None:
    log = log_of(judged(samples(60, 3)))
    first, again = settled(log), settled(log_of(judged(samples(60, 3))))
    assert first == again
    assert first != settled(log, seed=2)
    for before, after in first:
        assert SPACE.contains(after)
        for gene in ("BLOCK_M", "BLOCK_N", "num_warps"):
            assert before[gene] == after[gene]


def test_it_learns_which_cap_and_depth_suit_a_tile() -> None:
    pairs = settled(log_of(judged(samples(120, 5))))
    before = np.mean([math.log(latency(a)) for a, _ in pairs])
    after = np.mean([math.log(latency(b)) for _, b in pairs])
    assert after < before - 0.1


def test_on_times_dealt_out_at_random_it_finds_nothing() -> None:
    genomes = samples(120, 5)
    times = np.random.default_rng(9).permutation([latency(g) for g in genomes])
    table = {g.fingerprint: float(t) for g, t in zip(genomes, times, strict=True)}
    pairs = settled(log_of(judged(genomes, lambda g: table[g.fingerprint])))
    before = np.mean([math.log(latency(a)) for a, _ in pairs])
    after = np.mean([math.log(latency(b)) for _, b in pairs])
    assert after > before - 0.1


def test_choices_that_ask_for_too_much_are_avoided() -> None:
    def law(genome: Genome) -> float | None:
        return None if genome["num_stages"] == 5 else 100.0

    pairs = settled(log_of(judged(samples(120, 5), law)))
    deepest = [sum(pair[i]["num_stages"] == 5 for pair in pairs) for i in (0, 1)]
    assert deepest[1] < deepest[0] / 2


def test_it_is_quiet_where_it_knows_little_or_has_nothing_to_set() -> None:
    few = settled(log_of(judged(samples(5, 3))))
    assert all(before == after for before, after in few)
    assert ResourceBandit(Space("triton", GENES[:3]), 0.0).idle
    single = Space("triton", (*GENES[:3], Choice(name="maxnreg", options=(0,))))
    assert ResourceBandit(single, 0.0).idle


def test_earlier_campaigns_teach_where_this_one_has_not_begun() -> None:
    evaluations = [one.evaluation for one in judged(samples(120, 5))]
    bandit = ResourceBandit(SPACE, 8.0, lessons_from(evaluations, 8.0, weight=0.5))
    proposals = [Proposal(genome=g, mutation="step") for g in samples(60, 77)]
    empty = LogView()
    found = bandit.settle(proposals, empty, empty, np.random.default_rng(1))
    before = np.mean([math.log(latency(p.genome)) for p in proposals])
    assert np.mean([math.log(latency(p.genome)) for p in found]) < before - 0.1


def test_nothing_is_proposed_twice() -> None:
    log = log_of(judged(samples(200, 5)))
    bandit = ResourceBandit(SPACE, 8.0)
    same = samples(1, 8)[0]
    proposals = [Proposal(genome=same, mutation="step") for _ in range(1)]
    for g in samples(40, 8)[1:]:
        proposals.append(Proposal(genome=g, mutation="step"))
    found = bandit.settle(proposals, log, log, np.random.default_rng(0))
    changed = [b.genome for a, b in zip(proposals, found, strict=True) if a.genome != b.genome]
    keys = [g.fingerprint for g in changed]
    assert len(set(keys)) == len(keys)
    assert not any(log.evaluated(key) for key in keys)


def test_context_and_intensity_are_read_from_names_and_axes() -> None:
    genome = SPACE.genome(
        {"BLOCK_M": 128, "BLOCK_N": 256, "num_warps": 8, "num_stages": 3, "maxnreg": 0}
    )
    seen: dict[str, Allele] = {"registers": 255, "spill_bytes": 1020, "shared_bytes": 114 << 10}
    tile, threads, intensity, registers, shared = context_of(genome, 6.0, seen)
    assert (tile, threads) == (7 / 8, 0.8)
    assert (intensity, registers, shared) == (0.5, 2.0, 0.5)
    job = Operator(
        name="o", axes={"n": Axis(name="n", kind="var")},
        inputs=(TensorSpec(name="x", shape=("n",), dtype="float32"),),
        outputs=(TensorSpec(name="y", shape=("n",), dtype="float32"),),
        flops="64 * n", bytes_moved="8 * n",
    )  # fmt: skip
    assert intensity_of(job, Workload(operator=job.fingerprint, axes={"n": 5})) == 3.0


@pytest.mark.parametrize("models", [False, True])
def test_a_campaign_with_it_is_the_same_twice(tmp_path: Path, models: bool) -> None:
    logs = []
    for turn in range(2):
        store = str(tmp_path / f"{turn}.db")
        settings = CampaignSettings(
            target=str(_recorded(tmp_path)), budget=60, seed=4, store=store, resources=True,
            models=models,
        )  # fmt: skip
        run(settings)
        with open_reader(store) as reader:
            logs.append([e for _, e in reader.log(1) if isinstance(e, Candidate | Judged)])
    assert logs[0] == logs[1]
    genomes = [e.genome for e in logs[0] if isinstance(e, Candidate)]
    assert len({g.fingerprint for g in genomes}) == len(genomes)


def test_lessons_come_from_earlier_campaigns_of_the_same_device(tmp_path: Path) -> None:
    store = str(tmp_path / "both.db")
    target = str(_recorded(tmp_path))
    # A search that narrows down soon shows a bandit little of the rest: it needs evidence enough.
    run(CampaignSettings(target=target, budget=150, seed=1, store=store))
    device = ReplayDevice(target)
    settings = CampaignSettings(target=target, budget=40, seed=2, store=store)
    with device.open(device.problem, seed=0, artefacts=tmp_path) as session:
        state = build_state(session, settings)
        with open_reader(store) as reader:
            (taught,) = bandits_of(state, session, reader, 2)[next(iter(state.arenas))]
            (untaught,) = bandits_of(state, session, reader, 1)[next(iter(state.arenas))]
    proposals = [Proposal(genome=g, mutation="step") for g in samples(60, 77)]
    spaces = next(iter(device.recording.spaces))
    mine = [Proposal(genome=Genome(spaces, p.genome.alleles()), mutation="step") for p in proposals]
    empty = LogView()
    learnt = taught.settle(mine, empty, empty, np.random.default_rng(1))
    assert untaught.settle(mine, empty, empty, np.random.default_rng(1)) == mine
    before = np.mean([math.log(latency(p.genome)) for p in mine])
    assert np.mean([math.log(latency(p.genome)) for p in learnt]) < before - 0.03


def _recorded(tmp_path: Path) -> Path:
    """Write the whole space as a recording that replays the law."""
    import itertools
    import json

    path = tmp_path / "space.json"
    names = [gene.name for gene in GENES]
    rows = {}
    for alleles in itertools.product(*(gene.values() for gene in GENES)):
        point = dict(zip(names, alleles, strict=True))
        if SPACE.violation(point) is None:
            took = latency(SPACE.genome(point)) / 1000
            rows[",".join(map(str, alleles))] = {**point, "time": took, "times": [took]}
    document = {
        "device_name": "Law", "kernel_name": "law", "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": {g.name: list(g.values()) for g in GENES},
        "objective": "time", "cache": rows,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path
