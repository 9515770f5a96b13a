"""``Space.sample`` is even over the legal genomes: counts against the even expectation.

All seeds are fixed. Pearson's statistic of n cells has mean n - 1 and variance 2 (n - 1); an even
sampler stays within five standard deviations, and the control shows that an uneven one does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from kernelarc.genomes import (
    Allele,
    AllowedAlleles,
    Boolean,
    Choice,
    Constraint,
    ExpressionConstraint,
    Gene,
    Genome,
    IntegerRange,
    Permutation,
    PowerOfTwo,
    PredicateConstraint,
    Space,
    When,
    _component,
)
from kernelarc.genomes._draw import draw_below

DRAWS_A_CELL = 60
TOLERATED_DEVIATIONS = 5.0


def deviations(counts: Counter[Genome], cells: int) -> float:
    """Return how many standard deviations Pearson's statistic lies from what even draws give."""
    draws = sum(counts.values())
    expected = draws / cells
    squares = sum((count - expected) ** 2 for count in counts.values())
    statistic = (squares + (cells - len(counts)) * expected**2) / expected
    return (statistic - (cells - 1)) / math.sqrt(2 * max(cells - 1, 1))


def conditional() -> tuple[list[Gene], list[Constraint]]:
    """One parent whose alleles switch on nothing, one gene, or two."""
    return [
        Choice(name="algo", options=("plain", "split", "stream")),
        IntegerRange(name="parts", low=2, high=5, when=When("algo", ("split", "stream"))),
        Boolean(name="atomic", when=When("algo", ("stream",))),
        PowerOfTwo(name="tile", low=8, high=64),
    ], []


def nested() -> tuple[list[Gene], list[Constraint]]:
    """A condition under a condition, and constraints across both."""
    names = ["on", "deep", "n", "m"]
    return [
        Boolean(name="on"),
        Boolean(name="deep", when=When("on", (True,))),
        IntegerRange(name="n", low=1, high=6, when=When("deep", (True,))),
        IntegerRange(name="m", low=1, high=6),
    ], [ExpressionConstraint("n + m <= 7", names), ExpressionConstraint("m != 3 or on", names)]


def constrained() -> tuple[list[Gene], list[Constraint]]:
    """Constraints that leave very different numbers of partners to each allele."""
    names = ["a", "b", "c"]
    genes: list[Gene] = [IntegerRange(name=name, low=1, high=12) for name in names]
    texts = ["a * b <= 24", "c % a == 0 or b == 1"]
    return genes, [ExpressionConstraint(text, names) for text in texts]


def separate() -> tuple[list[Gene], list[Constraint]]:
    """Two independent groups and two loose genes."""
    names = ["a", "b", "c", "d"]
    genes: list[Gene] = [IntegerRange(name=name, low=0, high=4) for name in names]
    genes += [Permutation(name="order", items=("x", "y", "z")), Choice(name="one", options=(1,))]
    return genes, [
        ExpressionConstraint("a < b", names),
        PredicateConstraint(lambda c, d: (c + d) % 4 == 1),
    ]


def dependent() -> tuple[list[Gene], list[Constraint]]:
    """A domain that depends on another gene: many tiles here, few there."""
    allowed: dict[Allele, Sequence[Allele]] = {0: range(1, 20), 1: (3,), 2: (1, 19)}
    return [
        IntegerRange(name="algo", low=0, high=2),
        IntegerRange(name="tile", low=1, high=19),
        Boolean(name="swap", when=When("tile", (3,))),
    ], [AllowedAlleles("tile", "algo", allowed)]


Made = Callable[[], tuple[list[Gene], list[Constraint]]]
SPACES: list[Made] = [conditional, nested, constrained, separate, dependent]


