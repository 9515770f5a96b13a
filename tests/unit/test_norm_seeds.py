"""Where a search of RMSNorm begins, with a residual added or without."""

from __future__ import annotations

import pytest

from kernelarc.genomes import packaged_problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_add_rmsnorm import cuda_add_rmsnorm_route
from kernelarc.genomes.routes._triton_add_rmsnorm import triton_add_rmsnorm_route

HOPPER = DeviceLimits.of_arch("sm_90a")


def seeds(
    maker: object, rows: int, hidden: int, name: str = "add_rmsnorm_bf16"
) -> list[dict[str, object]]:
    problem = packaged_problem(name, [{"rows": rows, "hidden": hidden}])
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


@pytest.mark.parametrize("name", ["rmsnorm", "add_rmsnorm_bf16"])
@pytest.mark.parametrize("hidden", [128, 512])
def test_of_short_rows_several_are_a_block_s(name: str, hidden: int) -> None:
    found = seeds(cuda_add_rmsnorm_route, 100_000, hidden, name)
    assert int(found[0]["teams"]) >= 2  # type: ignore[call-overload]
    assert {int(g["teams"]) * int(g["warps"]) for g in found[:3]} == {4}  # type: ignore[call-overload]
    for genome in found:
        assert 32 * int(genome["vec_bytes"]) <= 2 * hidden  # type: ignore[call-overload]
    assert {genome["blocks_per_sm"] for genome in found} >= {0, 8}, "blocks that stay, and not"
    first = seeds(triton_add_rmsnorm_route, 100_000, hidden, name)[0]
    assert first["held"] is True and first["rows"] == 1024 // hidden


@pytest.mark.parametrize("maker", [cuda_add_rmsnorm_route, triton_add_rmsnorm_route])
def test_few_short_rows_have_a_block_each_at_first(maker: object) -> None:
    first = seeds(maker, 64, 128, "rmsnorm")[0]
    assert first.get("teams", 1) == 1 and first.get("rows", 1) == 1
