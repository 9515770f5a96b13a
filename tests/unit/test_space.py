"""Space against brute force: on spaces small enough to list, every answer is known."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    Allele,
    AllowedAlleles,
    Boolean,
    Choice,
    Constraint,
    ExpressionConstraint,
    Gene,
    Genome,
    IllegalGenomeError,
    InputError,
    IntegerRange,
    NothingValidError,
    Permutation,
    PowerOfTwo,
    PredicateConstraint,
    Space,
    Strategy,
    When,
    _component,
)

SETTINGS = settings(max_examples=60, deadline=None, database=None)


def brute_force(genes: Sequence[Gene], constraints: Sequence[Constraint]) -> set[Genome]:
    """List the legal genomes from the definitions alone."""
    found = set()
    for values in itertools.product(*(gene.values() for gene in genes)):
        active: dict[str, Allele] = {}
        for gene, value in zip(genes, values, strict=True):
            if gene.when is None or gene.when.holds(active):
                active[gene.name] = value
        if all(c.holds(active) for c in constraints if set(c.genes) <= set(active)):
            found.add(Genome("r", active))
    return found


def _a_condition(draw: st.DrawFn, earlier: Sequence[Gene]) -> When | None:
    if not earlier or draw(st.integers(0, 1)):
        return None
    parent = earlier[draw(st.integers(0, len(earlier) - 1))]
    last = parent.cardinality - 1
    chosen = draw(st.lists(st.integers(0, last), min_size=1, max_size=2))
    return When(parent.name, tuple(parent.at(index) for index in chosen))


def _a_gene(draw: st.DrawFn, number: int, earlier: Sequence[Gene]) -> Gene:
    name = f"g{number}"
    when = _a_condition(draw, earlier)
    kinds: list[Gene] = [
        Boolean(name=name, when=when),
        PowerOfTwo(name=name, low=1, high=8, when=when),
        IntegerRange(name=name, low=0, high=3, when=when),
        Choice(name=name, options=(1, 2, 5), when=when),
        Choice(name=name, options=(7,), when=when),
        Choice(name=name, options=(0.1, 0.7, 2.0), when=when),
        Choice(name=name, options=("a", "b", "c"), when=when),
        Permutation(name=name, items=("i", "j", "k"), when=when),
    ]
    return kinds[draw(st.integers(0, len(kinds) - 1))]


def _numeric(gene: Gene) -> bool:
    return all(isinstance(value, int | float) for value in gene.values())


TEMPLATES = (
    "{a} + {b} <= {n}",
    "{a} * {b} != {n}",
    "{a} >= {b} or {b} < {n}",
    "{a} % 2 == 0",
    "{a} + 2 * {b} - {c} <= {n}",
    "{a} - ({b} - {c}) - {n} < {d}",
    "{a} * {b} * {c} * 3 <= {n} + {d}",
    "({a} > 1 or {b} == 0) and {c} != {n}",
    "not ({a} + {b} + {d} > {c} + {n})",
    "{a} / 2 + {b} + {c} <= {n}",
    "{a} % ({b} + 1) + {c} <= {n}",
    "{a} in ({b}, {c} + 1, {n})",
    "{a} <= {b} + {d} <= {c} + {n}",
    "({a} or {b}) + {c} <= {n}",
    "{a} ** 2 + {b} ** 2 < {c} * {n}",
)


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[Gene], list[Constraint]]:
    genes: list[Gene] = []
    for number in range(draw(st.integers(1, 5))):
        genes.append(_a_gene(draw, number, genes))
    names = [gene.name for gene in genes]
    numeric = [gene.name for gene in genes if _numeric(gene)]
    constraints: list[Constraint] = []
    for _ in range(draw(st.integers(0, 3)) if numeric else 0):
        letters = {letter: draw(st.sampled_from(numeric)) for letter in "abcd"}
        text = draw(st.sampled_from(TEMPLATES)).format(n=draw(st.integers(0, 8)), **letters)
        constraints.append(ExpressionConstraint(text, names))
    return genes, constraints


@pytest.fixture(params=["whole graph", "rejection", "search"])
def graph_budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run on the exact graph, with constraints left out of it, and with hopeless acceptance."""
    if request.param != "whole graph":
        monkeypatch.setattr(_component, "EDGE_LIMIT", 3)
    if request.param == "search":
        monkeypatch.setattr(_component, "HOPELESS", 2.0)
    return str(request.param)


