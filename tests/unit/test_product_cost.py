"""Where products by copy engine begin: against what six chained ones were measured at."""

from __future__ import annotations

import pytest

from kernelarc.genomes import packaged_problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_gemm_space import TileShape, product_space, starts
from kernelarc.genomes.routes._cuda_moe import CudaExpert, cuda_expert_route
from kernelarc.genomes.routes._cuda_parts import part_genome
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._product_cost import expected_us, ranked_starts

HOPPER, BLACKWELL = (DeviceLimits.of_arch(arch) for arch in ("sm_90a", "sm_100a"))

# One expert's backward pass on an H200, microseconds: every product with the same of its starts.
MEASURED = {
    4096: {0: 262.6, 2: 216.1, 3: 204.0, 4: 204.5, 5: 205.3, 6: 258.4, 7: 384.7},
    512: {0: 104.1, 2: 82.8, 3: 61.7, 4: 71.8, 5: 65.0},
}


def expert(tokens: int) -> tuple[CudaExpert, object]:
    problem = packaged_problem("moe_swiglu_backward", [{"tokens": tokens}])
    route = cuda_expert_route(problem.operator)
    assert isinstance(route, CudaExpert)
    return route, problem.workloads[0]


@pytest.mark.parametrize("tokens", MEASURED)
def test_arithmetic_expects_what_was_measured(tokens: int) -> None:
    route, workload = expert(tokens)
    for place, measured_us in MEASURED[tokens].items():
        expected = 0.0
        for _, job in route.jobs(workload):  # type: ignore[arg-type]
            space = product_space("cuda", job, HOPPER)
            (seed,) = started(space, starts(job, HOPPER)[place : place + 1])
            shape = TileShape.of(seed.genome, gated=bool(job.bend))
            schedule = str(seed.genome["schedule"])
            expected += expected_us(job, shape, schedule, HOPPER.multiprocessors)
        assert expected == pytest.approx(measured_us, rel=0.1), place


@pytest.mark.parametrize("tokens", [1, 64, 512, 4096, 8192])
def test_an_expert_begins_with_what_is_expected_fastest(tokens: int) -> None:
    route, workload = expert(tokens)
    jobs = route.jobs(workload)  # type: ignore[arg-type]
    every = route.seeds(workload, HOPPER)  # type: ignore[arg-type]
    seeds = [s for s in every if not any(s.genome[f"{n}_by"] == "library" for n, _ in jobs)]
    assert len(seeds) == len(every) - 2 and (every[0] is seeds[0]) == (tokens < 2048)
    totals = []
    for seed in seeds:
        us = 0.0
        for name, job in jobs:
            own = part_genome(name, seed.genome)
            shape = TileShape.of(own, gated=bool(job.bend))
            us += expected_us(job, shape, str(own["schedule"]), HOPPER.multiprocessors)
        totals.append(us)
    assert totals[0] == pytest.approx(min(totals), rel=0.02)
    assert totals[0] < 0.9 * min(totals[-2:]), "one kind of tile for all products is slower"
    first = seeds[0].genome
    assert all(first[f"{name}_pdl"] for name, _ in jobs), "kernels of one job overlap"
    tiles = {part_genome(name, first)["tile_n"] for name, _ in jobs}
    assert len(tiles) > 1, "each product has its own tile"


def test_few_starts_that_are_unlike_one_another() -> None:
    route, workload = expert(4096)
    for _, job in route.jobs(workload):  # type: ignore[arg-type]
        found = ranked_starts((job,), HOPPER)
        assert 2 <= len(found) <= 6
        kinds = {(s["schedule"], s["split_k"], s["consumers"], s["wg_rows"], s["tile_n"])
                 for s in found}  # fmt: skip
        assert len(kinds) == len(found)
        assert len({s["schedule"] for s in found}) >= 2
        space = product_space("cuda", job, HOPPER)
        assert len(started(space, found)) == len(found), "all of them are legal"
    assert ranked_starts((job,), BLACKWELL) == (), "there is no product of warpgroups there"
