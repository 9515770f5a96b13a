"""Gene kinds: one small class each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar

import numpy as np

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene, Listed, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwo(Listed):
    """Powers of two from ``low`` to ``high``, both included; steps are doublings."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            whole_number(self.name, "bound", bound)
            if bound < 1 or bound & (bound - 1):
                raise InputError(f"gene {self.name!r}: {bound} is not a power of two")
        if self.low > self.high:
            raise InputError(f"gene {self.name!r}: low {self.low} exceeds high {self.high}")
        self._list(tuple(1 << e for e in range(self.low.bit_length() - 1, self.high.bit_length())))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRange(Gene):
    """Integers from ``low`` to ``high`` by ``step``, both ends included where the step meets."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        for what, number in (("low", self.low), ("high", self.high), ("step", self.step)):
            whole_number(self.name, what, number)
        if self.step < 1:
            raise InputError(f"gene {self.name!r}: step {self.step} must be at least 1")
        if self.low > self.high:
            raise InputError(f"gene {self.name!r}: low {self.low} exceeds high {self.high}")

    @property
    def cardinality(self) -> int:
        return (self.high - self.low) // self.step + 1

    def values(self) -> tuple[Allele, ...]:
        return tuple(range(self.low, self.high + 1, self.step))

    def at(self, index: int) -> Allele:
        return self.low + self.step * index

    def index(self, value: object) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            return -1
        index, rest = divmod(value - self.low, self.step)
        return -1 if rest else index

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        place = self.place(value)
        return tuple(self.at(i) for i in (place - 1, place + 1) if 0 <= i < self.cardinality)

    def encode(self, value: Allele) -> tuple[float, ...]:
        return (self.place(value) / max(self.cardinality - 1, 1),)

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
class Choice(Listed):
    """A listed domain. Numeric options are ordered by value, others are unordered.

    Attributes:
        options: The alleles, all different. Numbers are sorted on construction.
    """

    options: tuple[Allele, ...]
    _ordered: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Sequence):
            raise InputError(
                f"gene {self.name!r}: options must be a tuple of alleles, not {self.options!r}"
            )
        if not self.options:
            raise InputError(f"gene {self.name!r} has no alleles")
        for option in self.options:
            self._admit(option)
        object.__setattr__(self, "_ordered", _numeric_order(self.options))
        if self._ordered:
            object.__setattr__(self, "options", tuple(sorted(self.options)))
        self._list(tuple(self.options))

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether steps along the options mean anything."""
        return self._ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean(Listed):
    """False or True."""

    def __post_init__(self) -> None:
        self._list((False, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation(Gene):
    """All orders of ``items``; the allele is a tuple. Steps exchange two neighbours."""

    ordered: ClassVar[bool] = False

    items: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.items or len(set(self.items)) != len(self.items):
            raise InputError(f"gene {self.name!r}: the items of a permutation must all differ")
        if not all(isinstance(item, str) for item in self.items):
            raise InputError(f"gene {self.name!r}: the items of a permutation must be strings")

    @property
    def cardinality(self) -> int:
        return math.factorial(len(self.items))

    def values(self) -> tuple[Allele, ...]:
        return tuple(permutations(self.items))

    def at(self, index: int) -> Allele:
        left, found = list(self.items), []
        for remaining in range(len(left), 0, -1):
            place, index = divmod(index, math.factorial(remaining - 1))
            found.append(left.pop(place))
        return tuple(found)

    def index(self, value: object) -> int:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            return -1
        left, index = list(self.items), 0
        for item in value:
            if item not in left:
                return -1
            place = left.index(item)
            left.pop(place)
            index += place * math.factorial(len(left))
        return index

    def sample(self, rng: np.random.Generator) -> Allele:
        return tuple(self.items[int(i)] for i in rng.permutation(len(self.items)))

    def neighbours(self, value: Allele) -> tuple[Allele, ...]:
        self.place(value)
        assert isinstance(value, tuple)
        found = []
        for i in range(len(value) - 1):
            swapped = list(value)
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
            found.append(tuple(swapped))
        return tuple(found)

    def encode(self, value: Allele) -> tuple[float, ...]:
        self.place(value)
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
