"""A space's constraints compiled against gene positions, for assignments held as lists."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import (
    Constraint,
    ExpressionConstraint,
    Positional,
    constraint_fault,
)
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._expressions import function_of
from kernelarc.genomes._residues import Part, decided_parts

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

    __slots__ = ("_can_be_off", "_get", "_known", "_named", "_tree", "holds", "positions", "text")

    def __init__(
        self, constraint: Constraint, places: Mapping[str, int], conditional: Sequence[bool]
    ) -> None:
        self.text = constraint.text
        self._named = named = tuple(places[gene] for gene in constraint.genes)
        # A constraint over no gene at all is asked with the first gene, which is always active.
        self.positions = tuple(dict.fromkeys(named)) or (0,)
        asked = _asked(constraint, _getter(named))
        self._can_be_off = any(conditional[p] for p in self.positions)
        self.holds = _asked_if_active(asked, _getter(named)) if self._can_be_off else asked
        self._get = _getter(named)
        self._tree = constraint.tree if isinstance(constraint, ExpressionConstraint) else None
        self._known: dict[frozenset[int], Residue] = {}

    def residue(self, decided: frozenset[int], whole: Sequence[bool]) -> Residue:
        """Say what the rule still depends on when some of its genes are decided.

        Args:
            decided: Positions; those that the rule does not name are ignored.
            whole: Per position, whether all alleles are whole numbers.
        """
        own = decided.intersection(self.positions)
        if own not in self._known:
            self._known[own] = self._residue(own, whole)
        return self._known[own]

    def _residue(self, own: frozenset[int], whole: Sequence[bool]) -> Residue:
        if self._tree is None:
            return Residue(own, ())
        called = {f"a{i}": position for i, position in enumerate(self._named)}
        parts = decided_parts(
            self._tree,
            frozenset(name for name, position in called.items() if position in own),
            frozenset(name for name, position in called.items() if whole[position]),
        )
        alleles = frozenset(called[name] for part in parts if part.is_name for name in part.names)
        joint = tuple(
            Joint(frozenset(called[name] for name in part.names), self._joint(part, own))
            for part in parts
            if not part.is_name
        )
        return Residue(alleles, joint)

    def _joint(self, part: Part, own: frozenset[int]) -> Callable[[Sequence[Any]], Hashable]:
        function = function_of(part.tree, len(self._named), f"constraint {self.text!r}")
        get, switchable = self._get, sorted(own) if self._can_be_off else ()
        inside = sorted(own)

        def value(values: Sequence[Any]) -> Hashable:
            for position in switchable:
                if values[position] is OFF:
                    return None  # the rule holds whatever follows
            try:
                found = function(*get(values))
            except Exception:  # asked again, and blamed, once all of the rule is decided
                return tuple(values[position] for position in inside)
            return type(found), found

        return value


@dataclass(frozen=True, slots=True)
class Joint:
    """A number that several decided genes make together.

    Attributes:
        positions: The genes.
        value: The number, of an assignment, in a form to compare by.
    """

    positions: frozenset[int]
    value: Callable[[Sequence[Any]], Hashable]


@dataclass(frozen=True, slots=True)
class Residue:
    """What a half-decided rule depends on: single genes' alleles, and joint numbers."""

    alleles: frozenset[int]
    joint: tuple[Joint, ...]


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