@SETTINGS
@given(parts(), st.integers(0, 2**32 - 1))
def test_counts_lists_and_draws_what_brute_force_lists(
    made: tuple[list[Gene], list[Constraint]], seed: int
) -> None:
    genes, constraints = made
    legal, space = brute_force(genes, constraints), Space("r", genes, constraints)
    size = space.size()
    assert (size.legal, size.exact) == (len(legal), True)
    listed = list(space.enumerate())
    assert len(listed) == len(legal)
    assert set(listed) == legal
    rng = np.random.default_rng(seed)
    if not legal:
        with pytest.raises(NothingValidError):
            space.sample(rng)
        return
    for _ in range(5):
        drawn = space.sample(rng)
        assert drawn in legal
        assert space.contains(drawn)
        assert space.violation(drawn) is None
        assert space.genome(drawn) == drawn
        assert drawn == Genome("r", drawn.alleles())  # assembled text equals the constructor's
        assert drawn.canonical == Genome("r", drawn.alleles()).canonical
        assert list(drawn) == sorted(drawn)
        assert space.encode(drawn).shape == (space.width,)


@settings(max_examples=25, deadline=None, database=None)
@given(parts(), st.integers(0, 2**32 - 1))
def test_constraints_left_out_of_the_graph_are_still_obeyed(
    made: tuple[list[Gene], list[Constraint]], seed: int
) -> None:
    genes, constraints = made
    legal = brute_force(genes, constraints)
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_component, "EDGE_LIMIT", 3)
        for hopeless in (0.0, 2.0):
            patch.setattr(_component, "HOPELESS", hopeless)
            space = Space("r", genes, constraints)
            assert set(space.enumerate()) == legal
            assert space.size().legal >= len(legal)
            if legal:
                assert space.sample(rng) in legal
            else:
                with pytest.raises(NothingValidError):
                    space.sample(rng)


def changed(before: Mapping[str, Allele], after: Mapping[str, Allele]) -> int:
    """Count the genes that are active in both and differ."""
    return sum(before[name] != after[name] for name in set(before) & set(after))


@SETTINGS
@given(parts(), st.integers(0, 2**32 - 1))
def test_neighbours_are_legal_and_change_one_gene(
    made: tuple[list[Gene], list[Constraint]], seed: int
) -> None:
    genes, constraints = made
    legal, space = brute_force(genes, constraints), Space("r", genes, constraints)
    if not legal:
        return
    start = space.sample(np.random.default_rng(seed))
    found = space.neighbours(start)
    assert set(found) <= legal
    assert len(set(found)) == len(found)
    assert all(changed(start, other) == 1 for other in found)
    assert found == space.neighbours(start)


@SETTINGS
@given(parts(), st.integers(0, 2**32 - 1))
def test_repair_finds_the_nearest(made: tuple[list[Gene], list[Constraint]], seed: int) -> None:
    genes, constraints = made
    legal, space = brute_force(genes, constraints), Space("r", genes, constraints)
    rng = np.random.default_rng(seed)
    wanted = {gene.name: gene.sample(rng) for gene in genes}
    found = space.repair(wanted, rng)
    if not legal:
        assert found is None
        return
    assert found in legal
    assert found is not None
    best = min(sum(wanted[n] != v for n, v in other.items()) for other in legal)
    assert sum(wanted[n] != v for n, v in found.items()) == best


@SETTINGS
@given(parts(), st.integers(0, 2**32 - 1))
def test_pinned_space_is_the_part_that_holds_the_allele(
    made: tuple[list[Gene], list[Constraint]], seed: int
) -> None:
    genes, constraints = made
    rng = np.random.default_rng(seed)
    gene = genes[int(rng.integers(len(genes)))]
    value = gene.sample(rng)
    pinned = Space("r", genes, constraints).pin({gene.name: value})
    wanted = {
        genome
        for genome in brute_force(genes, constraints)
        if gene.name not in genome or genome[gene.name] == value
    }
    assert set(pinned.enumerate()) == wanted
    assert pinned.gene(gene.name).cardinality == 1


def tile_space() -> Space:
    names = ("tile_m", "tile_n", "split")
    return Space(
        "cpu",
        [
            PowerOfTwo(name="tile_m", low=8, high=64, strategy=Strategy.TENSOR_CORE),
            PowerOfTwo(name="tile_n", low=8, high=64, strategy=Strategy.TENSOR_CORE),
            Boolean(name="split", strategy=Strategy.REDUCTION),
            IntegerRange(name="parts", low=2, high=5, when=When("split", (True,))),
        ],
        [ExpressionConstraint("tile_m * tile_n <= 1024", names)],
    )


