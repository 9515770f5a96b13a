"""What each algorithm says that it offers, and what of it the library takes for one job.

Capabilities are an upper bound: most combinations that they allow are refused. Sifting asks the
library once per allele around combinations that it takes, and drops what it never takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.cuda._binding import Lt, Numbering
from kernelarc.genomes import LtAlgoDomain, LtRow

_CAP = {
    "splitk": 0,
    "reductions": 1,
    "swizzle": 2,
    "batch": 3,
    "out_of_place": 4,
    "tiles": 6,
    "customs": 7,
    "epilogues": 12,
    "stages": 13,
}
_LISTED_CUSTOMS = 1024
_PROBES, _MOST_PROBES = 256, 1024
_BASES = 20
_SCHEMES = (1, 2, 4)
_SPLITS = (
    *range(1, 17), 18, 20, 22, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128
)  # fmt: skip

Checker = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Takes attribute rows, shape (n, 11); returns 0 where the library takes one, shape (n,)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The raw capabilities of one algorithm."""

    algo: int
    tiles: tuple[int, ...]
    stages: tuple[int, ...]
    splitk: bool
    reductions: int
    swizzle: bool
    custom_max: int
    out_of_place: bool


def read_facts(lt: Lt, algo: int, blob: int) -> Facts:
    """Ask an initialised algorithm for its capabilities.

    Args:
        lt: The binding.
        algo: Its id.
        blob: Address of the initialised algorithm.
    """
    return Facts(
        algo=algo,
        tiles=_many(lt, blob, _CAP["tiles"]) or (0,),
        stages=_many(lt, blob, _CAP["stages"]) or (0,),
        splitk=bool(_one(lt, blob, _CAP["splitk"])),
        reductions=_one(lt, blob, _CAP["reductions"]),
        swizzle=bool(_one(lt, blob, _CAP["swizzle"])),
        custom_max=_one(lt, blob, _CAP["customs"]),
        out_of_place=bool(_one(lt, blob, _CAP["out_of_place"])),
    )


def _one(lt: Lt, blob: int, attribute: int) -> int:
    held = np.zeros(1, dtype=lt.get_matmul_algo_cap_attribute_dtype(attribute))
    written = np.zeros(1, dtype=np.uint64)
    lt.matmul_algo_cap_get_attribute(
        blob, attribute, held.ctypes.data, held.nbytes, written.ctypes.data
    )
    return int(held[0])


def _many(lt: Lt, blob: int, attribute: int) -> tuple[int, ...]:
    """Read a list: asked with size 0 first, which says how many bytes there are."""
    written = np.zeros(1, dtype=np.uint64)
    lt.matmul_algo_cap_get_attribute(blob, attribute, 0, 0, written.ctypes.data)
    kind = np.dtype(lt.get_matmul_algo_cap_attribute_dtype(attribute))
    count = int(written[0]) // kind.itemsize
    if count == 0:
        return ()
    held = np.zeros(count, dtype=kind)
    lt.matmul_algo_cap_get_attribute(
        blob, attribute, held.ctypes.data, held.nbytes, written.ctypes.data
    )
    return tuple(dict.fromkeys(int(value) for value in held))


def offered(facts: Facts, numbers: Numbering, depth: int) -> LtAlgoDomain:
    """Turn capabilities into domains; what has no capability comes from the enumerations."""
    splits = [s for s in _SPLITS if s == 1 or s * 16 <= depth] if facts.splitk else [1]
    schemes = [s for s in _SCHEMES if facts.reductions & s]
    return LtAlgoDomain(
        algo=facts.algo,
        tiles=facts.tiles,
        stages=facts.stages,
        clusters=tuple(numbers.clusters),
        splitks=tuple(splits) if schemes else (1,),
        reductions=(0, *schemes) if len(splits) > 1 else (0,),
        swizzles=(0, 1) if facts.swizzle else (0,),
        customs=_customs(facts.custom_max),
        inners=numbers.inners,
        out_of_place=facts.out_of_place,
    )


def _customs(most: int) -> tuple[int, ...]:
    """List 0..most; of a maximum that only bit fields can have, the small ones and each bit."""
    if most < _LISTED_CUSTOMS:
        return tuple(range(most + 1))
    bits = [1 << bit for bit in range(most.bit_length()) if 1 << bit <= most]
    return tuple(sorted({*range(256), *bits, most}))


# Sifting


