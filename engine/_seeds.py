"""Genomes that a user wants tried first: read from files once, and kept with the campaign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kernelarc.genomes import (
    Allele,
    Genome,
    IllegalGenomeError,
    InputError,
    Space,
    allele_from_json,
    nearest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """What a user's file says.

    Attributes:
        file: Which file, for messages.
        route: None where the file names none.
        alleles: By gene.
    """

    file: str
    route: str | None
    alleles: Mapping[str, Allele]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; a campaign keeps it so, and needs the file no more."""
        return {"file": self.file, "route": self.route, "genome": dict(self.alleles)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild it from what ``to_json`` gave."""
        alleles = {str(gene): allele_from_json(found) for gene, found in value["genome"].items()}
        return cls(file=value["file"], route=value["route"], alleles=alleles)

    def genome(self, spaces: Mapping[str, Space], pins: Mapping[str, str]) -> Genome:
        """Fit it into the space of its route, in which the pinned genes have one allele each.

        Raises:
            InputError: An unknown route, a genome outside the space, or one that a pin excludes.
        """
        route = self.route
        if route is None and len(spaces) == 1:
            route = next(iter(spaces))
        if route is None or route not in spaces:
            known = nearest(route or "", spaces)
            raise InputError(f"seed genome {self.file}: no route {route!r} here{known}")
        space = spaces[route]
        for gene in self.alleles:
            if gene not in space.names:
                close = nearest(gene, space.names)
                raise InputError(f"seed genome {self.file}: no gene {gene!r}{close}")
            if gene in pins and not space.gene(gene).contains(self.alleles[gene]):
                raise InputError(
                    f"seed genome {self.file}: gene {gene!r} is {self.alleles[gene]!r} there, and "
                    f"the pin {gene}={pins[gene]} allows nothing else; drop one of the two"
                )
        try:
            return space.genome(self.alleles)
        except IllegalGenomeError as error:
            raise InputError(f"seed genome {self.file} is outside the space: {error}") from None


def read_seed(path: Path) -> Seed:
    """Read a seed genome file: ``{"route": ..., "genome": {...}}``, or the alleles alone.

    A JSON export is taken too: its first best.

    Raises:
        InputError: The file is missing, not JSON, or not of this form.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"seed genome {path}: is no regular file")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"seed genome {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"seed genome {path}: not JSON ({error})") from None
    if isinstance(content, dict) and isinstance(content.get("bests"), list) and content["bests"]:
        content = content["bests"][0]  # an export: its first best
    if not isinstance(content, dict):
        raise InputError(f"seed genome {path}: an object with a genome is expected")
    alleles = content.get("genome", content)
    if not isinstance(alleles, dict) or not alleles:
        raise InputError(f"seed genome {path}: 'genome' must be an object of gene: allele")
    try:
        parsed = {str(gene): allele_from_json(value) for gene, value in alleles.items()}
    except TypeError as error:
        raise InputError(f"seed genome {path}: {error}") from None
    route = content.get("route") if "genome" in content else None
    return Seed(file=str(path), route=None if route is None else str(route), alleles=parsed)


def stored_seeds(settings: Mapping[str, Any]) -> tuple[Seed, ...]:
    """Return the seeds of a campaign, from its settings in the store.

    A store of an earlier version names the files only: those that are gone were tried already.
    """
    if "seeds" in settings:
        return tuple(Seed.from_json(value) for value in settings["seeds"])
    files = map(Path, settings.get("seed_genome", ()))
    return tuple(read_seed(path) for path in files if path.exists())