def test_names_owners_and_genes() -> None:
    space = tile_space()
    assert space.names == ("tile_m", "tile_n", "split", "parts")
    assert space.owned(Strategy.TENSOR_CORE) == ("tile_m", "tile_n")
    assert space.owned(Strategy.FUSION) == ()
    assert space.gene("parts").cardinality == 4
    with pytest.raises(InputError, match="no gene 'tile_mm' \\(did you mean 'tile_m'\\?\\)"):
        space.gene("tile_mm")
    assert repr(space) == "Space('cpu', 4 genes, 1 constraints)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile_m": 64, "tile_n": 32}, "'tile_m \\* tile_n <= 1024' does not hold at tile_m=64"),
        ({"tile_m": 7}, "gene 'tile_m' has no allele 7"),
        ({"tile_m": 8.0}, "gene 'tile_m' has no allele 8.0"),
        ({"split": 1}, "gene 'split' has no allele 1"),
        ({"split": True}, "gene 'parts' is missing"),
        ({"tile_x": 8}, "no gene 'tile_x' \\(did you mean"),
        ({"tile_m": [8]}, "gene 'tile_m' has no allele \\[8\\]"),
    ],
)
def test_violation_says_what_is_wrong(change: Mapping[str, Allele], message: str) -> None:
    space = tile_space()
    alleles = {"tile_m": 8, "tile_n": 8, "split": False, **change}
    why = space.violation(alleles)
    assert why is not None
    with pytest.raises(IllegalGenomeError, match=message):
        space.genome(alleles)
    with pytest.raises(IllegalGenomeError) as caught:
        space.genome(alleles)
    assert str(caught.value) == why
    assert "\n" not in why


def test_inactive_genes_are_dropped() -> None:
    space = tile_space()
    genome = space.genome({"tile_m": 8, "tile_n": 8, "split": False, "parts": 3})
    assert "parts" not in genome
    assert space.contains(genome)
    extra = Genome("cpu", {"tile_m": 8, "tile_n": 8, "split": False, "parts": 3})
    assert not space.contains(extra)
    assert not space.contains(Genome("cuda", genome.alleles()))


def test_inactive_genes_encode_as_minus_one() -> None:
    space = tile_space()
    off = space.genome({"tile_m": 8, "tile_n": 64, "split": False})
    on = space.genome({"tile_m": 8, "tile_n": 64, "split": True, "parts": 5})
    np.testing.assert_array_equal(space.encode(off), [0.0, 1.0, 0.0, -1.0])
    np.testing.assert_array_equal(space.encode(on), [0.0, 1.0, 1.0, 1.0])
    with pytest.raises(InputError, match="no allele 9"):
        space.encode(Genome("cpu", {**off, "tile_m": 9}))


def test_diff_lists_changed_and_switched_genes() -> None:
    space = tile_space()
    before = space.genome({"tile_m": 8, "tile_n": 64, "split": False})
    after = space.genome({"tile_m": 16, "tile_n": 64, "split": True, "parts": 5})
    changes = [(c.gene, c.before, c.after) for c in space.diff(before, after)]
    assert changes == [("tile_m", 8, 16), ("split", False, True), ("parts", None, 5)]
    assert space.diff(before, before) == ()


def test_a_step_that_switches_a_gene_on_gives_it_an_allele() -> None:
    space = tile_space()
    off = space.genome({"tile_m": 8, "tile_n": 64, "split": False})
    assert space.genome({**off, "split": True, "parts": 2}) in space.neighbours(off)
    on = space.genome({"tile_m": 8, "tile_n": 64, "split": True, "parts": 4})
    assert off in space.neighbours(on)


def test_ordered_steps_jump_over_illegal_alleles() -> None:
    constraint = ExpressionConstraint("n % 4 == 0", ["n"])
    space = Space("r", [IntegerRange(name="n", low=0, high=20)], [constraint])
    start = space.genome({"n": 8})
    assert [genome["n"] for genome in space.neighbours(start)] == [4, 12]


