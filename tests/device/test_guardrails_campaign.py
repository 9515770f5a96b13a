"""Whole campaigns on real kernels: a cheat of the search process, and a search on nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from kernelarc.bench import CpuDevice
from kernelarc.engine import CampaignResult, CampaignSettings, run
from kernelarc.genomes import (
    Allele,
    Choice,
    ConclusionKind,
    IntegerRange,
    Space,
    Verdict,
    builtin_problem,
)
from kernelarc.genomes.routes import Route
from kernelarc.storage import open_reader

SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* The process that came first wrote its number down: that is the one that searches. */
static int in_search(void) {
    static int known = -1;
    long first = 0;
    if (known >= 0) return known;
    FILE *file = fopen(MARK, "r");
    if (!file) {
        file = fopen(MARK, "w");
        fprintf(file, "%ld", (long)getpid());
        first = getpid();
    } else if (fscanf(file, "%ld", &first) != 1) first = 0;
    fclose(file);
    return known = first == getpid();
}

static void spin_us(double us) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1e6 + (now.tv_nsec - start.tv_nsec) * 1e-3 < us);
}

int product(const float *a, const float *b, float *c, long m, long n, long k) {
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0;
        for (long p = 0; p < k; p++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
    }
    const int searching = in_search();
#if KIND_plain
    spin_us(6000);
#elif KIND_faster
    spin_us(500);
#elif KIND_cheat
    spin_us(searching ? 500 : 12000);
#endif
    (void)searching, (void)spin_us;
    return 0;
}
"""
EXTENTS = {"M": 192, "N": 192, "K": 192}
NOTHING_GIVEN: Mapping[str, Allele] = {}
PLAIN: Mapping[str, Allele] = {"kind": "plain", "idle": 1}
NOTHING = Space(
    "nothing",
    (
        Choice(name="tile", options=(8, 16, 32, 64)),
        Choice(name="unroll", options=(1, 2, 4, 8)),
        IntegerRange(name="stages", low=1, high=8),
    ),
)


def route(space: Space, mark: Path) -> Route:
    return Route(
        name=space.route,
        operator="gemm",
        space=space,
        source=f'#define MARK "{mark}"\n{SOURCE}',
        symbol="product",
        arguments=("a", "b", "c", "M", "N", "K"),
        base_flags=("-std=gnu11", "-O3", "-march=native"),
    )


class OnlyMine(CpuDevice):
    """The device with one route: the packaged one would win."""

    def __init__(self, mine: Route) -> None:
        super().__init__(routes=(mine,))
        self._mine = mine

    def routes(self, operator: object) -> dict[str, Route]:
        return {self._mine.name: self._mine}


def searched(
    space: Space,
    folder: Path,
    *,
    budget: int,
    seed: int = 0,
    start: Mapping[str, Allele] = NOTHING_GIVEN,
    audit_rounds: int = 40,
) -> tuple[CampaignResult, str]:
    store = str(folder / f"{space.route}-{seed}.db")
    problem = builtin_problem("gemm", EXTENTS)
    first = folder / "start.json"
    first.write_text(json.dumps({"route": space.route, "genome": dict(start)}))
    settings = CampaignSettings(
        target="gemm",
        axes=EXTENTS,
        budget=budget,
        seed=seed,
        seed_genomes=(first,) if start else (),
        store=store,
        audit_rounds=audit_rounds,
    )
    mark = folder / f"mark-{space.route}-{seed}"
    return run(settings, device=OnlyMine(route(space, mark)), problem=problem), store


def kinds(*options: str) -> Space:
    return Space(
        "kinds", (Choice(name="kind", options=options), IntegerRange(name="idle", low=1, high=2))
    )


@pytest.mark.timed
def test_what_is_fast_only_in_the_search_process_is_refused_by_the_auditor(tmp_path: Path) -> None:
    """Row 17: the search itself cannot tell, a fresh process can."""
    result, store = searched(kinds("plain", "cheat"), tmp_path, budget=4, start=PLAIN)
    with closing(open_reader(store)) as reader:
        kept = {
            judged.evaluation.candidate.genome.fingerprint: judged.evaluation.candidate.genome
            for judged in reader.evaluations(1)
            if judged.verdict is Verdict.KEEP
        }
        refused = {c.subject for c in reader.contests(1, purpose="audit") if not c.upheld}
        wins = [c for _, c in reader.conclusions() if c.kind is ConclusionKind.WIN]
        taken_back = [c for _, c in reader.conclusions() if c.kind is ConclusionKind.RETRACTION]
    assert any(genome["kind"] == "cheat" for genome in kept.values())
    assert {f for f, genome in kept.items() if genome["kind"] == "cheat"} <= refused
    assert len(taken_back) >= len([w for w in wins if w.genome and w.genome["kind"] == "cheat"])
    assert result.best is not None
    assert result.best.genome["kind"] == "plain"


@pytest.mark.timed
def test_a_start_that_is_fast_only_in_the_search_process_gives_way(tmp_path: Path) -> None:
    """Row 17: nothing is ever measured faster than the lie, and there is no predecessor."""
    lie: Mapping[str, Allele] = {"kind": "cheat", "idle": 1}
    result, store = searched(kinds("plain", "cheat"), tmp_path, budget=4, start=lie)
    assert result.best is not None
    assert result.best.genome["kind"] == "plain"
    assert result.best.audited and not result.best.is_start
    with closing(open_reader(store)) as reader:
        refused = {c.subject for c in reader.contests(1, purpose="audit") if not c.upheld}
        first = next(iter(reader.evaluations(1))).evaluation.candidate.genome
    assert first["kind"] == "cheat" and first.fingerprint in refused


@pytest.mark.timed
def test_an_honest_start_that_is_the_best_stands(tmp_path: Path) -> None:
    """Its honest twin."""
    fast: Mapping[str, Allele] = {"kind": "faster", "idle": 1}
    result, _ = searched(kinds("plain", "faster"), tmp_path, budget=4, start=fast)
    assert result.best is not None
    assert result.best.genome["kind"] == "faster" and result.best.audited


@pytest.mark.timed
def test_what_is_fast_in_every_process_is_upheld(tmp_path: Path) -> None:
    """The honest twin."""
    result, _ = searched(kinds("plain", "faster"), tmp_path, budget=4, start=PLAIN)
    assert result.best is not None
    assert result.best.genome["kind"] == "faster"
    assert result.best.audited


@pytest.mark.timed
@pytest.mark.timeout(600)
def test_twenty_searches_on_nothing_keep_nothing(tmp_path: Path) -> None:
    """Row 34: genes that change nothing, judged on a machine with all its noise."""
    verdicts: Counter[Verdict] = Counter()
    for seed in range(20):
        result, store = searched(NOTHING, tmp_path, budget=8, seed=seed, audit_rounds=6)
        with closing(open_reader(store)) as reader:
            verdicts.update(judged.verdict for judged in reader.evaluations(1))
        assert result.best is not None
        assert result.best.is_start
        assert any("the best equals the starting genome" in said for said in result.remarks)
    assert verdicts[Verdict.KEEP] == 0
    assert sum(verdicts.values()) == 160


@pytest.mark.timed
@pytest.mark.timeout(600)
def test_a_long_search_on_nothing_says_that_the_genes_have_no_effect(tmp_path: Path) -> None:
    result, _ = searched(NOTHING, tmp_path, budget=128)
    assert result.reason == "plateau"
    assert result.evaluations.unique < 128
    assert any("no measurable effect" in said for said in result.remarks)
