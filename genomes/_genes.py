"""Gene kinds: one small class each. A gene is a named position with a domain and an owner."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelarc.genomes._alleles import Allele, same_allele
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
    """

    ordered: ClassVar[bool] = True

    name: str
    strategy: Strategy | None = None
    when: When | None = None
    description: str = ""

    @property
    @abstractmethod
    def cardinality(self) -> int:
        """Number of alleles in the domain, at least 1."""

    @abstractmethod
    def values(self) -> tuple[Allele, ...]:
        """Return the whole domain in its order. Only for domains that are small."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Tell whether the value is in the domain, with the right type."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Allele:
        """Draw one allele evenly."""

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
        """Return another allele than ``value``, or ``value`` where the domain has only one."""
        if self.cardinality == 1:
            return value
        while True:
            drawn = self.sample(rng)
            if not same_allele(drawn, value):
                return drawn

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


class _Listed(Gene):
    """What genes with a listed domain share."""

    __slots__ = ()

    @property
    def cardinality(self) -> int:
        return len(self.values())

    def _place(self, value: Allele) -> int:
        for place, known in enumerate(self.values()):
            if same_allele(known, value):
                return place
        raise InputError(f"gene {self.name!r} has no allele {value!r}")

    def contains(self, value: object) -> bool:
        return any(type(known) is type(value) and known == value for known in self.values())

    def sample(self, rng: np.random.Generator) -> Allele:
        values = self.values()
        return values[int(rng.integers(len(values)))]

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        values, place = self.values(), self._place(value)
        if not self.ordered:
            return values[:place] + values[place + 1 :]
        return values[max(place - 1, 0) : place] + values[place + 1 : place + 2]

    def encode(self, value: Allele) -> tuple[float, ...]:
        place = self._place(value)
        if self.ordered:
            return (place / max(self.cardinality - 1, 1),)
        return tuple(1.0 if i == place else 0.0 for i in range(self.cardinality))

    @property
    def width(self) -> int:
        return 1 if self.ordered else self.cardinality


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwo(_Listed):
    """Powers of two from ``low`` to ``high``, both included; steps are doublings."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            if bound < 1 or bound & (bound - 1):
                raise InputError(f"gene {self.name!r}: {bound} is not a power of two")
        if self.low > self.high:
            raise InputError(f"gene {self.name!r}: low {self.low} exceeds high {self.high}")

    def values(self) -> tuple[Allele, ...]:
        return tuple(1 << e for e in range(self.low.bit_length() - 1, self.high.bit_length()))

    @property
    def cardinality(self) -> int:
        return self.high.bit_length() - self.low.bit_length() + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRange(Gene):
    """Integers from ``low`` to ``high`` by ``step``, both ends included where the step meets."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.step < 1:
            raise InputError(f"gene {self.name!r}: step {self.step} must be at least 1")
        if self.low > self.high:
            raise InputError(f"gene {self.name!r}: low {self.low} exceeds high {self.high}")

    @property
    def cardinality(self) -> int:
        return (self.high - self.low) // self.step + 1

    def values(self) -> tuple[Allele, ...]:
        return tuple(range(self.low, self.high + 1, self.step))

    def contains(self, value: object) -> bool:
        return (
            type(value) is int
            and self.low <= value <= self.high
            and (value - self.low) % self.step == 0
        )

    def sample(self, rng: np.random.Generator) -> Allele:
        return self.low + self.step * int(rng.integers(self.cardinality))

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        if not self.contains(value):
            raise InputError(f"gene {self.name!r} has no allele {value!r}")
        assert isinstance(value, int)
        return tuple(v for v in (value - self.step, value + self.step) if self.contains(v))

    def encode(self, value: Allele) -> tuple[float, ...]:
        if not self.contains(value):
            raise InputError(f"gene {self.name!r} has no allele {value!r}")
        assert isinstance(value, int)
        return ((value - self.low) / max((self.cardinality - 1) * self.step, 1),)

    @property
    def width(self) -> int:
        return 1

    def parse(self, text: str) -> Allele:
        try:
            value = int(text)
        except ValueError:
            value = self.low - 1
        if not self.contains(value):
            raise InputError(
                f"gene {self.name!r} has no allele {text!r}; it can be an integer from "
                f"{self.low} to {self.high} in steps of {self.step}"
            )
        return value


def _numeric_order(options: tuple[Allele, ...]) -> bool:
    numbers = [o for o in options if isinstance(o, int | float) and not isinstance(o, bool)]
    return len(numbers) == len(options) and len(options) > 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(_Listed):
    """A listed domain. Numeric options are ordered by value, others are unordered.

    Attributes:
        options: The alleles, all different. Numbers are sorted on construction.
    """

    options: tuple[Allele, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise InputError(f"gene {self.name!r} has no alleles")
        if _numeric_order(self.options):
            object.__setattr__(self, "options", tuple(sorted(self.options)))
        for i, left in enumerate(self.options):
            if any(same_allele(left, right) for right in self.options[i + 1 :]):
                raise InputError(f"gene {self.name!r} lists the allele {left!r} twice")

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether steps along the options mean anything."""
        return _numeric_order(self.options)

    def values(self) -> tuple[Allele, ...]:
        return self.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean(_Listed):
    """False or True."""

    def values(self) -> tuple[Allele, ...]:
        return (False, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation(Gene):
    """All orders of ``items``; the allele is a tuple. Steps exchange two neighbours."""

    ordered: ClassVar[bool] = False

    items: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.items or len(set(self.items)) != len(self.items):
            raise InputError(f"gene {self.name!r}: the items of a permutation must all differ")

    @property
    def cardinality(self) -> int:
        return math.factorial(len(self.items))

    def values(self) -> tuple[Allele, ...]:
        from itertools import permutations  # noqa: PLC0415

        return tuple(permutations(self.items))

    def contains(self, value: object) -> bool:
        return isinstance(value, tuple) and sorted(map(str, value)) == sorted(self.items)

    def sample(self, rng: np.random.Generator) -> Allele:
        return tuple(self.items[int(i)] for i in rng.permutation(len(self.items)))

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        assert isinstance(value, tuple)
        found = []
        for i in range(len(value) - 1):
            swapped = list(value)
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
            found.append(tuple(swapped))
        return tuple(found)

    def encode(self, value: Allele) -> tuple[float, ...]:
        assert isinstance(value, tuple)
        last = max(len(self.items) - 1, 1)
        return tuple(value.index(item) / last for item in self.items)

    @property
    def width(self) -> int:
        return len(self.items)

    def parse(self, text: str) -> Allele:
        value = tuple(part.strip() for part in text.replace(">", ",").split(","))
        if not self.contains(value):
            raise InputError(
                f"gene {self.name!r} has no allele {text!r}; it orders {', '.join(self.items)}"
            )
        return value
