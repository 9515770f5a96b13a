"""The packaged routes of the device cpu: genes, owners, constraints, macros, sources."""

from __future__ import annotations

import numpy as np
import pytest

from kernelarc.genomes import (
    Allele,
    Choice,
    Genome,
    InputError,
    Space,
    Strategy,
    Workload,
    builtin_operators,
    builtin_problem,
)
from kernelarc.genomes.routes import HostShape, Route, cpu_routes, macros_of

HOSTS = (
    HostShape(threads=1),
    HostShape(threads=2, vector_floats=8, streaming_stores=True),
    HostShape(threads=6, vector_floats=16, vector_registers=32, l2_bytes=2 << 20),
)
LEAST_GENES = {"gemm": 10, "add_rmsnorm": 6}


def workload_of(operator: str, residual: bool = False) -> Workload:
    options = {"residual": True} if residual else {}
    return builtin_problem(operator, options=options).workloads[0]


def route_of(operator: str) -> Route:
    return cpu_routes(operator)["cpu"]


@pytest.mark.parametrize("host", HOSTS, ids=lambda h: f"{h.threads} threads")
@pytest.mark.parametrize("operator", ["gemm", "add_rmsnorm"])
def test_every_host_has_a_space_of_legal_genomes(operator: str, host: HostShape) -> None:
    space = route_of(operator).space_for(workload_of(operator), host)
    assert len(space.genes) >= LEAST_GENES[operator]
    assert space.size().legal > 10_000
    rng = np.random.default_rng(3)
    for _ in range(20):
        genome = space.sample(rng)
        assert space.violation(genome) is None
        threads = genome["threads"]
        assert isinstance(threads, int) and 1 <= threads <= host.threads


@pytest.mark.parametrize("operator", ["gemm", "add_rmsnorm"])
def test_every_gene_has_an_owner_and_a_description(operator: str) -> None:
    space = route_of(operator).space_for(workload_of(operator), HOSTS[1])
    assert all(gene.strategy is not None and gene.description for gene in space.genes)
    awake = {gene.strategy for gene in space.genes}
    assert awake == set(Strategy) - {Strategy.LIBRARY, Strategy.BLACKWELL}


def test_a_residual_gives_the_epilogue_two_more_places() -> None:
    with_it = route_of("gemm").space_for(workload_of("gemm", residual=True), HOSTS[1])
    without = route_of("gemm").space_for(workload_of("gemm"), HOSTS[1])
    assert with_it.gene("epilogue").values() == ("first", "before", "last", "after")
    assert without.gene("epilogue").values() == ("first", "before")


def test_stores_past_the_caches_are_offered_only_where_they_exist() -> None:
    route, workload = route_of("add_rmsnorm"), workload_of("add_rmsnorm")
    assert "stream" in route.space_for(workload, HOSTS[1]).names
    assert "stream" not in route.space_for(workload, HOSTS[0]).names


def test_thread_counts_are_powers_of_two_and_all_cores() -> None:
    assert [HostShape(threads=n).thread_counts() for n in (1, 2, 3, 6, 8)] == [
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 4, 6),
        (1, 2, 4, 8),
    ]


def test_alleles_become_macros() -> None:
    assert macros_of("mc", 96) == {"MC": "96"}
    assert macros_of("pack_a", True) == {"PACK_A": "1"}
    assert macros_of("split", "m-n") == {"SPLIT_m_n": "1"}
    assert macros_of("order", ("m", "k")) == {"ORDER_1": "m", "ORDER_2": "k"}
    assert macros_of("eps", 0.5) == {"EPS": "0.5"}


def test_precision_genes_become_flags_and_no_macros() -> None:
    route = route_of("gemm")
    space = route.space_for(workload_of("gemm"), HOSTS[1])
    genome = space.sample(np.random.default_rng(1))
    options = route.options(Genome("cpu", {**genome, "optimise": "O3", "contract": "off"}))
    assert "-O3" in options and "-ffp-contract=off" in options and "-march=native" in options
    assert not any(option.startswith("-DOPTIMISE") for option in options)
    assert "-ffast-math" not in options
    assert f"-DMR={genome['mr']}" in options


def test_sources_are_self_contained() -> None:
    for operator in builtin_operators():
        source = route_of(operator).source
        assert '#include "' not in source
        assert f"int {operator}(" in source


def test_an_operator_without_routes_has_none() -> None:
    assert dict(cpu_routes("convolution")) == {}


def test_a_route_of_ones_own_is_checked_against_its_operator() -> None:
    def made(*arguments: str, symbol: str = "run") -> Route:
        space = Space("own", (Choice(name="n", options=(1,)),))
        return Route(
            name="own", operator="gemm", space=space, source="", symbol=symbol, arguments=arguments
        )

    gemm = builtin_operators()["gemm"]
    made("a", "b", "c", "M").check_against(gemm)
    with pytest.raises(InputError, match="'d' is neither tensor nor axis"):
        made("a", "d", "c").check_against(gemm)
    with pytest.raises(InputError, match="output 'c' is not an argument"):
        made("a", "b").check_against(gemm)
    with pytest.raises(InputError, match="no name of a C function"):
        made("a", "b", "c", symbol="no-name")


def test_flags_are_for_every_allele_of_a_gene_that_there_is() -> None:
    def made(**flags: dict[Allele, tuple[str, ...]]) -> Route:
        level = Choice(name="level", options=("O1", "O2"))
        return Route(
            name="own", operator="gemm", space=Space("own", (level,)), source="", symbol="run",
            arguments=("c",), flags=flags,
        )  # fmt: skip

    assert made(level={"O1": ("-O1",), "O2": ()}).flags
    with pytest.raises(InputError, match=r"gene 'levl', which .* \(did you mean 'level'\?\)"):
        made(levl={"O1": (), "O2": ()})
    with pytest.raises(InputError, match="gene 'level' has no flags for its allele 'O2'"):
        made(level={"O1": ("-O1",)})
