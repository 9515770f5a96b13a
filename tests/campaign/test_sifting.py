"""Campaigns on a device that refuses much: islands draft, one check sifts, islands choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kernelarc.bench.experiments._formula import FormulaDevice, FormulaSession, ridge
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import Candidate, Genome, Problem, Workload
from kernelarc.storage import open_reader

REFUSES = 3  # two genomes of three


class RefusingSession(FormulaSession):
    """Takes one genome of three, by its fingerprint; counts how many it was asked about."""

    sifts = True

    def __init__(self, device: FormulaDevice, problem: Problem) -> None:
        super().__init__(device, problem)
        self.lag = 1  # as of a device that works while islands are asked

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Refuse two of three."""
        return [
            "refused" if int(genome.fingerprint[:8], 16) % REFUSES else None for genome in genomes
        ]


class RefusingDevice(FormulaDevice):
    """Opens refusing sessions."""

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> FormulaSession:
        """Open one."""
        return RefusingSession(self, problem)


def search(store: Path, *, genes: int, alleles: int, budget: int) -> list[Candidate]:
    """Run a campaign; return what it handed out."""
    device = RefusingDevice(*ridge(genes=genes, alleles=alleles), samples=3)
    settings = CampaignSettings(target="formula", budget=budget, seed=4, store=str(store))
    result = run(settings, device=device, problem=device.problem())
    with open_reader(str(store)) as reader:
        found = [entry for _, entry in reader.log(1) if isinstance(entry, Candidate)]
    assert len(found) == result.evaluations.unique
    return found


def test_rounds_are_full_and_no_model_proposes(tmp_path: Path) -> None:
    found = search(tmp_path / "s.db", genes=6, alleles=6, budget=480)
    assert set(Counter(candidate.round for candidate in found).values()) == {8}
    assert {c.mutation for c in found if c.mutation.startswith("model.")} == set()
    assert all(int(c.genome.fingerprint[:8], 16) % REFUSES == 0 for c in found)
    assert len({candidate.genome.fingerprint for candidate in found}) == 480


def test_what_one_island_lacks_is_chosen_from_others_drafts(tmp_path: Path) -> None:
    found = search(tmp_path / "s.db", genes=6, alleles=6, budget=480)
    drawn_by_the_engine = sum(candidate.island == "engine" for candidate in found)
    assert drawn_by_the_engine < len(found) / 10


def test_all_that_is_taken_of_a_small_space_is_found(tmp_path: Path) -> None:
    space, _ = ridge(genes=4, alleles=4)
    taken = {g.fingerprint for g in space.enumerate() if int(g.fingerprint[:8], 16) % REFUSES == 0}
    found = search(tmp_path / "s.db", genes=4, alleles=4, budget=1000)
    assert {candidate.genome.fingerprint for candidate in found} == taken


def test_equal_seeds_hand_out_the_same(tmp_path: Path) -> None:
    first = search(tmp_path / "a.db", genes=6, alleles=6, budget=160)
    assert search(tmp_path / "b.db", genes=6, alleles=6, budget=160) == first