def test_repair_prefers_few_changes_then_small_steps() -> None:
    space = tile_space()
    rng = np.random.default_rng(0)
    wanted: dict[str, Allele] = {"tile_m": 64, "tile_n": 32, "split": False}
    for _ in range(10):
        found = space.repair(wanted, rng)
        assert found is not None
        assert (found["tile_m"], found["tile_n"]) in {(64, 16), (32, 32)}
    legal = space.repair({**wanted, "tile_m": 8, "unknown": 3}, rng)
    assert legal == space.genome({**wanted, "tile_m": 8})
    number = space.repair({**wanted, "tile_m": 11, "tile_n": 8}, rng)
    assert number is not None
    assert number["tile_m"] == 8
    assert space.repair({}, rng) is not None


def test_pin_refuses_what_is_not_there() -> None:
    space = tile_space()
    assert {g["tile_m"] for g in space.pin({"tile_m": 16}).enumerate()} == {16}
    assert {g["split"] for g in space.pin({"split": True}).enumerate()} == {True}
    with pytest.raises(InputError, match="did you mean 'tile_m'"):
        space.pin({"tile_mm": 16})
    with pytest.raises(InputError, match="'tile_m' has no allele 17"):
        space.pin({"tile_m": 17})


def test_pinning_a_parent_keeps_or_drops_its_children() -> None:
    space = tile_space()
    assert all("parts" in g for g in space.pin({"split": True}).enumerate())
    assert not any("parts" in g for g in space.pin({"split": False}).enumerate())


@pytest.mark.parametrize(
    ("genes", "message"),
    [
        ([], "has no genes"),
        ([Boolean(name="a"), Boolean(name="a")], "two genes named 'a'"),
        ([Boolean(name="")], "must be a text"),
        ([Boolean(name="a", when=When("bb", (True,)))], "depends on the unknown gene 'bb'"),
        ([Boolean(name="a", when=When("a", (True,)))], "must stand before it"),
        ([Boolean(name="p"), Boolean(name="a", when=When("p", (1,)))], "which is no allele of it"),
        ([Boolean(name="p"), Boolean(name="a", when=When("p", ()))], "depends on no allele"),
        (
            [
                IntegerRange(name="p", low=0, high=10**6),
                Boolean(name="a", when=When("p", (1,))),
            ],
            "at most 65536 can be depended on",
        ),
    ],
)
def test_malformed_spaces_are_refused_when_made(genes: list[Gene], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Space("r", genes)


FLAG = Boolean(name="p")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space("r", ["text"]), r"genes\[0\] must be a gene, for example Choice\("),  # type: ignore[list-item]
        (lambda: Space("r", "text"), "genes must be a list or tuple, not 'text'"),  # type: ignore[arg-type]
        (lambda: Space("r", FLAG), "genes must be a list or tuple, not Boolean"),  # type: ignore[arg-type]
        (
            lambda: Space("r", [FLAG, Boolean(name="q", when="p")]),  # type: ignore[arg-type]
            r"gene 'q': its condition must be When\(gene, \(allele, ...\)\), not 'p'",
        ),
        (
            lambda: Space("r", [FLAG], ["p > 0"]),  # type: ignore[list-item]
            r"constraints\[0\] must be a constraint, for example ExpressionConstraint\('p > 0', ",
        ),
        (
            lambda: Space("r", [FLAG], [lambda p: p]),  # type: ignore[list-item]
            r"for example PredicateConstraint\(function\), not <function",
        ),
        (
            lambda: Space("r", [FLAG], [PredicateConstraint]),  # type: ignore[list-item]
            r"constraints\[0\] must be a constraint",
        ),
        (lambda: Space("r", [FLAG], "p > 0"), "constraints must be a list or tuple, not 'p > 0'"),  # type: ignore[arg-type]
        (lambda: PredicateConstraint("p > 0"), "takes a function of alleles, not 'p > 0'"),  # type: ignore[arg-type]
        (lambda: Choice(name="c", options="ab"), "options must be a tuple of alleles, not 'ab'"),  # type: ignore[arg-type]
        (lambda: Choice(name="c", options=3), "options must be a tuple of alleles, not 3"),  # type: ignore[arg-type]
        (lambda: Space("r", [FLAG]).sample(3), r"for example numpy.random.default_rng\(3\), not 3"),  # type: ignore[arg-type]
        (lambda: Space("r", [FLAG]).repair({}, None), "rng must be a numpy Generator"),  # type: ignore[arg-type]
        (lambda: FLAG.sample(3), "rng must be a numpy Generator"),  # type: ignore[arg-type]
        (lambda: Space("r", [FLAG]).genome(3), "made of alleles by gene, a dict, not 3"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_a_wrong_kind_is_refused_in_one_line(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_constraint_over_an_unknown_gene_is_refused_when_made() -> None:
    constraint = PredicateConstraint(lambda tile_n: tile_n > 0)
    with pytest.raises(InputError, match="unknown gene 'tile_n' \\(did you mean 'tile_m'"):
        Space("r", [Boolean(name="tile_m")], [constraint])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a > 9"], "the constraint 'a > 9' excludes every one"),
        (["b < 5", "a > 2", "a < 2"], "together the constraints 'a > 2', 'a < 2' exclude"),
        (["1 > 2"], "the constraint '1 > 2' excludes every one"),
    ],
)
def test_an_empty_space_names_the_cause(texts: list[str], message: str) -> None:
    names = ["a", "b"]
    genes = [IntegerRange(name=name, low=0, high=4) for name in names]
    space = Space("r", genes, [ExpressionConstraint(text, names) for text in texts])
    assert space.size().legal == 0
    assert list(space.enumerate()) == []
    assert space.repair({"a": 1, "b": 1}, np.random.default_rng(0)) is None
    with pytest.raises(NothingValidError, match=message) as caught:
        space.sample(np.random.default_rng(0))
    assert caught.value.exit_code == 1


