"""Strategies by rule: every gene gets one, several are awake, names are no more than a hint."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    Boolean,
    Choice,
    Gene,
    InputError,
    IntegerRange,
    Permutation,
    PowerOfTwo,
    Space,
    Strategy,
    When,
    assign_strategies,
)

# Domains as real kernels have them: tile sizes, vector widths, switches, strides, methods.
SHAPES: list[tuple[int | str | float, ...]] = [
    (16, 32, 64, 128),
    (8, 16, 32),
    (1, 2, 4, 8),
    (0, 1),
    (1, 2, 3, 4),
    (1, 2, 3, 4, 5, 6, 7, 8),
    tuple(range(32, 257, 8)),
    (0, 1, 2, 3),
    ("row", "column"),
    ("fp16", "fp32"),
    (0.25, 0.5, 1.0),
    (15,),
]


def space_of(shapes: list[tuple[int | str | float, ...]], names: list[str]) -> Space:
    genes = [Choice(name=n, options=s) for n, s in zip(names, shapes, strict=True)]
    return Space("r", genes)


def shares(space: Space) -> Counter[Strategy]:
    """Count the genes with a choice that each strategy owns."""
    return Counter(g.strategy for g in space.genes if g.cardinality > 1 and g.strategy is not None)


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=16), st.booleans())
def test_every_gene_gets_an_owner_and_nobody_owns_all(
    shapes: list[tuple[int | str | float, ...]], meaningful: bool
) -> None:
    word = "block_size_" if meaningful else "g"
    space = assign_strategies(space_of(shapes, [f"{word}{i}" for i in range(len(shapes))]))
    assert all(gene.strategy is not None for gene in space.genes)
    free = sum(gene.cardinality > 1 for gene in space.genes)
    owners = shares(space)
    if free >= 2:
        assert len(owners) >= 2
        assert max(owners.values()) <= (free + 1) // 2
    if free >= 6:
        assert len(owners) >= 3
    assert Strategy.BLACKWELL not in owners
    if free:
        fixed = {gene.strategy for gene in space.genes if gene.cardinality == 1}
        assert fixed <= set(owners)  # nobody is woken by a gene that cannot change


def test_renaming_hardly_changes_the_spread() -> None:
    """A recorded GEMM's genes, under their own names and under none."""
    own = ["MWG", "NWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB"]
    shapes: list[tuple[int | str | float, ...]] = [(16, 32, 64, 128)] * 2
    shapes += [(8, 16, 32)] * 4
    shapes += [(1, 2, 4, 8)] * 2
    shapes += [(0, 1)] * 2
    named = assign_strategies(space_of(shapes, own))
    nameless = assign_strategies(space_of(shapes, [f"x{i}" for i in range(10)]))
    assert len(shares(named)) >= 4
    assert len(shares(nameless)) >= 4
    for strategy in Strategy:
        assert abs(shares(named)[strategy] - shares(nameless)[strategy]) <= 2


def test_kinds_and_domains_decide() -> None:
    genes: list[Gene] = [
        PowerOfTwo(name="a", low=16, high=256),
        PowerOfTwo(name="b", low=1, high=8),
        Boolean(name="c"),
        Choice(name="d", options=("-O2", "-Ofast")),
        Permutation(name="e", items=("i", "j", "k")),
        IntegerRange(name="f", low=1, high=10**6),
        Boolean(name="deep", when=When("c", (True,))),
    ]
    space = assign_strategies(Space("r", genes))
    owner = {gene.name: gene.strategy for gene in space.genes}
    assert owner["a"] is Strategy.TENSOR_CORE
    assert owner["b"] is Strategy.MEMORY
    assert owner["c"] is Strategy.FUSION
    assert owner["d"] is Strategy.PRECISION
    assert owner["e"] is Strategy.SCHEDULING
    assert space.genes[6].when == When("c", (True,))


def test_a_name_tips_the_balance() -> None:
    genes: list[Gene] = [
        Choice(name="split_k", options=(1, 2, 3)),
        Choice(name="prefetch", options=(1, 2, 3)),
        Choice(name="accumulate_in", options=("wide", "narrow")),
    ]
    space = assign_strategies(Space("r", genes))
    assert space.gene("prefetch").strategy is Strategy.MEMORY
    assert space.gene("split_k").strategy is Strategy.REDUCTION


def test_genes_keep_what_they_carry_and_the_user_wins() -> None:
    genes: list[Gene] = [
        Boolean(name="a", strategy=Strategy.BLACKWELL),
        Boolean(name="b"),
        Boolean(name="c", strategy=Strategy.MEMORY),
    ]
    space = assign_strategies(Space("r", genes), {"c": "reduction", "b": Strategy.LIBRARY})
    assert [gene.strategy for gene in space.genes] == [
        Strategy.BLACKWELL,
        Strategy.LIBRARY,
        Strategy.REDUCTION,
    ]
    assert space.owned(Strategy.REDUCTION) == ("c",)
    assert genes[1].strategy is None  # the caller's genes are left alone


def test_constraints_survive() -> None:
    from kernelarc.genomes import ExpressionConstraint

    genes: list[Gene] = [PowerOfTwo(name=name, low=1, high=8) for name in "ab"]
    space = Space("r", genes, [ExpressionConstraint("a <= b", "ab")])
    assert assign_strategies(space).size() == space.size()


def test_unknown_overrides_are_refused() -> None:
    space = space_of([(0, 1)], ["tile"])
    with pytest.raises(InputError, match="no gene 'tle' \\(did you mean 'tile'"):
        assign_strategies(space, {"tle": "memory"})
    with pytest.raises(InputError, match="no strategy 'memry' \\(did you mean 'memory'"):
        assign_strategies(space, {"tile": "memry"})
