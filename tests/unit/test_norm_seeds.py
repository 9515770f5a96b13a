"""Where a search of the fused residual addition and RMSNorm begins."""

from __future__ import annotations

import pytest

from kernelarc.genomes import packaged_problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_add_rmsnorm import cuda_add_rmsnorm_route
from kernelarc.genomes.routes._triton_add_rmsnorm import triton_add_rmsnorm_route

HOPPER = DeviceLimits.of_arch("sm_90a")


def seeds(maker: object, rows: int, hidden: int) -> list[dict[str, object]]:
    problem = packaged_problem("add_rmsnorm_bf16", [{"rows": rows, "hidden": hidden}])
    route = maker(problem.operator)  # type: ignore[operator]
    found = route.seeds(problem.workloads[0], HOPPER)
    return [dict(seed.genome.items()) for seed in found]


@pytest.mark.parametrize("hidden", [2048, 4096, 5120, 7168, 8192])
def test_no_thread_idles_over_a_row_of_a_first_genome(hidden: int) -> None:
    found = seeds(cuda_add_rmsnorm_route, 16254, hidden)
    assert len(found) >= 8
    for genome in found[:5]:
        assert genome["vec_bytes"] == 16
        assert hidden // 8 % (32 * int(genome["warps"])) == 0  # type: ignore[call-overload]
    held = {hidden // (256 * int(genome["warps"])) for genome in found[:5]}  # type: ignore[call-overload]
    assert len(held) >= 2, "few and many vectors a thread"
    assert {genome["store"] for genome in found[:4]} == {"plain", "stream"}


@pytest.mark.parametrize("hidden", [2048, 4096, 7168, 8192])
def test_the_form_that_compilers_make_is_among_the_first(hidden: int) -> None:
    """One row a program, read twice in blocks of 2048, what is read last leaves the cache first."""
    first = seeds(triton_add_rmsnorm_route, 16254, hidden)[0]
    assert (first["held"], first["block"], first["rows"], first["num_warps"]) == (
        False,
        2048,
        1,
        16,
    )
    assert (first["evict"], first["store"], first["programs_per_sm"]) == ("evict_first", "", 0)
    assert any(genome["held"] for genome in seeds(triton_add_rmsnorm_route, 16254, hidden))


def test_few_long_rows_are_spread_over_clusters() -> None:
    few = seeds(cuda_add_rmsnorm_route, 16, 8192)
    assert few[0]["cluster"] == 8
    assert {genome["cluster"] for genome in few} == {8, 1}
    assert {genome["cluster"] for genome in seeds(cuda_add_rmsnorm_route, 131, 8192)} == {1}
