"""Giving strategies to genes that carry none: by kind and domain, with the name as a hint.

Every gene is scored for every strategy by what its domain looks like; a name that says something
adds a little. Genes are then dealt out, the clearest first, and a strategy becomes less attractive
with every gene it already owns, so that several strategies are awake wherever there are several
genes, whatever the genes are called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Permutation
from kernelarc.genomes._strategies import Strategy

if TYPE_CHECKING:
    from kernelarc.genomes._space import Space

CROWDING = 0.15
HINT = 0.1
LISTED_LIMIT = 4096

_TENSOR, _MEMORY, _FUSION = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.FUSION
_PRECISION, _REDUCTION = Strategy.PRECISION, Strategy.REDUCTION
_SCHEDULING, _LIBRARY = Strategy.SCHEDULING, Strategy.LIBRARY

# How well a kind of domain fits a strategy. Blackwell is never given by rule: its genes exist
# only where a route declares them, and its island sleeps on every other device.
_FITS: Mapping[str, Mapping[Strategy, float]] = {
    "order": {_SCHEDULING: 1.0},
    "switch": {_FUSION: 1.0, _MEMORY: 0.8, _PRECISION: 0.75, _SCHEDULING: 0.7, _REDUCTION: 0.6},
    "number format": {_PRECISION: 1.0, _LIBRARY: 0.6},
    "words": {_SCHEDULING: 0.9, _LIBRARY: 0.8, _FUSION: 0.7, _PRECISION: 0.6, _MEMORY: 0.5},
    "fractions": {_PRECISION: 0.9, _SCHEDULING: 0.8, _MEMORY: 0.7, _REDUCTION: 0.6},
    "wide powers": {_TENSOR: 1.0, _SCHEDULING: 0.75, _MEMORY: 0.7, _REDUCTION: 0.55},
    "narrow powers": {_MEMORY: 1.0, _TENSOR: 0.8, _REDUCTION: 0.75, _SCHEDULING: 0.6},
    "wide steps": {_TENSOR: 0.9, _SCHEDULING: 0.85, _MEMORY: 0.7, _REDUCTION: 0.6},
    "narrow steps": {_MEMORY: 0.9, _TENSOR: 0.85, _REDUCTION: 0.8, _SCHEDULING: 0.7},
    "variants": {_SCHEDULING: 0.9, _FUSION: 0.8, _REDUCTION: 0.7, _MEMORY: 0.6},
}

_HINTS: Mapping[Strategy, str] = {
    _LIBRARY: r"algo|heuristic|workspace|library|custom",
    _TENSOR: r"tile|block|micro|mma|warp|mwg|nwg|kwg|mdim|ndim|^m[rc]$|^n[rc]$|^kc$",
    _MEMORY: (
        r"stage|evict|modifier|descriptor|tma|vec|vw|pad|pack|prefetch|cache|shmem|smem|cmem|"
        r"swizzle|stride|align|read_only"
    ),
    _FUSION: r"fuse|fusion|alias|epilogue|prologue|residual",
    _PRECISION: r"precision|accum|fast|math|float|dtype|flag|rsqrt|contract",
    _REDUCTION: r"split|stream_?k|reduc|atomic|pass",
    _SCHEDULING: (
        r"order|raster|persist|group|flatten|maxnreg|thread|cta|loop|sched|unroll|launch|method|"
        r"chunk"
    ),
}

_FORMATS = re.compile(r"float|fp\d|bf16|tf32|half|double|int8|fast|-f|-o\d", re.IGNORECASE)


def assign_strategies(space: Space, overrides: Mapping[str, Strategy | str] | None = None) -> Space:
    """Return the space with a strategy on every gene.

    Args:
        space: Genes that carry a strategy keep it.
        overrides: Strategy by gene name, from the user; it wins over everything.

    Raises:
        InputError: An override names an unknown gene or strategy; the message says the nearest.
    """
    chosen = {gene.name: gene.strategy for gene in space.genes if gene.strategy is not None}
    for name, strategy in (overrides or {}).items():
        chosen[space.gene(name).name] = _strategy(strategy)
    _deal(space.genes, chosen)
    return space.relabelled(chosen)


def _strategy(name: Strategy | str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError:
        known = [strategy.value for strategy in Strategy]
        raise InputError(f"there is no strategy {name!r}{nearest(str(name), known)}") from None


def _deal(genes: tuple[Gene, ...], chosen: dict[str, Strategy]) -> None:
    """Give every gene without a strategy one, the clearest cases first."""
    free = [gene for gene in genes if gene.cardinality > 1]
    most = max(1, (len(free) + 1) // 2)
    owned = Counter(chosen[gene.name] for gene in free if gene.name in chosen)
    scores = {gene.name: _scores(gene) for gene in genes if gene.name not in chosen}
    waiting = [gene for gene in genes if gene.name in scores]
    waiting.sort(key=lambda gene: (gene.cardinality == 1, -max(scores[gene.name].values())))
    for gene in waiting:
        fits = scores[gene.name]
        # A gene with one allele gives an island nothing to do, so it must not wake one.
        open_ones = [s for s in fits if (owned[s] < most if gene.cardinality > 1 else owned[s])]
        open_ones = open_ones or list(fits)
        chosen[gene.name] = max(open_ones, key=lambda s: fits[s] - CROWDING * owned[s])
        owned[chosen[gene.name]] += gene.cardinality > 1


def _scores(gene: Gene) -> dict[Strategy, float]:
    kind = _FITS[kind_of_domain(gene)]
    name = gene.name.lower()
    return {
        strategy: kind.get(strategy, 0.3) + (HINT if re.search(hint, name) else 0.0)
        for strategy, hint in _HINTS.items()
    }


def kind_of_domain(gene: Gene) -> str:
    """Say what a gene's domain looks like, in a word or two; its name plays no part."""
    if isinstance(gene, Permutation):
        return "order"
    if gene.cardinality > LISTED_LIMIT:
        return "wide steps"
    values = gene.values()
    if all(isinstance(value, bool) or value in (0, 1) for value in values):
        return "switch"
    if any(not isinstance(value, int | float) for value in values):
        formats = any(_FORMATS.search(str(value)) for value in values)
        return "number format" if formats else "words"
    return _kind_of_numbers(values)


def _kind_of_numbers(values: tuple[Allele, ...]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if any(not float(number).is_integer() for number in numbers):
        return "fractions"
    whole = [int(number) for number in numbers]
    wide = max(whole) > 16
    if min(whole) >= 1 and all(number & (number - 1) == 0 for number in whole):
        return "wide powers" if wide else "narrow powers"
    if min(whole) <= 0 and not wide:
        return "variants"
    return "wide steps" if wide else "narrow steps"
