"""Constraints: predicates over alleles, as Python functions or as expression text.

A constraint is asked only where every gene it names is active; where one is switched off there is
nothing to compare and the constraint holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from kernelarc.genomes._alleles import Allele, allele_key
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._expressions import compile_expression


@runtime_checkable
class Constraint(Protocol):
    """A predicate over some genes' alleles.

    Attributes:
        text: How people read it.
        genes: The genes it names.
    """

    @property
    def text(self) -> str:
        """How people read it."""

    @property
    def genes(self) -> tuple[str, ...]:
        """The genes it names."""

    def holds(self, alleles: Mapping[str, Allele]) -> bool:
        """Tell whether alleles that cover ``genes`` satisfy it.

        Raises:
            InputError: It cannot be evaluated for these alleles, for example divides by zero.
        """


class Positional:
    """What our own constraints share: a function with one positional argument per gene."""

    __slots__ = ("function", "genes", "text")

    text: str
    genes: tuple[str, ...]
    function: Callable[..., Any]

    def holds(self, alleles: Mapping[str, Allele]) -> bool:
        """Tell whether the alleles satisfy the constraint."""
        values = [alleles[gene] for gene in self.genes]
        try:
            return bool(self.function(*values))
        except Exception as error:
            raise constraint_fault(self.text, self.genes, values, error) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


def constraint_fault(
    text: str, genes: Iterable[str], values: Iterable[Allele], error: Exception
) -> InputError:
    """Return the one-line error for a constraint that cannot be evaluated."""
    if isinstance(error, InputError):
        return error
    shown = ", ".join(f"{gene}={value!r}" for gene, value in zip(genes, values, strict=True))
    if isinstance(error, ZeroDivisionError):
        return InputError(f"constraint {text!r} divides by zero at {shown}")
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return InputError(f"constraint {text!r} cannot be evaluated at {shown} ({what})")


class ExpressionConstraint(Positional):
    """A constraint from text, in the notation of Kernel Tuner's restrictions.

    Numbers, strings, gene names, ``+ - * / // % **``, bit operations, comparisons (also chained),
    ``in`` a tuple or list, ``and``, ``or``, ``not``. Python's meaning: ``/`` is true division.

    Args:
        text: The expression.
        names: Every gene name that may appear.

    Raises:
        InputError: The text does not parse, names an unknown gene, or does anything else.
    """

    __slots__ = ("_names", "tree")

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self._names = tuple(names)
        compiled = compile_expression(text, self._names, what=f"constraint {text!r}")
        self.text, self.genes, self.function = text, compiled.names, compiled.function
        self.tree = compiled.tree

    def __reduce__(self) -> tuple[type[ExpressionConstraint], tuple[str, tuple[str, ...]]]:
        return ExpressionConstraint, (self.text, self._names)


class PredicateConstraint(Positional):
    """A constraint from the caller's own function, which is called and never re-parsed.

    Args:
        function: Takes one allele per gene and returns whether they may stand together.
        genes: The genes whose alleles it takes, in order; the names of its parameters if None.
        text: How people read it; the function's name if empty.

    Raises:
        InputError: It is no function, or no genes were given and the parameters do not name them.
    """

    __slots__ = ()

    def __init__(
        self, function: Callable[..., Any], genes: Iterable[str] | None = None, text: str = ""
    ) -> None:
        if not callable(function):
            raise InputError(
                f"a PredicateConstraint takes a function of alleles, not {function!r}; "
                "a text becomes an ExpressionConstraint"
            )
        self.function = function
        self.text = text or getattr(function, "__name__", type(function).__name__)
        self.genes = tuple(genes) if genes is not None else self._parameters()

    def _parameters(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.function).parameters.values()
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = [p for p in parameters if p.default is inspect.Parameter.empty]
        if not required or any(p.kind not in plain for p in required):
            raise InputError(
                f"constraint {self.text!r} does not name its genes by plain parameters; "
                "give them as genes=(...)"
            )
        return tuple(p.name for p in required)


class AllowedAlleles(Positional):
    """A dependent domain: which alleles of one gene may stand beside each allele of another.

    Args:
        gene: The gene whose domain depends.
        parent: The gene it depends on.
        allowed: Per allele of the parent, the alleles of ``gene``; a missing one allows none.
    """

    __slots__ = ("_allowed",)

    def __init__(
        self, gene: str, parent: str, allowed: Mapping[Allele, Collection[Allele]]
    ) -> None:
        self.genes = (parent, gene)
        self.text = f"{gene} in allowed[{parent}]"
        self._allowed = {
            allele_key(key): frozenset(allele_key(value) for value in values)
            for key, values in allowed.items()
        }
        self.function = self._allows

    def _allows(self, parent: Allele, value: Allele) -> bool:
        return allele_key(value) in self._allowed.get(allele_key(parent), ())
