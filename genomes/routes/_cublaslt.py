"""The route ``cublaslt``: one space over the nine attributes of a cuBLASLt algorithm.

Nothing here knows which algorithms, tiles or counts a library version has: the domains come from
what the library said (``LtDomain``). Tiles, stages and clusters are two genes each, so that
a step is a step in the shape and not in the order of an enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import AllowedAlleles, Constraint, PredicateConstraint
from kernelarc.genomes._errors import IllegalGenomeError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._hints import Hint
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy

LT_ROUTE = "cublaslt"
LT_ATTRIBUTES = (
    "algo",
    "tile",
    "splitk",
    "reduction",
    "swizzle",
    "custom",
    "stages",
    "inner",
    "cluster",
)
"""The nine attributes in the order of their numbers in the library's interface."""

LT_TYPES = (
    "int32",
    "uint32",
    "int32",
    "uint32",
    "uint32",
    "uint32",
    "uint32",
    "uint16",
    "uint16",
)
"""Their types: the size is all that the library checks when one is set."""

REDUCTIONS = {"none": 0, "inplace": 1, "compute": 2, "output": 4}
_REDUCTION_NAMES = {value: name for name, value in REDUCTIONS.items()}

ShapePair: TypeAlias = tuple[int, int]
LtRow: TypeAlias = tuple[int, ...]
"""The nine attributes, then the workspace ceiling in bytes, then 1 for an aliased residual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LtAlgoDomain:
    """What one algorithm offers, attribute values as the library numbers them."""

    algo: int
    tiles: tuple[int, ...]
    stages: tuple[int, ...]
    clusters: tuple[int, ...]
    splitks: tuple[int, ...]
    reductions: tuple[int, ...]
    swizzles: tuple[int, ...]
    customs: tuple[int, ...]
    inners: tuple[int, ...]
    out_of_place: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LtDomain:
    """What a library version offers for one job.

    Attributes:
        version: The library's version number.
        tiles: Tile number to rows and columns; (0, number) for one whose shape is not known.
        stages: Stage number to depth in k and count (0 is "as many as fit").
        clusters: Cluster number to rows and columns; (0, 0) is "as the library likes".
        algos: At least one.
        workspace_mib: Ceilings of scratch memory that a genome may choose from.
        aliased: Which residual placements the job allows: in the output's buffer, or apart.
    """

    version: int
    tiles: Mapping[int, ShapePair]
    stages: Mapping[int, ShapePair]
    clusters: Mapping[int, ShapePair]
    algos: tuple[LtAlgoDomain, ...]
    workspace_mib: tuple[int, ...]
    aliased: tuple[bool, ...] = ()


def shape_pair(names: Mapping[int, ShapePair], number: int) -> ShapePair:
    """Return a number's pair; (0, number) where the library knows more than its binding."""
    return names.get(number, (0, number))


