"""What a space is made of, refused in one line where it is of a wrong kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kernelarc.genomes._constraints import Constraint, Positional
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene, When

_T = TypeVar("_T")


def admitted_genes(route: str, genes: Iterable[Gene]) -> tuple[Gene, ...]:
    """Return genes as a tuple.

    Raises:
        InputError: Something else than genes, or a condition that is none.
    """
    found = _listed(f"route {route!r}: genes", genes)
    for place, gene in enumerate(found):
        if not isinstance(gene, Gene):
            raise InputError(
                f"route {route!r}: genes[{place}] must be a gene, for example "
                f"Choice(name='tile', options=(16, 32)), not {_shown(gene)}"
            )
        if gene.when is not None and not (
            isinstance(gene.when, When) and isinstance(gene.when.values, tuple | list)
        ):
            raise InputError(
                f"gene {gene.name!r}: its condition must be When(gene, (allele, ...)), "
                f"not {_shown(gene.when)}"
            )
    return found


def admitted_constraints(route: str, constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return constraints as a tuple.

    Raises:
        InputError: Something else than constraints; of a text or a function it says how to make
            one of it.
    """
    found = _listed(f"route {route!r}: constraints", constraints)
    for place, each in enumerate(found):
        if isinstance(each, Positional):
            continue
        if isinstance(each, type) or not isinstance(each, Constraint):
            raise InputError(
                f"route {route!r}: constraints[{place}] must be a constraint, for example "
                f"{_right(each)}, not {_shown(each)}"
            )
    return found


def _listed(what: str, parts: Iterable[_T]) -> tuple[_T, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise InputError(f"{what} must be a list or tuple, not {_shown(parts)}")
    return tuple(parts)


def _right(each: object) -> str:
    if callable(each) and not isinstance(each, type):
        return "PredicateConstraint(function)"
    text = each if isinstance(each, str) else "tile > 16"
    return f"ExpressionConstraint({text!r}, names of the genes)"


def _shown(value: object) -> str:
    """Return what was given, not too long for a line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"
