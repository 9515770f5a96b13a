"""Genes: every kind samples, steps, mutates and encodes inside its own domain."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    Allele,
    Boolean,
    Choice,
    Gene,
    InputError,
    IntegerRange,
    Permutation,
    PowerOfTwo,
    Strategy,
    When,
    same_allele,
)

KINDS: list[Gene] = [
    PowerOfTwo(name="g", low=1, high=64),
    PowerOfTwo(name="g", low=8, high=8),
    IntegerRange(name="g", low=-3, high=12, step=4),
    IntegerRange(name="g", low=5, high=5),
    Choice(name="g", options=("row", "column", "tile")),
    Choice(name="g", options=(30, 10, 20)),
    Choice(name="g", options=(0, 1)),
    Choice(name="g", options=(1, 1.0, True, "1")),
    Choice(name="g", options=(("a", 1), ("b", 2))),
    Choice(name="g", options=(0.5,)),
    Boolean(name="g"),
    Permutation(name="g", items=("i", "j", "k")),
    Permutation(name="g", items=("only",)),
]

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 2**32 - 1)
SETTINGS = settings(max_examples=80, deadline=None, database=None)


@SETTINGS
@given(kinds, seeds)
def test_operators_stay_inside_the_domain(gene: Gene, seed: int) -> None:
    rng = np.random.default_rng(seed)
    value = gene.sample(rng)
    assert gene.contains(value)
    other = gene.mutate(value, rng)
    assert gene.contains(other)
    assert same_allele(other, value) == (gene.cardinality == 1)
    for step in gene.neighbours(value):
        assert gene.contains(step)
        assert not same_allele(step, value)
        assert any(same_allele(back, value) for back in gene.neighbours(step))
    code = gene.encode(value)
    assert len(code) == gene.width
    assert all(0.0 <= number <= 1.0 for number in code)


@pytest.mark.parametrize("gene", KINDS, ids=repr)
def test_index_and_at_list_the_domain(gene: Gene) -> None:
    values = gene.values()
    assert len(values) == gene.cardinality
    assert [gene.index(value) for value in values] == list(range(gene.cardinality))
    assert all(same_allele(gene.at(i), value) for i, value in enumerate(values))
    codes = {gene.encode(value) for value in values}
    assert len(codes) == len(values)
    assert pickle.loads(pickle.dumps(gene)) == gene
    assert replace(gene, strategy=Strategy.MEMORY).values() == values


@pytest.mark.parametrize("gene", KINDS, ids=repr)
def test_sampling_is_even_and_mutation_reaches_every_other_allele(gene: Gene) -> None:
    rng = np.random.default_rng(1)
    n, draws = gene.cardinality, 200 * gene.cardinality
    counts = np.bincount([gene.index(gene.sample(rng)) for _ in range(draws)], minlength=n)
    statistic = float(np.sum((counts - 200.0) ** 2 / 200.0))
    assert statistic - (n - 1) < 5 * math.sqrt(2 * max(n - 1, 1))
    start = gene.at(0)
    reached = {gene.index(gene.mutate(start, rng)) for _ in range(40 * n)}
    assert reached == (set(range(1, n)) or {0})


@pytest.mark.parametrize(
    ("gene", "value"),
    [
        (PowerOfTwo(name="g", low=1, high=8), 3),
        (PowerOfTwo(name="g", low=1, high=8), 16),
        (PowerOfTwo(name="g", low=1, high=8), True),
        (PowerOfTwo(name="g", low=1, high=8), 1.0),
        (IntegerRange(name="g", low=0, high=8, step=2), 3),
        (IntegerRange(name="g", low=0, high=1), False),
        (IntegerRange(name="g", low=0, high=8), 2.0),
        (Boolean(name="g"), 1),
        (Choice(name="g", options=(1, 2, 3)), "1"),
        (Choice(name="g", options=(1, 2, 3)), [1]),
        (Choice(name="g", options=((1, 2),)), (1, 2.0)),
        (Choice(name="g", options=((1, 2),)), ([1], 2)),
        (Permutation(name="g", items=("i", "j")), ("i", "i")),
        (Permutation(name="g", items=("i", "j")), ("i",)),
        (Permutation(name="g", items=("i", "j")), "ij"),
        (Permutation(name="g", items=("1", "2")), (1, 2)),
    ],
)
def test_what_is_no_allele_is_refused(gene: Gene, value: object) -> None:
    assert not gene.contains(value)
    assert gene.index(value) == -1
    with pytest.raises(InputError, match="gene 'g' has no allele"):
        gene.place(value)
    with pytest.raises(InputError, match="gene 'g' has no allele"):
        gene.neighbours(value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gene 'g' has no allele"):
        gene.encode(value)  # type: ignore[arg-type]
    assert gene.contains(gene.mutate(value, np.random.default_rng(0)))  # type: ignore[arg-type]


def test_steps_along_ordered_and_unordered_domains() -> None:
    assert PowerOfTwo(name="g", low=1, high=8).neighbours(2) == (1, 4)
    assert PowerOfTwo(name="g", low=1, high=8).neighbours(8) == (4,)
    assert IntegerRange(name="g", low=1, high=9, step=4).neighbours(5) == (1, 9)
    assert Choice(name="g", options=(30, 10, 20)).neighbours(20) == (10, 30)
    assert Choice(name="g", options=("a", "b", "c")).neighbours("b") == ("a", "c")
    assert Boolean(name="g").neighbours(False) == (True,)
    order = Permutation(name="g", items=("i", "j", "k"))
    assert order.neighbours(("i", "j", "k")) == (("j", "i", "k"), ("i", "k", "j"))


def test_numbers_are_ordered_words_are_not() -> None:
    assert Choice(name="g", options=(3, 1, 2)).values() == (1, 2, 3)
    assert Choice(name="g", options=(3, 1, 2)).ordered
    assert not Choice(name="g", options=("3", "1", "2")).ordered
    assert not Choice(name="g", options=(1, 0)).ordered
    assert Choice(name="g", options=("b", "a")).values() == ("b", "a")


def test_a_long_permutation_is_never_listed() -> None:
    items = tuple("abcdefghijklmnopqrst")
    gene = Permutation(name="g", items=items)
    rng = np.random.default_rng(0)
    value = gene.sample(rng)
    assert gene.at(gene.index(value)) == value
    assert gene.at(0) == items
    assert gene.at(gene.cardinality - 1) == items[::-1]
    assert gene.contains(gene.mutate(value, rng))


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("1", 1)],
)
def test_parse_reads_alleles(text: str, value: Allele) -> None:
    assert PowerOfTwo(name="g", low=1, high=8).parse(text) == value


def test_parse_of_every_kind() -> None:
    assert Boolean(name="g").parse("true") is True
    assert Boolean(name="g").parse("False") is False
    assert Choice(name="g", options=("row", "column")).parse("row") == "row"
    assert IntegerRange(name="g", low=0, high=9).parse("7") == 7
    assert Permutation(name="g", items=("i", "j")).parse("j > i") == ("j", "i")


@pytest.mark.parametrize(
    ("gene", "text", "message"),
    [
        (PowerOfTwo(name="g", low=1, high=8), "3", "has no allele '3'; it can be 1, 2, 4, 8"),
        (Choice(name="g", options=tuple(range(20))), "x", "10, 11, ..."),
        (IntegerRange(name="g", low=0, high=8, step=2), "3", "from 0 to 8 in steps of 2"),
        (IntegerRange(name="g", low=0, high=8), "two", "an integer from 0 to 8"),
        (Permutation(name="g", items=("i", "j")), "i,i", "it orders i, j"),
    ],
)
def test_parse_says_what_is_there(gene: Gene, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gene.parse(text)


def test_malformed_genes_are_refused() -> None:
    cases: list[tuple[Callable[[], Gene], str]] = [
        (lambda: PowerOfTwo(name="g", low=3, high=8), "3 is not a power of two"),
        (lambda: PowerOfTwo(name="g", low=0, high=8), "0 is not a power of two"),
        (lambda: PowerOfTwo(name="g", low=8, high=4), "low 8 exceeds high 4"),
        (lambda: PowerOfTwo(name="g", low=1.0, high=4), "1.0 is not a whole number"),  # type: ignore[arg-type]
        (lambda: IntegerRange(name="g", low=8, high=4), "low 8 exceeds high 4"),
        (lambda: IntegerRange(name="g", low=0, high=4, step=0), "step 0 must be at least 1"),
        (lambda: IntegerRange(name="g", low=0, high=4.5), "4.5 is not a whole number"),  # type: ignore[arg-type]
        (lambda: Choice(name="g", options=()), "has no alleles"),
        (lambda: Choice(name="g", options=(1, 1)), "lists the allele 1 twice"),
        (lambda: Choice(name="g", options=(1, 2, 3, 2)), "lists the allele 2 twice"),
        (lambda: Choice(name="g", options=(1.0, math.nan)), "must be finite"),
        (lambda: Choice(name="g", options=(1, 2, math.inf)), "must be finite"),
        (lambda: Choice(name="g", options=(None,)), "NoneType is no allele"),  # type: ignore[arg-type]
        (lambda: Permutation(name="g", items=()), "must all differ"),
        (lambda: Permutation(name="g", items=("i", "i")), "must all differ"),
        (lambda: Permutation(name="g", items=(1, 2)), "must be strings"),  # type: ignore[arg-type]
    ]
    for make, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            make()
        assert "'g'" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_condition_compares_types_too() -> None:
    when = When("parent", (1, "a"))
    assert when.holds({"parent": 1})
    assert when.holds({"parent": "a"})
    assert not when.holds({"parent": True})
    assert not when.holds({"parent": 1.0})
    assert not when.holds({})
