"""What a recording answers, held compactly: one lookup per genome, a few numbers per row."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Allele, Gene, Genome, Status

_STATUSES = tuple(Status)
_STATUS_PLACE = {status: place for place, status in enumerate(_STATUSES)}
_ABSENT = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One row: the outcome of one genome.

    Attributes:
        objective: In the recording's unit; NaN exactly when the status is not OK.
        cost_s: What it cost where it was recorded: compile, check and device seconds.
        samples: Raw timed samples, where the recording has them.
        failure: Stable failure class; None exactly when the status is OK.
        properties: Numbers that were reported of it, where the recording has them.
    """

    status: Status
    objective: float = math.nan
    cost_s: float = 0.0
    samples: tuple[float, ...] = ()
    failure: str | None = None
    message: str = ""
    properties: Mapping[str, int] = field(default_factory=dict)

    def agrees(self, other: Answer) -> bool:
        """Tell whether two rows of one genome say the same (costs may differ)."""
        same = self.objective == other.objective or (
            math.isnan(self.objective) and math.isnan(other.objective)
        )
        return same and self.status is other.status and self.failure == other.failure


class Answers:
    """The rows of one route, by genome. Of several rows for one genome the last one wins.

    Attributes:
        duplicate: Rows that repeat an earlier genome.
        contradictory: Those among them that say something else than the row they replace.
    """

    def __init__(self, genes: tuple[str, ...]) -> None:
        self.duplicate = 0
        self.contradictory = 0
        self._genes = genes
        self._places: list[dict[tuple[type, Allele], int]] = [{} for _ in genes]
        self._pack = Struct(f"<{len(genes)}I").pack
        self._row_of: dict[bytes, int] = {}
        self._status = array("B")
        self._objective = array("d")
        self._cost_s = array("d")
        self._reason = array("L")
        self._reasons: list[tuple[str | None, str]] = []
        self._reason_place: dict[tuple[str | None, str], int] = {}
        self._samples = array("d")
        self._samples_end = array("Q")
        self._speaks_for: dict[int, int] = {}
        self._properties: dict[int, Mapping[str, int]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_pack"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._pack = Struct(f"<{len(self._genes)}I").pack

    def __len__(self) -> int:
        return len(self._row_of)

    def indices(self, genes: Sequence[Gene]) -> NDArray[np.int32]:
        """Return where every genome's alleles stand in the genes' domains.

        Shape (genomes, genes), in the order first recorded; -1 where a gene is switched off.
        """
        shape = (len(self._row_of), len(self._genes))
        places = np.frombuffer(b"".join(self._row_of), dtype="<u4").reshape(shape)
        found = np.empty(shape, dtype=np.int32)
        for column, (gene, known) in enumerate(zip(genes, self._places, strict=True)):
            index_of = [-1, *(gene.index(allele) for _, allele in known)]  # 0 is absent
            found[:, column] = np.array(index_of, dtype=np.int32)[places[:, column]]
        return found

    def alleles(self, gene: int) -> tuple[Allele, ...]:
        """Return the alleles that were recorded of the gene at this position."""
        return tuple(allele for _, allele in self._places[gene])

    def place(self, gene: int, allele: Allele) -> int:
        """Return the number that stands for an allele of the gene at this position."""
        known = self._places[gene]
        return known.setdefault((type(allele), allele), len(known) + 1)

    def add(self, alleles: Mapping[str, Allele], answer: Answer) -> None:
        """Add a row for the active ``alleles``."""
        self.add_at(
            [
                self.place(i, alleles[gene]) if gene in alleles else _ABSENT
                for i, gene in enumerate(self._genes)
            ],
            answer,
        )

    def add_at(self, places: Sequence[int], answer: Answer) -> None:
        """Add a row for a genome that is given as one ``place`` per gene."""
        key = self._pack(*places)
        earlier = self._row_of.get(key)
        if earlier is not None:
            self.duplicate += 1
            self.contradictory += not answer.agrees(self._answer(earlier))
        self._row_of[key] = len(self._status)
        if answer.properties:
            self._properties[len(self._status)] = answer.properties
        self._status.append(_STATUS_PLACE[answer.status])
        self._objective.append(answer.objective)
        self._cost_s.append(answer.cost_s)
        self._reason.append(self._place_of_reason(answer.failure, answer.message))
        self._samples.extend(answer.samples)
        self._samples_end.append(len(self._samples))

    def find(self, alleles: Mapping[str, Allele]) -> Answer | None:
        """Return the row of a genome, or None where nothing was recorded."""
        row = self._find_row(alleles)
        return None if row is None else self._answer(row)

    def __contains__(self, alleles: Mapping[str, Allele]) -> bool:
        return self._find_row(alleles) is not None

    def count(self, status: Status) -> int:
        """Return how many genomes ended so."""
        place = _STATUS_PLACE[status]
        return sum(1 for row in self._row_of.values() if self._status[row] == place)

    def permute(self, rng: np.random.Generator) -> None:
        """Exchange the measured objectives among the OK rows at random; failures stay."""
        ok = _STATUS_PLACE[Status.OK]
        rows = [row for row in self._row_of.values() if self._status[row] == ok]
        drawn = rng.permutation(len(rows))
        self._speaks_for = {row: rows[int(other)] for row, other in zip(rows, drawn, strict=True)}

    def genomes(self) -> Iterator[dict[str, Allele]]:
        """Yield the active alleles of every recorded genome, in the order first recorded."""
        known = [{place: allele for (_, allele), place in d.items()} for d in self._places]
        width = Struct(f"<{len(self._genes)}I")
        for key in self._row_of:
            yield {
                gene: known[i][place]
                for i, (gene, place) in enumerate(zip(self._genes, width.unpack(key), strict=True))
                if place != _ABSENT
            }

    def _place_of_reason(self, failure: str | None, message: str) -> int:
        reason = (failure, message)
        place = self._reason_place.setdefault(reason, len(self._reasons))
        if place == len(self._reasons):
            self._reasons.append(reason)
        return place

    def _find_row(self, alleles: Mapping[str, Allele]) -> int | None:
        if isinstance(alleles, Genome):  # a plain dictionary answers faster
            alleles = alleles.alleles()
        places = []
        for gene, known in zip(self._genes, self._places, strict=True):
            allele = alleles.get(gene)
            place = _ABSENT if allele is None else known.get((type(allele), allele))
            if place is None:
                return None
            places.append(place)
        return self._row_of.get(self._pack(*places))

    def _answer(self, row: int) -> Answer:
        measured = self._speaks_for.get(row, row)
        start = self._samples_end[measured - 1] if measured else 0
        failure, message = self._reasons[self._reason[row]]
        return Answer(
            status=_STATUSES[self._status[row]],
            objective=self._objective[measured],
            cost_s=self._cost_s[row],
            samples=tuple(self._samples[start : self._samples_end[measured]]),
            failure=failure,
            message=message,
            properties=self._properties.get(row, {}),
        )
