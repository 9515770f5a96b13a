"""Constraints: what text means, what it refuses, and that nothing in it is ever run."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelarc.genomes import (
    Allele,
    AllowedAlleles,
    Constraint,
    ExpressionConstraint,
    InputError,
    IntegerRange,
    PredicateConstraint,
    Space,
)

NAMES = ("a", "b", "c", "mode")


@pytest.mark.parametrize(
    ("text", "alleles", "holds"),
    [
        ("a * b <= 1024", {"a": 32, "b": 32}, True),
        ("a * b < 1024", {"a": 32, "b": 32}, False),
        ("32 <= a * b <= 1024", {"a": 1, "b": 31}, False),
        ("a > 1 or b == 0", {"a": 1, "b": 0}, True),
        ("a > 1 and b == 0", {"a": 1, "b": 0}, False),
        ("not a > 1", {"a": 1}, True),
        ("32 % ((a * b)/c) == 0", {"a": 8, "b": 8, "c": 16}, True),
        ("a / b == 0.5", {"a": 1, "b": 2}, True),
        ("a // b == 0", {"a": 1, "b": 2}, True),
        ("a ** 2 == 9", {"a": -3}, True),
        ("-a == +3", {"a": -3}, True),
        ("a & (a - 1) == 0", {"a": 8}, True),
        ("a << 2 == 32", {"a": 8}, True),
        ("a >> 2 == 2", {"a": 8}, True),
        ("~a == -9", {"a": 8}, True),
        ("a in (1, 2, 4)", {"a": 4}, True),
        ("a in [1, 2, 4]", {"a": 3}, False),
        ("a not in {1, 2, 4}", {"a": 3}, True),
        ("mode == 'row'", {"mode": "row"}, True),
        ("mode in ('row', 'column') and a", {"mode": "row", "a": 0}, False),
        ("(a, b) == (1, 2)", {"a": 1, "b": 2}, True),
        ("a - b", {"a": 2, "b": 2}, False),
        ("True", {}, True),
        ("  a == 1\n", {"a": 1}, True),
    ],
)
def test_text_means_what_python_means(
    text: str, alleles: Mapping[str, Allele], holds: bool
) -> None:
    constraint = ExpressionConstraint(text, NAMES)
    assert constraint.holds(alleles) is holds
    assert set(constraint.genes) == set(alleles)
    assert constraint.text == text
    assert pickle.loads(pickle.dumps(constraint)).holds(alleles) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("block > 1", "names the unknown gene 'block'"),
        ("modee == 1", "did you mean 'mode'"),
        ("max(a, b) > 1", "calls a function \\(max\\)"),
        ("__import__('os').system('true')", "calls a function"),
        ("(lambda: 1)()", "calls a function"),
        ("a.real > 1", "reads an attribute"),
        ("a[0] > 1", "uses an index"),
        ("lambda: 1", "uses Lambda"),
        ("[x for x in (1, 2)]", "uses ListComp"),
        ("a if b else c", "uses IfExp"),
        ("(a := 1)", "uses NamedExpr"),
        ("f'{a}'", "uses JoinedStr"),
        ("a is b", "compares by identity"),
        ("a @ b", "uses the operator MatMult"),
        ("'x' * 99999999999", "computes with a text or tuple"),
        ("'%9999999d' % a", "computes with a text or tuple"),
        ("(1,) * 99999999999", "computes with a text or tuple"),
        ("1j == a", "holds 1j"),
        ("b'x' == a", "holds b'x'"),
        ("None == a", "holds None"),
        ("... == a", "holds Ellipsis"),
        ("a = 1", "does not parse"),
        ("a >", "does not parse"),
        ("a > 1; b", "does not parse"),
        ("import os", "does not parse"),
        ("(" * 500 + "a" + ")" * 500, "does not parse"),
        ("-" * 9000 + "a", "nested"),
        ("a" + " + a" * 4000, "longer than 10000 characters"),
        ("", "is empty or no text"),
        ("   ", "is empty or no text"),
        ("a\0", "does not parse"),
    ],
)
def test_text_that_does_more_is_refused_when_made(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ExpressionConstraint(text, NAMES)
    assert caught.value.exit_code == 2


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="no text"):
        ExpressionConstraint(5, NAMES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "alleles", "message"),
    [
        ("a / b > 1", {"a": 1, "b": 0}, "constraint 'a / b > 1' divides by zero at a=1, b=0"),
        ("a % b > 1", {"a": 1, "b": 0}, "divides by zero at a=1, b=0"),
        ("a // b > 1", {"a": 1, "b": 0}, "divides by zero"),
        ("a ** b > 1", {"a": 0, "b": -1}, "divides by zero"),
        ("a ** b > 1", {"a": 99, "b": 10**9}, "OverflowError: the power is too large"),
        ("a << b > 1", {"a": 99, "b": 10**9}, "OverflowError: the shift is too large"),
        ("a ** 0.5 > 1", {"a": -2}, "not a real number"),
        ("a < mode", {"a": 1, "mode": "row"}, "cannot be evaluated at a=1, mode='row' \\(TypeErr"),
    ],
)
def test_what_cannot_be_evaluated_is_bad_input(
    text: str, alleles: Mapping[str, Allele], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ExpressionConstraint(text, NAMES).holds(alleles)
    assert "\n" not in str(caught.value)


numbers = st.integers(-9, 9).map(str)
sums = st.recursive(
    st.one_of(numbers, st.sampled_from(["a", "b", "c"])),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=8,
)
comparisons = st.tuples(sums, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), sums).map(
    " ".join
)


@settings(max_examples=150, deadline=None, database=None)
@given(comparisons, st.tuples(*[st.integers(-9, 9)] * 3))
def test_any_arithmetic_agrees_with_python(text: str, values: tuple[int, int, int]) -> None:
    alleles: dict[str, Allele] = dict(zip("abc", values, strict=True))
    constraint = ExpressionConstraint(text, "abc")
    try:
        expected = bool(eval(text, {}, alleles))
    except ZeroDivisionError:
        with pytest.raises(InputError, match="divides by zero"):
            constraint.holds(alleles)
        return
    assert constraint.holds(alleles) is expected


def test_a_predicate_takes_its_genes_from_its_parameters() -> None:
    limit = 4

    def fits(tile: int, stages: int, factor: int = 2) -> bool:
        return tile * stages * factor <= limit

    constraint = PredicateConstraint(fits)
    assert constraint.genes == ("tile", "stages")
    assert constraint.text == "fits"
    assert constraint.holds({"tile": 1, "stages": 2, "other": 9})
    assert not constraint.holds({"tile": 2, "stages": 2})


def test_a_predicate_can_be_given_its_genes() -> None:
    constraint = PredicateConstraint(math.isclose, genes=("x", "y"), text="x is y")
    assert constraint.holds({"x": 1, "y": 1.0})
    assert repr(constraint) == "PredicateConstraint('x is y')"


@pytest.mark.parametrize("function", [lambda *v: True, lambda **v: True, lambda: True])
def test_a_predicate_without_named_parameters_needs_genes(function: Callable[..., bool]) -> None:
    with pytest.raises(InputError, match="give them as genes="):
        PredicateConstraint(function)


def test_allowed_alleles_compare_types_too() -> None:
    constraint = AllowedAlleles("tile", "algo", {0: (1, 2), 1: (3,)})
    assert constraint.genes == ("algo", "tile")
    assert constraint.text == "tile in allowed[algo]"
    assert constraint.holds({"algo": 0, "tile": 2})
    assert not constraint.holds({"algo": 1, "tile": 2})
    assert not constraint.holds({"algo": 5, "tile": 2})
    assert not constraint.holds({"algo": 0, "tile": True})
    twin = pickle.loads(pickle.dumps(constraint))
    assert twin.holds({"algo": 0, "tile": 2})


def test_a_constraint_class_of_ones_own_needs_no_base() -> None:
    class Even:
        text = "n is even"
        genes = ("n",)

        def holds(self, alleles: Mapping[str, Allele]) -> bool:
            value = alleles["n"]
            return isinstance(value, int) and value % 2 == 0

    own = Even()
    assert isinstance(own, Constraint)
    space = Space("r", [IntegerRange(name="n", low=0, high=9)], [own])
    assert [genome["n"] for genome in space.enumerate()] == [0, 2, 4, 6, 8]
    assert space.violation({"n": 3}) == "constraint 'n is even' does not hold at n=3"
