"""What the comparison with other tuners reads of them, and what it sums up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kernelarc.bench.experiments import _beside_parts as parts
from kernelarc.bench.experiments.triton_beside import PLAN, SWEPT, answer, sums
from kernelarc.genomes import Allele, Genome, Space
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes

LOG = """run_id,timestamp_s,config_id,generation,status,perf_ms,compile_time_s,config
r,0.10,a,0,started,,,"Config(block_k=32, block_m=64, persistent=False)"
r,1.50,a,0,ok,0.300000,,"Config(block_k=32, block_m=64, persistent=False)"
r,2.00,b,0,error,,,"Config(block_k=64, block_m=64, persistent=False)"
r,3.25,c,1,ok,0.187000,,"Config(block_k=64, block_m=128, flatten=True, persistent=True)"
r,4.00,a,1,ok,0.190000,,"Config(block_k=32, block_m=64, persistent=False)"
"""


def _space(
    size: tuple[int, int, int] = (4096, 4096, 4096), pins: Mapping[str, Allele] = parts.PINS
) -> Space:
    problem = parts._problem(size)
    route = next(r for r in kernel_routes(problem.operator) if r.name == "triton")
    limits = DeviceLimits.of_arch(parts.ARCH)
    return route.space(problem.workloads[0], limits).pin(pins)


def test_the_common_space_is_large_enough_and_its_pins_are_its_own() -> None:
    space = _space()
    assert space.size().legal >= 2000
    free = parts._free(space)
    assert not set(free) & set(parts.PINS)
    assert {"block_m", "block_n", "block_k", "num_warps", "num_stages", "flatten"} <= set(free)


def test_another_tuner_s_choice_is_a_whole_genome_of_ours() -> None:
    space, rng = _space(), np.random.default_rng(2)
    free = parts._free(space)
    for _ in range(20):
        genome = space.sample(rng)
        chosen = {name: genome.get(name, False) for name in free}  # they know no condition
        assert Genome("triton", parts.whole_alleles(space, chosen)) == genome


def test_helion_s_own_log_says_when_it_had_its_answer(tmp_path: Path) -> None:
    log = tmp_path / "helion.csv"
    log.write_text(LOG)
    found = parts.helion_figures(tmp_path / "found.json", log, _space())
    assert found["best_so_far"] == [(1.5, 300.0), (3.25, 187.0)]
    assert found["answer_after_s"] == 3.25
    assert found["configurations"] == 4
    assert found["statuses"] == {"ok": 3, "error": 1}
    genome = answer(found)
    assert genome is not None
    assert (genome["block_m"], genome["flatten"], genome["load"]) == (128, True, "descriptor")


def test_sums_compare_by_one_clock_only() -> None:
    found = {
        "ours 4096": {
            "best_so_far": [[4.0, 400.0, 1], [9.0, 186.0, 80], [15.0, 171.0, 200]],
            "seconds_until_within_1_percent_of_own_best": 15.0,
        },
        "helion 4096": {"answer_after_s": 30.0, "seconds": 80.0},
        "judge 4096": {"judged_us": {"helion 4096": 187.0}, "over_baseline": {"helion 4096": 0.94}},
        "autotune 4096": {"extrapolated_s": 3000.0},
    }
    assert sums(found)["4096"]["ours_as_good_after_s"] == 9.0
    assert sums(found)["4096"]["helion_to_its_answer_s"] == 30.0
    assert sums(found)["autotune_over_ours"] == 200.0
    assert "skinny" not in sums(found)


def test_every_part_has_a_program_and_answers_come_before_their_judge() -> None:
    names = [part.name for part in PLAN]
    assert len(set(names)) == len(names)
    assert {part.kind for part in PLAN} == set(parts.PARTS)
    for place, part in enumerate(PLAN):
        assert set(part.given.get("of", ())) & set(names) <= set(names[:place])
        assert part.kind != "judge" or len(set(part.given["of"]) & set(names)) >= 2


def test_sums_say_when_a_search_was_as_good_as_its_baseline() -> None:
    found = {
        "ours 4096": {
            "best_so_far": [[4.0, 400.0, 1], [6.0, 102.0, 8], [9.0, 99.0, 80]],
            "best": {"objective": 99.0, "speedup": {"estimate": 1.0}},
        },
        "ours 8192": {"best_so_far": [], "best": None},
        "helion 4096": {"best_us": 99.0},
    }
    reached = sums(found)["seconds_to_share_of_baseline"]
    assert list(reached) == ["ours 4096"]
    assert (reached["ours 4096"]["0.97"], reached["ours 4096"]["1.0"]) == (6.0, 9.0)
    assert reached["ours 4096"]["0.95"] == 6.0


def test_what_is_swept_is_small_enough_and_has_both_resource_genes() -> None:
    for size in SWEPT:
        space = _space(size, parts._SWEPT)
        assert 1000 <= space.size().legal <= 2000
        assert {"maxnreg", "num_stages"} <= set(parts._free(space))
