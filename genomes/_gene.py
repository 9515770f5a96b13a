"""What every gene is: a named position with a domain, a condition and an owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kernelarc.genomes._alleles import Allele, allele_key, allele_text, same_allele
from kernelarc.genomes._draw import draw_below
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._strategies import Strategy


@dataclass(frozen=True, slots=True)
class When:
    """A gene's condition: it is active while the gene named here holds one of these alleles.

    The named gene must stand earlier in the space. An inactive gene is absent from the genome.
    """

    gene: str
    values: tuple[Allele, ...]

    def holds(self, alleles: Mapping[str, Allele]) -> bool:
        """Tell whether the condition is met; an absent parent gene means it is not."""
        if self.gene not in alleles:
            return False
        found = alleles[self.gene]
        return any(same_allele(found, value) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gene(ABC):
    """A named position with its domain and its strategy label.

    Attributes:
        name: Unique within a space.
        strategy: The strategy that owns the gene; None until assigned by rule or by the user.
        when: The condition under which the gene is active; None is always.
        description: For people.
        fair: Whether ``Space.sample`` draws each allele about equally often, however many genomes
            go with it: for a gene on which whole branches hang, of which one is far larger.
        usual: What the gene holds when a step switches it on, where that is legal; None: its first
            allele.
    """

    ordered: ClassVar[bool] = True

    name: str
    strategy: Strategy | None = None
    when: When | None = None
    description: str = ""
    fair: bool = field(default=False, repr=False)
    usual: Allele | None = field(default=None, repr=False)

    @property
    @abstractmethod
    def cardinality(self) -> int:
        """Number of alleles in the domain, at least 1."""

    @abstractmethod
    def values(self) -> tuple[Allele, ...]:
        """Return the whole domain in its order. Only for domains that are small."""

    @abstractmethod
    def at(self, index: int) -> Allele:
        """Return the allele at an index of the domain's order, without listing the domain."""

    @abstractmethod
    def index(self, value: object) -> int:
        """Return where an allele stands in the domain's order; -1 when it is no allele of it."""

    def contains(self, value: object) -> bool:
        """Tell whether the value is in the domain, with the right type."""
        return self.index(value) >= 0

    def place(self, value: object) -> int:
        """Return where an allele stands in the domain's order.

        Raises:
            InputError: The value is no allele of this gene.
        """
        index = self.index(value)
        if index < 0:
            raise InputError(f"gene {self.name!r} has no allele {value!r}")
        return index

    def sample(self, rng: np.random.Generator) -> Allele:
        """Draw one allele evenly."""
        return self.at(draw_below(self.cardinality, rng))

    @abstractmethod
    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        """Return the alleles one step away: next in order, or every other if unordered."""

    @abstractmethod
    def encode(self, value: Allele) -> tuple[float, ...]:
        """Encode for a model: ``width`` numbers in [0, 1], equal alleles equal numbers."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers ``encode`` returns."""

    def mutate(self, value: Allele, rng: np.random.Generator) -> Allele:
        """Return another allele than ``value``, or the only one where the domain has one."""
        index = self.index(value)
        if index < 0 or self.cardinality == 1:
            return self.sample(rng)
        drawn = draw_below(self.cardinality - 1, rng)
        return self.at(drawn + (drawn >= index))

    def parse(self, text: str) -> Allele:
        """Read an allele from a command line.

        Raises:
            InputError: The text names no allele of the domain; the message says which there are.
        """
        for value in self.values():
            if text in {str(value), repr(value)} or (
                isinstance(value, bool) and text.lower() == str(value).lower()
            ):
                return value
        shown = ", ".join(str(value) for value in self.values()[:12])
        more = ", ..." if self.cardinality > 12 else ""
        raise InputError(f"gene {self.name!r} has no allele {text!r}; it can be {shown}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Gene):
    """What genes with a listed domain share: the list, its index and its encoding, made once."""

    _values: tuple[Allele, ...] = field(init=False, repr=False, compare=False, default=())
    _index: Mapping[Hashable, int] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def _list(self, values: tuple[Allele, ...]) -> None:
        """Take the domain. Called once, while the gene is made."""
        index: dict[Hashable, int] = {}
        for place, value in enumerate(values):
            self._admit(value)
            if index.setdefault(allele_key(value), place) != place:
                raise InputError(f"gene {self.name!r} lists the allele {value!r} twice")
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_index", index)

    def _admit(self, value: object) -> None:
        try:
            allele_text(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InputError(f"gene {self.name!r}: {error}") from None

    @property
    def cardinality(self) -> int:
        return len(self._values)

    def values(self) -> tuple[Allele, ...]:
        return self._values

    def at(self, index: int) -> Allele:
        return self._values[index]

    def index(self, value: object) -> int:
        try:
            return self._index.get(
                allele_key(value) if isinstance(value, tuple) else (type(value), value), -1
            )
        except TypeError:  # not hashable, so no allele at all
            return -1

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        values, place = self._values, self.place(value)
        if not self.ordered:
            return values[:place] + values[place + 1 :]
        return values[max(place - 1, 0) : place] + values[place + 1 : place + 2]

    def encode(self, value: Allele) -> tuple[float, ...]:
        place = self.place(value)
        if self.ordered:
            return (place / max(self.cardinality - 1, 1),)
        return tuple(1.0 if i == place else 0.0 for i in range(self.cardinality))

    @property
    def width(self) -> int:
        return 1 if self.ordered else self.cardinality


def whole_number(name: str, what: str, value: object) -> None:
    """Refuse a bound that is no whole number.

    Raises:
        InputError: It is not an ``int``.
    """
    if type(value) is not int:
        raise InputError(f"gene {name!r}: {what} {value!r} is not a whole number")
