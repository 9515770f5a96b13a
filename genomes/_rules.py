"""A space's constraints compiled against gene positions, for assignments held as lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import Constraint, Positional, constraint_fault
from kernelarc.genomes._errors import InputError

_Get: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]
_Holds: TypeAlias = Callable[[Sequence[Any]], bool]


class _Off:
    """Stands in an assignment where a gene is switched off."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "off"


OFF: Final = _Off()


class Rule:
    """One constraint over positions.

    Attributes:
        text: The constraint's text.
        positions: The genes it names, by position in the space; at least one.
        holds: Takes an assignment (a list over all positions, ``OFF`` where inactive). Raises
            InputError where the constraint cannot be evaluated.
    """

    __slots__ = ("holds", "positions", "text")

    def __init__(
        self, constraint: Constraint, places: Mapping[str, int], conditional: Sequence[bool]
    ) -> None:
        self.text = constraint.text
        named = tuple(places[gene] for gene in constraint.genes)
        # A constraint over no gene at all is asked with the first gene, which is always active.
        self.positions = tuple(dict.fromkeys(named)) or (0,)
        asked = _asked(constraint, _getter(named))
        can_be_off = any(conditional[p] for p in self.positions)
        self.holds = _asked_if_active(asked, _getter(named)) if can_be_off else asked


def _asked(constraint: Constraint, get: _Get) -> _Holds:
    function, text, genes = _positional(constraint), constraint.text, constraint.genes

    def holds(values: Sequence[Any]) -> bool:
        try:
            return bool(function(*get(values)))
        except Exception as error:
            raise constraint_fault(text, genes, get(values), error) from error

    return holds


def _asked_if_active(asked: _Holds, get: _Get) -> _Holds:
    def holds(values: Sequence[Any]) -> bool:
        for value in get(values):
            if value is OFF:
                return True
        return asked(values)

    return holds


def broken_rule(rules: Iterable[Rule], values: Sequence[Any]) -> Rule | None:
    """Return a rule that an assignment breaks, or None.

    A rule that cannot be evaluated is an error only where no other rule says no, so the order
    of constraints never decides whether ``a % b`` beside ``b != 0`` is one.

    Raises:
        InputError: A rule cannot be evaluated and no other is broken.
    """
    fault: InputError | None = None
    for rule in rules:
        try:
            if not rule.holds(values):
                return rule
        except InputError as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return None


def _getter(positions: tuple[int, ...]) -> _Get:
    if not positions:
        return lambda _: ()
    if len(positions) == 1:
        (only,) = positions
        return lambda values: (values[only],)
    return itemgetter(*positions)


def _positional(constraint: Constraint) -> Callable[..., Any]:
    """Return a function with one positional argument per gene."""
    if isinstance(constraint, Positional):
        return constraint.function
    genes = constraint.genes

    def asked(*values: Allele) -> bool:
        return constraint.holds(dict(zip(genes, values, strict=True)))

    return asked
