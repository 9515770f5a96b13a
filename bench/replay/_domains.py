"""From a recorded domain to a gene: the kind follows from the values alone, never from names."""

from __future__ import annotations

from collections.abc import Sequence

from kernelarc.genomes import (
    Allele,
    Boolean,
    Choice,
    Gene,
    InputError,
    PowerOfTwo,
    allele_from_json,
    same_allele,
)


def gene_from_values(name: str, values: Sequence[object]) -> Gene:
    """Return the gene whose domain is exactly ``values`` (repeats count once).

    Both truth values make a Boolean; powers of two without a gap, a PowerOfTwo; everything else
    is a Choice, ordered when its values are numbers. One value is a normal gene that is not free.

    Raises:
        InputError: No value, or one that is no allele (an object, a number that is not finite).
    """
    options = _distinct(name, values)
    if not options:
        raise InputError(f"gene {name!r} has an empty domain")
    if {type(option) for option in options} == {bool} and len(options) == 2:
        return Boolean(name=name)
    ladder = _ladder(options)
    if ladder is not None:
        return PowerOfTwo(name=name, low=ladder[0], high=ladder[1])
    return Choice(name=name, options=options)


def allele_of(value: object) -> Allele:
    """Return the allele of a decoded JSON value; a null is the text ``"None"``.

    Raises:
        TypeError: The value is an object, which no gene holds.
        ValueError: The value is a number that is not finite.
    """
    if value is None:
        return "None"
    allele = allele_from_json(value)
    if isinstance(allele, float) and allele - allele != 0.0:
        raise ValueError(f"{allele} is not finite")
    return allele


def _distinct(name: str, values: Sequence[object]) -> tuple[Allele, ...]:
    found: list[Allele] = []
    for value in values:
        try:
            allele = allele_of(value)
        except (TypeError, ValueError) as error:
            raise InputError(f"gene {name!r}: {value!r} is no allele: {error}") from error
        if not any(same_allele(allele, known) for known in found):
            found.append(allele)
    return tuple(found)


def _ladder(options: tuple[Allele, ...]) -> tuple[int, int] | None:
    """Return the ends of a gapless run of at least two powers of two."""
    numbers = sorted(o for o in options if isinstance(o, int) and not isinstance(o, bool))
    if len(numbers) != len(options) or len(numbers) < 2:
        return None
    low = numbers[0]
    expected = [low << step for step in range(len(numbers))]
    is_power = low >= 1 and low & (low - 1) == 0
    return (low, numbers[-1]) if is_power and numbers == expected else None
