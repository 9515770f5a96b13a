"""A recorded space as all methods of a comparison see it: legal genomes and what they gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench import ReplayDevice
from kernelarc.genomes import Allele, Gene, Genome, InputError, Status

_SUFFIXES = (".json", ".json.gz")
# A table lists every legal genome; larger spaces are for searching, not for comparing.
_MOST_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """One recorded space, listed.

    Attributes:
        name: The file's name without its suffix.
        kernel: The recorded kernel: spaces of one kernel are not independent problems.
        device: Answers our own search.
        genes: The genes, in the space's order.
        rows: Place of every gene's allele in its domain, shape (genomes, genes), -1 where the gene
            is switched off.
        objectives: What each genome gave, shape (genomes,); NaN where it failed.
        digest: Hash of the file's content and of what was changed on it.
    """

    name: str
    kernel: str
    device: ReplayDevice
    genes: tuple[Gene, ...]
    rows: NDArray[np.int32]
    objectives: NDArray[np.float64]
    digest: str

    @property
    def optimum(self) -> float:
        """The lowest objective."""
        return float(np.nanmin(self.objectives))

    @property
    def worst(self) -> float:
        """The highest objective: what a search has found before its first working genome."""
        return float(np.nanmax(self.objectives))


def space_files(folder: Path) -> list[Path]:
    """Return the recorded spaces of a folder, by name.

    Raises:
        InputError: There is no such folder, or it holds none.
    """
    if not folder.is_dir():
        raise InputError(f"--spaces {folder}: no such folder")
    found = sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(_SUFFIXES))
    if not found:
        raise InputError(f"--spaces {folder}: holds no recorded space (.json or .json.gz)")
    return found


def load_table(path: Path, *, permute_seed: int | None = None) -> Table:
    """Read a recorded space.

    Args:
        path: The file.
        permute_seed: As for ``ReplayDevice``: a table that tells nothing, for control.

    Raises:
        InputError: It is none, or one that cannot be compared on; the message says why.
    """
    device = ReplayDevice(path, permute_seed=permute_seed)
    recording = device.recording
    if len(recording.spaces) != 1:
        names = ", ".join(recording.spaces)
        raise InputError(f"{path}: comparing needs a space of one route, this has {names}")
    (space,) = recording.spaces.values()
    if space.size().legal > _MOST_ROWS:
        raise InputError(f"{path}: more than {_MOST_ROWS} legal genomes cannot be listed")
    genomes = [genome for genome in space.enumerate() if recording.answer(genome) is not None]
    objectives = np.array([_objective(device, genome) for genome in genomes], dtype=np.float64)
    if not np.isfinite(objectives).any():
        raise InputError(f"{path}: no genome of it works, so there is no optimum to compare with")
    identity = sorted(device.environment().identity.items())
    return Table(
        name=path.name.removesuffix(".gz").removesuffix(".json"),
        kernel=recording.operator.name,
        device=device,
        genes=space.genes,
        rows=_places(space.genes, genomes),
        objectives=objectives,
        digest=sha256(repr(identity).encode()).hexdigest()[:16],
    )


def _objective(device: ReplayDevice, genome: Genome) -> float:
    answer = device.recording.answer(genome)
    return answer.objective if answer and answer.status is Status.OK else math.nan


def _places(genes: Sequence[Gene], genomes: Sequence[Genome]) -> NDArray[np.int32]:
    found = np.full((len(genomes), len(genes)), -1, dtype=np.int32)
    for column, gene in enumerate(genes):
        known: dict[tuple[type, Allele], int] = {}
        for row, genome in enumerate(genomes):
            if gene.name in genome:
                allele = genome[gene.name]
                key = (type(allele), allele)
                if key not in known:
                    known[key] = gene.index(allele)
                found[row, column] = known[key]
    return found
