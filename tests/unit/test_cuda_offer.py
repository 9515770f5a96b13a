"""The library route against a binding that answers like no real one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.bench.cuda._binding import numbering
from kernelarc.bench.cuda._library import REFUSED_WORKSPACE, Matmul, Side
from kernelarc.bench.cuda._offer import FIRST, PER_ALGORITHM, library_domain
from kernelarc.bench.cuda._protocol import DomainReply
from kernelarc.genomes import CublasLtSpace, IllegalGenomeError, InputError, MatmulJob


def _fake_module() -> Any:
    """Load the fake beside this file: tests are no package."""
    name = "lt_fake_for_tests"
    if name not in sys.modules:
        path = Path(__file__).with_name("lt_fake.py")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


FAKE = _fake_module()
JOB = MatmulJob(m=96, n=64, k=512, dtype="bfloat16", out_dtype="bfloat16", workspace_bytes=4 << 20)


def matmul(job: MatmulJob = JOB, **arguments: Any) -> Matmul:
    return Matmul(FAKE.FakeLt(**arguments), 1, job, Side())


def offer(job: MatmulJob = JOB, **arguments: Any) -> DomainReply:
    asked = matmul(job, **arguments)
    return library_domain(asked, numbering(asked.lt), np.random.default_rng(3))


def test_domains_come_from_what_the_library_says() -> None:
    reply = offer()
    assert [a.algo for a in reply.domain.algos] == [700, 701]
    assert reply.dormant == (702, 703)
    first, second = reply.domain.algos
    assert first.tiles == (5, 6, FAKE.UNKNOWN_TILE)  # tile 3 is never taken
    assert first.stages == (4, 9)
    assert first.clusters == (1, 7)
    assert first.customs == (0, 2, 4)
    assert first.reductions == (0, 2, 4)
    assert first.splitks == (1, 2, 3, 4)  # more need more scratch memory than the job allows
    assert second.splitks == (1,) and second.swizzles == (0, 1)
    assert second.clusters == (0,)  # every number is taken: not read
    assert not second.out_of_place
    assert reply.domain.version == 990100


def test_space_holds_what_is_offered_and_nothing_else() -> None:
    lt = CublasLtSpace(offer().domain)
    rng = np.random.default_rng(0)
    for _ in range(200):
        genome = lt.space.sample(rng)
        row = lt.row(genome)
        assert lt.fault(row) is None
        assert lt.genome(row) == genome
        assert row[0] in {700, 701}
        assert (row[2] == 1) == (row[3] == 0)
    assert lt.space.size().exact


def test_unknown_tile_is_a_genome_like_any_other() -> None:
    lt = CublasLtSpace(offer().domain)
    genome = lt.genome((700, FAKE.UNKNOWN_TILE, 1, 0, 0, 0, 9, 0, 1, 4 << 20, 0))
    assert genome is not None
    assert (genome["tile_m"], genome["tile_n"]) == (0, FAKE.UNKNOWN_TILE)
    assert lt.row(genome)[1] == FAKE.UNKNOWN_TILE


def test_steps_follow_the_tile_shape() -> None:
    lt = CublasLtSpace(offer().domain)
    genome = lt.genome((700, 5, 1, 0, 0, 0, 9, 0, 1, 4 << 20, 0))
    assert genome is not None
    tiles = {(n["tile_m"], n["tile_n"]) for n in lt.space.neighbours(genome)}
    assert (48, 80) in tiles


def test_seeds_and_baseline_are_the_heuristics() -> None:
    reply = offer()
    assert reply.seeds == (
        (FIRST, (*FAKE.HEURISTIC, 4 << 20, 0)),
        (PER_ALGORITHM, (*FAKE.ALONE, 4 << 20, 0)),
    )
    assert reply.baseline == (*FAKE.HEURISTIC, 4 << 20, 0)


def test_check_answers_for_every_row_in_order() -> None:
    asked = matmul()
    rows = [
        (*FAKE.HEURISTIC, 4 << 20, 0),
        (700, 5, 1, 0, 0, 1, 9, 0, 7, 4 << 20, 0),
        (700, 5, 6, 2, 0, 0, 9, 0, 7, 4 << 20, 0),
        (700, 5, 3, 2, 0, 0, 9, 0, 7, 4 << 20, 0),
        (703, 5, 1, 0, 0, 0, 9, 0, 7, 4 << 20, 0),
    ]
    status, needed = asked.check(np.array(rows, dtype=np.int64))
    assert status.tolist() == [0, 15, REFUSED_WORKSPACE, 0, -1]
    assert needed.tolist() == [0, 0, 6 << 20, 3 << 20, 0]
    assert asked.lt.checks == 4


def test_no_rows_are_no_answers() -> None:
    status, needed = matmul().check(np.zeros((0, 11), dtype=np.int64))
    assert status.shape == needed.shape == (0,)


def test_algorithm_carries_need_and_waves() -> None:
    found = matmul().algorithm((700, 5, 3, 2, 0, 0, 9, 0, 7, 4 << 20, 0))
    assert found is not None
    assert (found.workspace_bytes, found.waves) == (3 << 20, 0.5)
    assert matmul().algorithm((702, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)) is None


def test_a_library_that_offers_nothing_is_bad_input() -> None:
    with pytest.raises(InputError, match="offers nothing for bfloat16 TN M=96 N=64 K=512"):
        offer(rule=lambda values: False)


def test_residual_placement_is_a_gene_only_where_the_job_allows_it() -> None:
    lt = CublasLtSpace(offer().domain)
    assert "aliased" not in lt.space.names
    job = MatmulJob(
        m=96, n=64, k=512, dtype="bfloat16", out_dtype="bfloat16", residual=True, in_place=True
    )
    lt = CublasLtSpace(offer(job).domain)
    genome = lt.genome((*FAKE.HEURISTIC, 64 << 20, 1))
    assert genome is not None and genome["aliased"] is True
    alone = lt.space.pin({"algo": "701"})
    rng = np.random.default_rng(0)
    assert all(alone.sample(rng)["aliased"] is True for _ in range(20))  # no place apart


def test_a_foreign_genome_is_refused_by_name() -> None:
    lt = CublasLtSpace(offer().domain)
    alleles = lt.alleles((*FAKE.HEURISTIC, 4 << 20, 0))
    with pytest.raises(IllegalGenomeError, match="version 990100"):
        lt.row({**alleles, "tile_m": 4096})
    assert lt.fault((700, 3, 1, 0, 0, 0, 9, 0, 7, 0, 0)) == "algorithm 700 does not offer tile 3"
    assert "not offered" in str(lt.fault((5, 3, 1, 0, 0, 0, 9, 0, 7, 0, 0)))
    assert "split-K" in str(lt.fault((700, 5, 2, 0, 0, 0, 9, 0, 7, 0, 0)))