def test_one_value_and_one_legal_genome_are_normal() -> None:
    rng = np.random.default_rng(0)
    single = Space("r", [Choice(name="only", options=("x",))])
    assert single.sample(rng) == single.genome({"only": "x"})
    assert single.neighbours(single.sample(rng)) == []
    assert single.size().legal == 1
    genes = [IntegerRange(name="a", low=0, high=9), IntegerRange(name="b", low=0, high=9)]
    one = Space("r", genes, [ExpressionConstraint("a + b == 18", ["a", "b"])])
    assert one.size().legal == 1
    assert one.sample(rng).alleles() == {"a": 9, "b": 9}
    assert one.neighbours(one.sample(rng)) == []
    assert one.repair({"a": 0, "b": 0}, rng) == one.sample(rng)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_division_by_zero_is_an_error_unless_another_constraint_excludes_it(
    order: tuple[int, int],
) -> None:
    names = ["a", "b"]
    genes = [IntegerRange(name=name, low=0, high=4) for name in names]
    divides = ExpressionConstraint("a % b == 0", names)
    bare = Space("r", genes, [divides])
    message = "constraint 'a % b == 0' divides by zero at a=0, b=0"
    for asked in (bare.size, lambda: bare.sample(np.random.default_rng(0))):
        with pytest.raises(InputError, match=message):
            asked()
    with pytest.raises(InputError, match=message):
        bare.violation({"a": 0, "b": 0})
    both = [divides, ExpressionConstraint("b > 0", names)]
    space = Space("r", genes, [both[i] for i in order])
    assert space.size().legal == sum(a % b == 0 for a in range(5) for b in range(1, 5))
    why = space.violation({"a": 0, "b": 0})
    assert why is not None
    assert "'b > 0' does not hold" in why


def test_a_predicate_that_raises_is_bad_input() -> None:
    def broken(a: int) -> bool:
        raise KeyError(a)

    space = Space("r", [IntegerRange(name="a", low=0, high=4)], [PredicateConstraint(broken)])
    with pytest.raises(InputError, match="'broken' cannot be evaluated at a=0 \\(KeyError: 0\\)"):
        space.size()


def test_dependent_domains() -> None:
    allowed: dict[Allele, tuple[Allele, ...]] = {0: (1, 2), 1: (3,), 2: ()}
    space = Space(
        "r",
        [IntegerRange(name="algo", low=0, high=2), IntegerRange(name="tile", low=1, high=4)],
        [AllowedAlleles("tile", "algo", allowed)],
    )
    pairs = {(g["algo"], g["tile"]) for g in space.enumerate()}
    assert pairs == {(0, 1), (0, 2), (1, 3)}
    start = space.genome({"algo": 0, "tile": 1})
    assert space.violation({"algo": 1, "tile": 1}) is not None
    assert [g["tile"] for g in space.neighbours(start)] == [2]


