"""A space around configurations that somebody chose: every gene reaches beyond what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from kernelarc.genomes._alleles import Allele, allele_key
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice, IntegerRange, PowerOfTwo

Domain: TypeAlias = "Gene | Sequence[Allele]"

MOST_WARPS, MOST_STAGES = 16, 8
REGISTER_CAPS = (0, 64, 96, 128, 160, 192, 224)
"""Register limits of a thread; 0 leaves the compiler alone."""
_LEAST_TILE, _MOST_TILE = 16, 1 << 16
_ONLY_SEEN = frozenset({"num_ctas", "ir_override"})
"""Genes that stay as they were seen: they can bring a compiler down."""


def widened(
    seeds: Sequence[Mapping[str, Allele]], domains: Mapping[str, Domain] | None = None
) -> tuple[Gene, ...]:
    """Return genes whose domains hold all that was seen, and more of its kind.

    Powers of two go on by doublings, warps and stages by steps; a gene seen with one number only
    is widened further. Strings, numbers of no pattern and blocks of a cluster stay as they were
    seen, and one that never varied among these is left out.

    Args:
        seeds: Alleles by gene name; every one names the same genes.
        domains: What to use instead, by gene name: a gene, or its alleles. May name more genes.

    Raises:
        InputError: Seeds differ in their genes, or a domain does not hold what a seed says.
    """
    names = list(seeds[0]) if seeds else []
    for place, seed in enumerate(seeds, start=1):
        if set(seed) != set(names):
            odd = sorted(set(seed) ^ set(names))[0]
            raise InputError(f"configuration {place}: {odd!r} is not in every configuration")
    chosen = dict(domains or {})
    genes = []
    for name in [*names, *(n for n in chosen if n not in names)]:
        seen = distinct(seed[name] for seed in seeds) if name in names else ()
        gene = _named(name, chosen[name]) if name in chosen else _around(name, seen)
        if gene is not None:
            _check_holds(gene, seen)
            genes.append(gene)
    return tuple(genes)


def as_seen(seeds: Sequence[Mapping[str, Allele]]) -> tuple[Gene, ...]:
    """Return genes that hold what was seen and nothing else."""
    return widened(seeds, {name: distinct(s[name] for s in seeds) for name in seeds[0]})


def distinct(values: Iterable[Allele]) -> tuple[Allele, ...]:
    """Return alleles without repetition, in their order; 1 and True are two."""
    return tuple({allele_key(value): value for value in values}.values())


def _named(name: str, domain: Domain) -> Gene:
    if isinstance(domain, Gene):
        if domain.name != name:
            raise InputError(f"space: the gene at {name!r} calls itself {domain.name!r}")
        return domain
    if isinstance(domain, str | bytes) or not isinstance(domain, Sequence):
        raise InputError(f"space: {name!r} needs a gene or a list of its values, not {domain!r}")
    return Choice(name=name, options=tuple(domain))


def _check_holds(gene: Gene, seen: Sequence[Allele]) -> None:
    outside = [value for value in seen if not gene.contains(value)]
    if outside:
        known = [str(value) for value in gene.values()[:12]]
        raise InputError(
            f"space: gene {gene.name!r} has not the value {outside[0]!r} of a configuration"
            f"{nearest(str(outside[0]), known)}"
        )


def _around(name: str, seen: tuple[Allele, ...]) -> Gene | None:
    if name in _ONLY_SEEN and seen in {(0,), (1,)}:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name](name, seen)
    if all(isinstance(value, bool) for value in seen):
        return Boolean(name=name)
    return _whole(name, seen) if all(type(value) is int for value in seen) else _listed(name, seen)


def _whole(name: str, seen: tuple[Allele, ...]) -> Gene:
    numbers = [int(value) for value in seen]  # type: ignore[arg-type]
    if min(numbers) < 1 or any(number & (number - 1) for number in numbers):
        return _listed(name, seen)
    if min(numbers) >= _LEAST_TILE:
        # Below 16 a tile is no operand of a matrix instruction.
        return _doublings(name, seen, least=_LEAST_TILE, most=_MOST_TILE)
    return _doublings(name, seen, least=1, most=_MOST_TILE)


def _doublings(name: str, seen: tuple[Allele, ...], *, least: int, most: int) -> Gene:
    numbers = [int(value) for value in seen]  # type: ignore[arg-type]
    if any(number < 1 or number & (number - 1) for number in numbers):
        return _listed(name, seen)
    reach = 2 if len(numbers) == 1 else 1
    low = max(min(numbers) >> reach, min(least, *numbers))
    high = min(max(numbers) << reach, max(most, *numbers))
    return PowerOfTwo(name=name, low=low, high=high)


def _steps(name: str, seen: tuple[Allele, ...]) -> Gene:
    numbers = [int(value) for value in seen]  # type: ignore[arg-type]
    low = min(max(1, min(numbers) - 1), *numbers)
    high = max(min(MOST_STAGES, max(numbers) + 2), *numbers)
    return IntegerRange(name=name, low=low, high=high)


def _listed(name: str, seen: tuple[Allele, ...]) -> Gene:
    return Choice(name=name, options=seen)


def _warps(name: str, seen: tuple[Allele, ...]) -> Gene:
    return _doublings(name, seen, least=1, most=MOST_WARPS)


def _caps(name: str, seen: tuple[Allele, ...]) -> Gene:
    return _listed(name, distinct((*REGISTER_CAPS, *seen)))


_BY_NAME: Mapping[str, Callable[[str, tuple[Allele, ...]], Gene]] = MappingProxyType(
    {
        "num_warps": _warps,
        "num_stages": _steps,
        "maxnreg": _caps,
        **dict.fromkeys(_ONLY_SEEN, _listed),
    }
)