@pytest.mark.parametrize("made", SPACES, ids=lambda made: made.__name__)
@pytest.mark.parametrize("limit", [_component.EDGE_LIMIT, 10, 1])
def test_draws_are_even(made: Made, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of 10 or 1 edge most constraints stay outside the graph: draws are rejected."""
    monkeypatch.setattr(_component, "EDGE_LIMIT", limit)
    monkeypatch.setattr(_component, "HOPELESS", 0.0)
    genes, constraints = made()
    space = Space("r", genes, constraints)
    cells = len(set(space.enumerate()))
    rng = np.random.default_rng(20240)
    counts = Counter(space.sample(rng) for _ in range(DRAWS_A_CELL * cells))
    assert len(counts) == cells
    assert abs(deviations(counts, cells)) < TOLERATED_DEVIATIONS
    assert space.even


@pytest.mark.parametrize("made", [conditional, nested, constrained, dependent])
def test_the_measure_tells_an_uneven_sampler(made: Made) -> None:
    """The control: drawing gene after gene, again until legal, is not even over genomes."""
    genes, constraints = made()
    space = Space("r", genes, constraints)
    cells = space.size().legal
    rng = np.random.default_rng(20240)

    def drawn_gene_by_gene() -> Genome:
        alleles: dict[str, Allele] = {}
        for gene in space.genes:
            values = list(gene.values())
            while values:
                value = values.pop(int(rng.integers(len(values))))
                part = {**alleles, gene.name: value}
                if all(c.holds(part) for c in constraints if set(c.genes) <= set(part)):
                    break
            if gene.when is None or gene.when.holds(alleles):
                alleles[gene.name] = value
        return space.repair(alleles, rng) or space.sample(rng)

    counts = Counter(drawn_gene_by_gene() for _ in range(DRAWS_A_CELL * cells))
    assert deviations(counts, cells) > 3 * TOLERATED_DEVIATIONS


def test_a_renamed_and_reordered_space_is_as_even() -> None:
    genes, constraints = constrained()
    names = ["x9", "k", "zz"]
    renamed: list[Gene] = [IntegerRange(name=name, low=1, high=12) for name in names[::-1]]
    texts = ["x9 * k <= 24", "zz % x9 == 0 or k == 1"]
    space = Space("r", renamed, [ExpressionConstraint(text, names) for text in texts])
    cells = space.size().legal
    assert cells == Space("r", genes, constraints).size().legal
    rng = np.random.default_rng(5)
    counts = Counter(space.sample(rng) for _ in range(DRAWS_A_CELL * cells))
    assert abs(deviations(counts, cells)) < TOLERATED_DEVIATIONS


def test_single_alleles_of_a_huge_space_are_even() -> None:
    """Too many genomes to count each: the margin of every gene is known by symmetry."""
    genes: list[Gene] = [IntegerRange(name=f"n{i}", low=0, high=9) for i in range(20)]
    names = [gene.name for gene in genes]
    texts = [f"(n{i} + n{i + 1}) % 2 == 0" for i in range(19)]
    space = Space("r", genes, [ExpressionConstraint(text, names) for text in texts])
    assert space.size().legal == 2 * 5**20
    rng = np.random.default_rng(11)
    drawn = [space.sample(rng) for _ in range(1000)]
    for name in names:
        counts = Counter(genome[name] for genome in drawn)
        statistic = sum((counts[value] - 100) ** 2 / 100 for value in range(10))
        assert (statistic - 9) / math.sqrt(18) < TOLERATED_DEVIATIONS


@pytest.mark.parametrize("total", [1, 2, 3, 1 << 63, (1 << 63) + 1, 3 * 10**40])
def test_whole_numbers_are_drawn_below_any_total(total: int) -> None:
    rng = np.random.default_rng(2)
    drawn = [draw_below(total, rng) for _ in range(400)]
    assert all(0 <= number < total for number in drawn)
    if total > 3:
        thirds = Counter(3 * number // total for number in drawn)
        assert all(90 < thirds[third] < 180 for third in range(3))


def lopsided() -> Space:
    """A fair gene with a branch of some hundred genomes, most refused, and one of three."""
    by, kernel, library = "by", ("kernel",), ("library",)
    genes: list[Gene] = [
        Choice(name=by, options=("kernel", "library"), fair=True),
        IntegerRange(name="n", low=1, high=30, when=When(by, kernel)),
        IntegerRange(name="m", low=1, high=30, when=When(by, kernel)),
        Choice(name="choice", options=(0, 1, 2), when=When(by, library)),
    ]
    return Space("r", genes, [ExpressionConstraint("n * m % 24 == 0", ("n", "m"))])


@pytest.mark.parametrize("limit", [_component.EDGE_LIMIT, 10])
def test_alleles_of_a_fair_gene_are_drawn_equally(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the graph knows a branch's constraint or its draws are refused one after another."""
    monkeypatch.setattr(_component, "EDGE_LIMIT", limit)
    space, rng = lopsided(), np.random.default_rng(20241)
    cells = Counter(genome["by"] for genome in space.enumerate())
    assert cells["kernel"] > 40 * cells["library"] and not space.even
    counts = Counter(space.sample(rng) for _ in range(2 * DRAWS_A_CELL * cells["kernel"]))
    kernel = sum(count for genome, count in counts.items() if genome["by"] == "kernel")
    assert abs(2 * kernel - sum(counts.values())) < 5.0 * math.sqrt(sum(counts.values()))
    for allele, number in cells.items():
        own = Counter({g: c for g, c in counts.items() if g["by"] == allele})
        assert len(own) == number
        assert abs(deviations(own, number)) < TOLERATED_DEVIATIONS


def test_a_fair_gene_under_a_condition_is_fair_where_it_is_active() -> None:
    whole = lopsided()
    genes: list[Gene] = [
        Boolean(name="on"),
        *(replace(g, when=When("on", (True,))) if g.name == "by" else g for g in whole.genes),
        IntegerRange(name="depth", low=1, high=9, when=When("on", (False,))),
    ]
    space, rng = Space("r", genes, whole.constraints), np.random.default_rng(20242)
    drawn = [space.sample(rng) for _ in range(4000)]
    active = Counter(genome["by"] for genome in drawn if genome["on"])
    assert abs(active["kernel"] - active["library"]) < 5.0 * math.sqrt(sum(active.values()))
    assert all("by" not in genome for genome in drawn if not genome["on"])