def huge_parts() -> tuple[list[Gene], list[Constraint]]:
    """Return 16 linked genes: 10^13 raw combinations, far too many to list."""
    genes: list[Gene] = [PowerOfTwo(name=f"p{i}", low=1, high=128) for i in range(10)]
    genes += [IntegerRange(name=f"n{i}", low=1, high=10) for i in range(4)]
    genes += [Boolean(name="deep"), Permutation(name="order", items=tuple("abcdefghijkl"))]
    names = [gene.name for gene in genes]
    texts = [f"p{i} * p{i + 1} <= 2048" for i in range(9)]
    texts += ["n0 + n1 + n2 + n3 <= 20", "deep or p0 <= 16", "n0 != n3"]
    return genes, [ExpressionConstraint(text, names) for text in texts]


def test_a_huge_linked_space_is_counted_drawn_and_stepped_without_listing() -> None:
    start = time.process_time()
    genes, constraints = huge_parts()
    space = Space("r", genes, constraints)
    size = space.size()
    assert size.raw > 10**12
    assert size.exact
    assert 0 < size.legal < size.raw
    rng = np.random.default_rng(1)
    for _ in range(200):
        genome = space.sample(rng)
        assert space.violation(genome) is None
    assert all(space.contains(other) for other in space.neighbours(genome))
    wild = {gene.name: gene.sample(rng) for gene in genes}
    fixed = space.repair(wild, rng)
    assert fixed is not None
    assert space.contains(fixed)
    assert len(list(itertools.islice(space.enumerate(), 100))) == 100
    assert time.process_time() - start < 10


def test_a_sum_over_all_genes_is_counted_by_its_partial_sums() -> None:
    """Coefficients of (1 + x + x² + x³)³⁰: what the graph must find without 4³⁰ combinations."""
    names = [f"n{i}" for i in range(30)]
    genes = [IntegerRange(name=name, low=0, high=3) for name in names]
    ways = np.array([1], dtype=object)
    for _ in names:
        ways = np.convolve(ways, np.array([1, 1, 1, 1], dtype=object))
    text = " + ".join(names[::2]) + " <= 20 - (" + " + ".join(names[1::2]) + ")"
    space = Space("r", genes, [ExpressionConstraint(text, names)])
    assert space.size().legal == sum(ways[:21])
    assert space.size().exact
    rng = np.random.default_rng(0)
    assert all(space.violation(space.sample(rng)) is None for _ in range(50))
    far = space.repair(dict.fromkeys(names, 3), rng)
    assert far is not None
    assert space.contains(far)


def test_a_huge_space_with_one_constraint_over_everything_is_bounded_and_drawn() -> None:
    genes = [IntegerRange(name=f"n{i}", low=0, high=99) for i in range(8)]
    names = tuple(gene.name for gene in genes)
    whole = PredicateConstraint(lambda *v: sum(v) % 3 == 0, genes=names, text="sum % 3 == 0")
    space = Space("r", genes, [whole])
    size = space.size()
    assert (size.raw, size.legal, size.exact) == (10**16, 10**16, False)
    assert space.even
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert space.violation(space.sample(rng)) is None
    assert space.repair(dict.fromkeys(names, 1), rng) is not None


def test_a_nearly_empty_huge_space_is_searched_and_says_so() -> None:
    genes = [IntegerRange(name=f"n{i}", low=0, high=99) for i in range(8)]
    names = tuple(gene.name for gene in genes)
    rare = PredicateConstraint(lambda *v: len(set(v)) == 1, genes=names, text="all equal")
    space = Space("r", genes, [rare])
    assert not space.even
    with pytest.raises(NothingValidError, match=r"search found none .* 'all equal'"):
        space.sample(np.random.default_rng(1))


def test_making_a_space_evaluates_nothing() -> None:
    def asked(a: int) -> bool:
        raise AssertionError(a)

    space = Space("r", [IntegerRange(name="a", low=0, high=4)], [PredicateConstraint(asked)])
    assert space.names == ("a",)


def test_a_pickled_space_draws_alike(graph_budget: str) -> None:
    space = tile_space()
    twin = pickle.loads(pickle.dumps(space))
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    assert [space.sample(ours) for _ in range(20)] == [twin.sample(theirs) for _ in range(20)]
    assert space.size().exact == (graph_budget == "whole graph")


def test_sampling_depends_on_the_stream_alone(graph_budget: str) -> None:
    used, fresh = tile_space(), tile_space()
    for _ in range(50):
        used.sample(np.random.default_rng(9))
    assert used.sample(np.random.default_rng(4)) == fresh.sample(np.random.default_rng(4)), (
        graph_budget
    )
