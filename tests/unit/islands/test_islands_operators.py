"""Mutation operators: they do what their names say, and nothing to the genome they start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import Allele, Genome, PowerOfTwo, Space, Strategy
from kernelarc.islands import fenced
from kernelarc.islands._terrain import Scene, survey
from kernelarc.islands.operators import FAMILIES, GENERIC, toolbox_for

# These bring in a second gene on purpose: an elite's, or the other side of a trade.
SHARED = {"fusion.exchange", "tensor_core.area_move", "memory.trade"}
OWNERS = set(Strategy) - {Strategy.LIBRARY, Strategy.BLACKWELL}  # in the plain space
EVERY = [(strategy, name) for strategy, family in FAMILIES.items() for name in (*family, *GENERIC)]


def made(
    space: Space, strategy: Strategy, name: str, seed: int, bias: float = 1.0
) -> tuple[Genome, dict[str, Allele] | None]:
    rng = np.random.default_rng(seed)
    genome = space.sample(rng)
    mates = tuple(space.sample(rng) for _ in range(4))
    scene = Scene(survey(space, strategy), (genome, *mates), bias)
    with fenced(rng):
        return genome, getattr(toolbox_for(FAMILIES[strategy]), name)(genome, scene, rng)


def changed(space: Space, strategy: Strategy, name: str, bias: float = 1.0) -> set[str]:
    """Return every gene that some of many draws changed."""
    found: set[str] = set()
    for seed in range(120):
        genome, alleles = made(space, strategy, name, seed, bias)
        found |= {gene for gene, allele in (alleles or {}).items() if genome[gene] != allele}
    return found


def test_names_are_unique_and_say_their_family() -> None:
    names = [name for family in (*FAMILIES.values(), GENERIC) for name in family]
    assert len(names) == len(set(names))
    for strategy, family in FAMILIES.items():
        assert all(name.startswith(f"{strategy.value}.") for name in family)


@given(seed=st.integers(0, 2**32), place=st.integers(0, len(EVERY) - 1))
@settings(max_examples=120, deadline=None)
def test_drafts_stay_inside_the_domains_and_repair_to_legal(
    world: Any, seed: int, place: int
) -> None:
    strategy, name = EVERY[place]
    space = world.spaces["plain"]
    genome, alleles = made(space, strategy, name, seed)
    if alleles is None:
        return
    assert all(space.gene(gene).contains(allele) for gene, allele in alleles.items())
    repaired = space.repair(alleles, np.random.default_rng(seed))
    assert repaired is not None
    assert space.contains(repaired)
    assert space.contains(genome)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [(s, n) for s, family in FAMILIES.items() for n in family if s in OWNERS and n not in SHARED],
)
def test_own_operators_with_full_bias_change_own_genes_only(
    world: Any, strategy: Strategy, name: str
) -> None:
    space = world.spaces["plain"]
    found = changed(space, strategy, name)
    assert found
    assert found <= set(space.owned(strategy))


def test_without_bias_coupled_genes_move_too(world: Any) -> None:
    space = world.spaces["plain"]
    found = changed(space, Strategy.MEMORY, "memory.step", bias=0.3)
    assert "tile_m" in found
    assert "order" not in found


def test_area_moves_keep_the_area() -> None:
    space = Space(
        "r",
        [
            PowerOfTwo(name="m", low=8, high=256, strategy=Strategy.TENSOR_CORE),
            PowerOfTwo(name="n", low=8, high=256, strategy=Strategy.TENSOR_CORE),
        ],
    )
    moved = 0
    for seed in range(80):
        genome, alleles = made(space, Strategy.TENSOR_CORE, "tensor_core.area_move", seed)
        if alleles is not None:
            moved += 1
            assert alleles != genome.alleles()
            area = genome["m"], genome["n"]
            assert int(alleles["m"]) * int(alleles["n"]) == int(area[0]) * int(area[1])  # type: ignore[arg-type]
    assert moved > 20


def test_memory_steps_move_one_gene_by_one_step(world: Any) -> None:
    space = world.spaces["plain"]
    for seed in range(60):
        genome, alleles = made(space, Strategy.MEMORY, "memory.step", seed)
        assert alleles is not None
        (name,) = [n for n in alleles if alleles[n] != genome[n]]
        assert alleles[name] in space.gene(name).neighbours(genome[name])


def test_reductions_multiply(world: Any) -> None:
    space, moved = world.spaces["plain"], 0
    for seed in range(60):
        genome, alleles = made(space, Strategy.REDUCTION, "reduction.multiply", seed)
        if alleles is not None:
            moved += 1
            old, new = genome["split"], alleles["split"]
            assert isinstance(old, int) and isinstance(new, int)
            assert new / old in {0.25, 0.5, 2.0, 4.0}
    assert moved > 30


def test_exchanges_take_alleles_from_an_elite(world: Any) -> None:
    space, moved = world.spaces["plain"], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        genome, mate = space.sample(rng), space.sample(rng)
        scene = Scene(survey(space, Strategy.FUSION), (genome, mate))
        alleles = FAMILIES[Strategy.FUSION]["fusion.exchange"](genome, scene, rng)
        if alleles is not None:
            moved += 1
            differing = [name for name in alleles if alleles[name] != genome[name]]
            assert 1 <= len(differing) <= 2
            assert all(alleles[name] == mate[name] for name in differing)
    assert moved > 20


def test_permutations_are_shuffled_to_permutations(world: Any) -> None:
    space = world.spaces["orders"]
    for seed in range(40):
        genome, alleles = made(space, Strategy.SCHEDULING, "scheduling.permute", seed)
        assert alleles is not None
        assert all(space.gene(name).contains(allele) for name, allele in alleles.items())
        assert sum(alleles[name] != genome[name] for name in alleles) <= 1


def test_without_permutations_alike_genes_swap() -> None:
    space = Space(
        "r",
        [PowerOfTwo(name=n, low=1, high=16, strategy=Strategy.SCHEDULING) for n in "ab"],
    )
    swapped = 0
    for seed in range(20):
        genome, alleles = made(space, Strategy.SCHEDULING, "scheduling.permute", seed)
        if alleles is not None:
            swapped += 1
            assert (alleles["a"], alleles["b"]) == (genome["b"], genome["a"])
    assert swapped > 10


def test_algorithms_change_where_genes_depend_on_one(world: Any) -> None:
    space = world.spaces["dependent"]
    for seed in range(20):
        genome, alleles = made(space, Strategy.LIBRARY, "library.algorithm", seed)
        assert alleles is not None
        assert alleles["algo"] != genome["algo"]


def test_crossover_mixes_two_parents(world: Any) -> None:
    space = world.spaces["plain"]
    rng = np.random.default_rng(2)
    genome, mate = space.sample(rng), space.sample(rng)
    scene = Scene(survey(space, Strategy.MEMORY), (genome, mate))
    with fenced(rng):
        child = GENERIC["crossover.uniform"](genome, scene, rng)
    assert child is not None
    assert all(child[name] in {genome[name], mate[name]} for name in child)
    assert child != genome.alleles()
    assert child != mate.alleles()