class CublasLtSpace:
    """The space of one job, and the way between genomes and attribute rows.

    Attributes:
        domain: What the library offers.
        space: All genomes of it.

    Args:
        domain: As above.
        hint: What the space orders its genomes by.
    """

    def __init__(self, domain: LtDomain, hint: Hint | None = None) -> None:
        self.domain = domain
        self._pairs = {
            kind: {number: shape_pair(names, number) for number in _offered(domain, kind)}
            for kind, names in (
                ("tiles", domain.tiles),
                ("stages", domain.stages),
                ("clusters", domain.clusters),
            )
        }
        self._numbers = {
            kind: {pair: number for number, pair in pairs.items()}
            for kind, pairs in self._pairs.items()
        }
        self._known = {algo.algo: _membership(algo) for algo in domain.algos}
        self.space = Space(LT_ROUTE, self._genes(), self._constraints(), hint=hint)

    def row(self, genome: Mapping[str, Allele]) -> LtRow:
        """Return the attribute row of a genome.

        Raises:
            IllegalGenomeError: A gene is missing or names what the library does not have.
        """
        try:
            return (
                int(str(genome["algo"])),
                self._numbers["tiles"][genome["tile_m"], genome["tile_n"]],  # type: ignore[index]
                int(genome["splitk"]),  # type: ignore[arg-type]
                REDUCTIONS[genome["reduction"]],  # type: ignore[index]
                int(genome["swizzle"]),  # type: ignore[arg-type]
                int(genome["custom"]),  # type: ignore[arg-type]
                self._numbers["stages"][genome["stages_k"], genome["stages_n"]],  # type: ignore[index]
                int(genome["inner"]),  # type: ignore[arg-type]
                self._numbers["clusters"][genome["cluster_m"], genome["cluster_n"]],  # type: ignore[index]
                int(genome["workspace_mib"]) << 20,  # type: ignore[arg-type]
                int(genome.get("aliased", False) is True),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise IllegalGenomeError(
                f"route cublaslt: {error} is not an allele here: the library (version "
                f"{self.domain.version}) does not offer it for this problem"
            ) from None

    def fault(self, row: LtRow) -> str | None:
        """Say which attribute an algorithm does not offer, without asking the library."""
        known = self._known.get(row[0])
        if known is None:
            return f"algorithm {row[0]} is not offered for this problem"
        for place, offered in known:
            if row[place] not in offered:
                return f"algorithm {row[0]} does not offer {LT_ATTRIBUTES[place]} {row[place]}"
        if (row[2] == 1) != (row[3] == 0):
            return "a reduction scheme goes with split-K, and split-K with a scheme"
        return None

    def alleles(self, row: Sequence[int]) -> dict[str, Allele]:
        """Return the alleles of an attribute row (for seeds); they may be outside the space."""
        tile = shape_pair(self.domain.tiles, row[1])
        stages = shape_pair(self.domain.stages, row[6])
        cluster = shape_pair(self.domain.clusters, row[8])
        alleles: dict[str, Allele] = {
            "algo": str(row[0]),
            "tile_m": tile[0],
            "tile_n": tile[1],
            "stages_k": stages[0],
            "stages_n": stages[1],
            "cluster_m": cluster[0],
            "cluster_n": cluster[1],
            "splitk": row[2],
            "reduction": _REDUCTION_NAMES.get(row[3], str(row[3])),
            "swizzle": row[4],
            "custom": row[5],
            "inner": row[7],
            "workspace_mib": row[9] >> 20,
        }
        if self.domain.aliased:
            alleles["aliased"] = bool(row[10])
        return alleles

    def genome(self, row: Sequence[int]) -> Genome | None:
        """Return the genome of an attribute row, or None where the space does not hold it."""
        alleles = self.alleles(row)
        return None if self.space.violation(alleles) else self.space.genome(alleles)

    def _genes(self) -> list[Gene]:
        domain = self.domain
        genes: list[Gene] = [
            _choice("algo", Strategy.LIBRARY, [str(a.algo) for a in domain.algos], "algorithm id"),
            *self._pair_genes("tiles", ("tile_m", "tile_n"), Strategy.TENSOR_CORE),
            *self._pair_genes("stages", ("stages_k", "stages_n"), Strategy.MEMORY),
            *self._pair_genes("clusters", ("cluster_m", "cluster_n"), Strategy.SCHEDULING),
            _choice("splitk", Strategy.REDUCTION, _union(domain, "splitks"), "parts of K"),
            _choice(
                "reduction",
                Strategy.REDUCTION,
                [_REDUCTION_NAMES[value] for value in _union(domain, "reductions")],
                "where partial sums are kept",
            ),
            _choice("swizzle", Strategy.SCHEDULING, _union(domain, "swizzles"), "order of blocks"),
            _choice("custom", Strategy.LIBRARY, _union(domain, "customs"), "the kernel's own"),
            _choice("inner", Strategy.LIBRARY, _union(domain, "inners"), "inner shape number"),
            _choice("workspace_mib", Strategy.LIBRARY, domain.workspace_mib, "scratch ceiling"),
        ]
        if domain.aliased:
            genes.append(_aliased(domain.aliased))
        return genes

    def _pair_genes(
        self, kind: str, names: ShapePair | tuple[str, str], owner: Strategy
    ) -> list[Gene]:
        pairs = self._pairs[kind].values()
        return [
            _choice(str(name), owner, sorted({pair[place] for pair in pairs}), f"{kind}, part of")
            for place, name in enumerate(names)
        ]

    def _constraints(self) -> list[Constraint]:
        constraints: list[Constraint] = [
            self._offers("tiles", ("tile_m", "tile_n")),
            self._offers("stages", ("stages_k", "stages_n")),
            self._offers("clusters", ("cluster_m", "cluster_n")),
            PredicateConstraint(
                _reduction_fits,
                genes=("splitk", "reduction"),
                text="reduction is none exactly when splitk is 1",
            ),
        ]
        for gene, kind in (
            ("splitk", "splitks"),
            ("swizzle", "swizzles"),
            ("custom", "customs"),
            ("inner", "inners"),
        ):
            allowed: dict[Allele, Collection[Allele]] = {
                str(a.algo): getattr(a, kind) for a in self.domain.algos
            }
            constraints.append(AllowedAlleles(gene, "algo", allowed))
        schemes: dict[Allele, Collection[Allele]] = {
            str(a.algo): [_REDUCTION_NAMES[value] for value in a.reductions]
            for a in self.domain.algos
        }
        constraints.append(AllowedAlleles("reduction", "algo", schemes))
        if self.domain.aliased:
            places: dict[Allele, Collection[Allele]] = {
                str(a.algo): (True, False) if a.out_of_place else (True,) for a in self.domain.algos
            }
            constraints.append(AllowedAlleles("aliased", "algo", places))
        return constraints

    def _offers(self, kind: str, genes: tuple[str, str]) -> Constraint:
        pairs = self._pairs[kind]
        offered = frozenset(
            (str(algo.algo), *pairs[number])
            for algo in self.domain.algos
            for number in getattr(algo, kind)
        )
        return PredicateConstraint(
            _table(offered), genes=("algo", *genes), text=f"({', '.join(genes)}) in {kind}[algo]"
        )


def _table(offered: frozenset[tuple[str, int, int]]) -> Callable[[str, int, int], bool]:
    return lambda algo, first, second: (algo, first, second) in offered


def _reduction_fits(splitk: Allele, reduction: Allele) -> bool:
    return (splitk == 1) == (reduction == "none")


def _offered(domain: LtDomain, kind: str) -> list[int]:
    return sorted({number for algo in domain.algos for number in getattr(algo, kind)})


def _union(domain: LtDomain, kind: str) -> list[int]:
    return _offered(domain, kind)


def _choice(name: str, owner: Strategy, options: Sequence[Allele], description: str) -> Gene:
    return Choice(name=name, strategy=owner, options=tuple(options), description=description)


def _aliased(placements: tuple[bool, ...]) -> Gene:
    description = "the residual lies in the output's buffer"
    if set(placements) == {True, False}:
        return Boolean(name="aliased", strategy=Strategy.FUSION, description=description)
    return _choice("aliased", Strategy.FUSION, placements, description)


def _membership(algo: LtAlgoDomain) -> tuple[tuple[int, frozenset[int]], ...]:
    """Return per attribute place what the algorithm offers, the most telling first."""
    kinds = {
        1: algo.tiles,
        6: algo.stages,
        8: algo.clusters,
        5: algo.customs,
        2: algo.splitks,
        3: algo.reductions,
        4: algo.swizzles,
        7: algo.inners,
    }
    return tuple((place, frozenset(values)) for place, values in kinds.items())


def workspace_levels_mib(ceiling_bytes: int) -> tuple[int, ...]:
    """Return the scratch ceilings a genome may choose: none at all, or the job's own.

    More levels would only be many names for the same: a kernel needs what it needs, and what it
    is granted beyond that changes nothing (measured on an H200).
    """
    return tuple(sorted({0, ceiling_bytes >> 20}))
