"""Flat tables for tools that know no conditional genes and no orders: names, domains, cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelarc.genomes import Allele, Genome

Cell: TypeAlias = "bool | int | float | str"


def cell_of(allele: Allele) -> Cell:
    """Return an allele as other tools can hold it: an order becomes text like ``m>n>k``."""
    if isinstance(allele, tuple):
        return ">".join(str(cell_of(item)) for item in allele)
    return allele


@dataclass(frozen=True, slots=True)
class FlatTable:
    """All genomes over one list of columns.

    Attributes:
        names: The gene names in the order first seen; ``route`` before them where there are
            several routes.
        domains: Per name the observed cells, numbers ascending.
    """

    names: tuple[str, ...]
    domains: dict[str, tuple[Cell, ...]]
    route_column: str | None

    def cells(self, genome: Genome) -> dict[str, Cell]:
        """Return a genome's cells; a gene that is switched off shows its domain's first cell."""
        found: dict[str, Cell] = {}
        for name in self.names:
            if name == self.route_column:
                found[name] = genome.route
            else:
                found[name] = cell_of(genome[name]) if name in genome else self.domains[name][0]
        return found

    def active_cells(self, genome: Genome) -> dict[str, Cell]:
        """Return the cells of the genes that are switched on."""
        everything = self.cells(genome)
        return {n: c for n, c in everything.items() if n in genome or n == self.route_column}


def flat_table(genomes: Sequence[Genome]) -> FlatTable:
    """Return the table that holds these genomes."""
    seen: dict[str, dict[tuple[type, Cell], Cell]] = {}
    for genome in genomes:
        for name, allele in genome.items():
            cell = cell_of(allele)
            seen.setdefault(name, {})[type(cell), cell] = cell
    domains = {name: _sorted(tuple(cells.values())) for name, cells in seen.items()}
    routes = tuple(sorted({genome.route for genome in genomes}))
    if len(routes) < 2:
        return FlatTable(tuple(domains), domains, None)
    column = "route"
    while column in domains:
        column += "_"
    return FlatTable((column, *domains), {column: routes, **domains}, column)


def _sorted(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    numbers = [c for c in cells if isinstance(c, int | float)]
    texts = [c for c in cells if isinstance(c, str)]
    return (*sorted(numbers), *sorted(texts))
