"""Route: one way to implement an operator as a C function whose macros are genes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kernelarc.genomes._alleles import Allele, allele_text
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._space import Space
from kernelarc.genomes.routes._host import HostShape

FlagTable: TypeAlias = "Mapping[Allele, tuple[str, ...]]"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def macros_of(gene: str, allele: Allele) -> dict[str, str]:
    """Return the macros that tell C source one allele.

    A number ``n`` at gene ``mc`` is ``MC=n``, a boolean ``MC=1`` or ``MC=0``; a text ``x`` is
    ``MC_x=1`` (the others stay undefined, which ``#if`` reads as 0); the order ``(x, y)`` is
    ``MC_1=x`` and ``MC_2=y``.
    """
    name = gene.upper()
    if isinstance(allele, bool):
        return {name: str(int(allele))}
    if isinstance(allele, str):
        return {f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', allele)}": "1"}
    if isinstance(allele, tuple):
        return {f"{name}_{place}": str(item) for place, item in enumerate(allele, start=1)}
    return {name: allele_text(allele)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One way to implement an operator on the device ``cpu``: a C function with genes as macros.

    The function takes pointers to dense row-major tensors and axes as 64-bit integers, and
    returns 0 or an error number. It must work for every shape that the axes can take, leave no
    thread behind, and write nothing but its outputs.

    Attributes:
        name: The genomes' first gene, unique among the routes of an operator.
        operator: Name of the operator that it implements.
        space: All legal genomes, or a function that makes the space for a workload and a host.
        source: The whole C source.
        symbol: Name of the function in it.
        arguments: Names of tensors and axes in the order of the function's parameters. A tensor
            that takes no part is passed as NULL; a Python scalar as ``const double *``.
        flags: Compiler flags by gene and allele. Every other gene becomes macros
            (``macros_of``).
        base_flags: Compiler flags of every genome; those that make a shared library are added.
    """

    name: str
    operator: str
    space: Space | Callable[[Workload, HostShape], Space]
    source: str
    symbol: str
    arguments: tuple[str, ...]
    flags: Mapping[str, FlagTable] = field(default_factory=dict)
    base_flags: tuple[str, ...] = ("-O2", "-march=native")

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.symbol):
            raise InputError(f"route {self.name!r}: {self.symbol!r} is no name of a C function")
        if isinstance(self.space, Space):
            self._check_flags(self.space)

    def _check_flags(self, space: Space) -> None:
        for name, table in self.flags.items():
            if name not in space.names:
                raise InputError(
                    f"route {self.name!r}: flags of the gene {name!r}, which its space does not "
                    f"have{nearest(name, space.names)}"
                )
            missing = [v for v in space.gene(name).values() if v not in table]
            if missing:
                raise InputError(
                    f"route {self.name!r}: gene {name!r} has no flags for its allele "
                    f"{missing[0]!r}; give () for none"
                )

    def space_for(self, workload: Workload, host: HostShape) -> Space:
        """Return the space for one workload on one host."""
        return self.space if isinstance(self.space, Space) else self.space(workload, host)

    def macros(self, genome: Genome) -> dict[str, str]:
        """Return the macros of a genome by name, in the order of its genes."""
        found: dict[str, str] = {}
        for gene, allele in genome.items():
            if gene not in self.flags:
                found.update(macros_of(gene, allele))
        return found

    def options(self, genome: Genome) -> tuple[str, ...]:
        """Return the compiler's options for a genome: flags of genes, then ``-D`` for macros."""
        flags = [
            flag
            for gene, table in self.flags.items()
            if gene in genome
            for flag in table[genome[gene]]
        ]
        macros = [f"-D{name}={text}" for name, text in self.macros(genome).items()]
        return (*self.base_flags, *flags, *macros)

    def check_against(self, operator: Operator) -> None:
        """Refuse arguments that the operator does not have, and outputs that are not passed.

        Raises:
            InputError: Says which.
        """
        outputs = {spec.name for spec in operator.outputs}
        known = {spec.name for spec in operator.inputs} | outputs | set(operator.axes)
        unknown = [name for name in self.arguments if name not in known]
        if unknown:
            raise InputError(
                f"route {self.name!r}: argument {unknown[0]!r} is neither tensor nor axis of "
                f"{operator.name!r} ({', '.join(sorted(known))})"
            )
        missing = sorted(outputs - set(self.arguments))
        if missing:
            raise InputError(f"route {self.name!r}: output {missing[0]!r} is not an argument")