def widened(domain: LtAlgoDomain, rows: Iterable[Sequence[int]]) -> LtAlgoDomain:
    """Add what the library itself proposed (its heuristics) to an algorithm's domains."""
    mine = [row for row in rows if row[0] == domain.algo]
    wider: dict[str, Any] = {
        field: tuple(dict.fromkeys([*getattr(domain, field), *(row[place] for row in mine)]))
        for field, place in _PLACES.items()
    }
    return replace(domain, **wider)


def sift(
    domain: LtAlgoDomain,
    seeds: Sequence[LtRow],
    check: Checker,
    rng: np.random.Generator,
    tail: tuple[int, int],
) -> LtAlgoDomain | None:
    """Drop every allele that the library never takes.

    Args:
        domain: Of one algorithm.
        seeds: Rows of this algorithm that the library is known to take.
        check: Asks the library.
        rng: For the probes.
        tail: Workspace ceiling in bytes and aliasing flag of every probe.

    Returns:
        The narrower domain, or None where no combination was taken at all.
    """
    taken: list[LtRow] = []
    for _ in range(0, _MOST_PROBES, _PROBES):
        probes = np.array([_probe(domain, rng, tail) for _ in range(_PROBES)], dtype=np.int64)
        taken += [tuple(int(v) for v in row) for row in probes[check(probes) == 0]]
        if len(taken) >= _BASES:
            break
    bases = _varied([*seeds, *taken])
    if not bases:
        return None
    narrow: dict[str, Any] = {
        field: _taken(domain, field, place, bases, check) for field, place in _PLACES.items()
    }
    for field in _UNDECLARED:
        if len(narrow[field]) == len(getattr(domain, field)):
            narrow[field] = (0,)  # taken whatever it says: the algorithm does not read it
    return replace(domain, **narrow)


def _varied(rows: Sequence[LtRow]) -> list[LtRow]:
    """Choose bases in which as many alleles as possible occur: what one refuses another takes.

    Which options go with which tile shapes is the library's secret, so few bases that are much
    alike would drop alleles that it takes beside others.
    """
    left, chosen = list(dict.fromkeys(rows)), list[LtRow]()
    held: set[tuple[int, int]] = set()
    while left and len(chosen) < _BASES:
        best = max(left, key=lambda row: len(set(enumerate(row)) - held))
        left.remove(best)
        chosen.append(best)
        held |= set(enumerate(best))
    return chosen


_PLACES = {
    "tiles": 1,
    "splitks": 2,
    "reductions": 3,
    "swizzles": 4,
    "customs": 5,
    "stages": 6,
    "inners": 7,
    "clusters": 8,
}


_UNDECLARED = ("inners", "clusters")
"""Attributes without a capability: their numbers come from the binding's enumerations."""


def _probe(domain: LtAlgoDomain, rng: np.random.Generator, tail: tuple[int, int]) -> list[int]:
    def drawn(values: Sequence[int]) -> int:
        return int(values[int(rng.integers(len(values)))])

    splitk = drawn(domain.splitks) if rng.random() < 0.5 else 1
    schemes = [value for value in domain.reductions if value]
    return [
        domain.algo,
        drawn(domain.tiles),
        splitk,
        0 if splitk == 1 else drawn(schemes),
        drawn(domain.swizzles),
        drawn(domain.customs),
        drawn(domain.stages),
        0,
        drawn(domain.clusters),
        *tail,
    ]


def _taken(
    domain: LtAlgoDomain, field: str, place: int, bases: Sequence[LtRow], check: Checker
) -> tuple[int, ...]:
    """Return the alleles of one attribute that the library takes in at least one base."""
    values: tuple[int, ...] = getattr(domain, field)
    if len(values) == 1:
        return values
    rows = np.array([row for base in bases for row in _variants(base, place, values, domain)])
    legal = check(rows.astype(np.int64)) == 0
    kept = {int(value) for value in rows[legal][:, place]} | {base[place] for base in bases}
    return tuple(value for value in values if value in kept)


def _variants(
    base: LtRow, place: int, values: Sequence[int], domain: LtAlgoDomain
) -> Iterable[list[Any]]:
    """Yield the base with each value; split-K and its scheme go together."""
    scheme = next((s for s in (2, 1, 4) if s in domain.reductions), 0)
    for value in values:
        row = list(base)
        row[place] = value
        if place == 2:
            row[3] = 0 if value == 1 else (base[3] or scheme)
        elif place == 3:
            row[2] = 1 if value == 0 else max(base[2], 2)
        yield row
