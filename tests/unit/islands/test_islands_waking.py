"""Drafts that switch genes on: what wakes is what is known to be good there."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kernelarc.genomes import Allele, Choice, Gene, Genome, Space, Strategy, When
from kernelarc.islands._population import Individual
from kernelarc.islands._terrain import survey
from kernelarc.islands._waking import legal

KERNEL, LIBRARY = When("by", ("kernel",)), When("by", ("library",))
USUAL = {"tile": 64, "stages": 3}


def space(*, usual: bool = True) -> Space:
    """A product by a kernel with two genes, or by the library with one."""
    said: dict[str, Allele] = dict(USUAL) if usual else {}
    genes: list[Gene] = [
        Choice(name="by", options=("kernel", "library"), strategy=Strategy.LIBRARY),
        *(
            Choice(name=name, options=options, when=KERNEL, usual=said.get(name),
                   strategy=Strategy.MEMORY)
            for name, options in (("tile", (16, 32, 64, 128)), ("stages", (2, 3, 4, 5)))
        ),
        Choice(name="choice", options=tuple(range(8)), when=LIBRARY, strategy=Strategy.LIBRARY),
        Choice(name="warps", options=(4, 8), strategy=Strategy.MEMORY),
    ]  # fmt: skip
    return Space("r", genes)


def woken(where: Space, known: list[Individual]) -> Counter[tuple[Allele, Allele]]:
    """Return what a kernel's genes hold in 400 drafts that take a product from the library."""
    terrain = survey(where, Strategy.LIBRARY)
    library = where.genome({"by": "library", "choice": 5, "warps": 8})
    found: Counter[tuple[Allele, Allele]] = Counter()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        genome = legal(library.replace({"by": "kernel"}), terrain, known, rng)
        assert genome is not None and genome["warps"] == 8 and "choice" not in genome
        found[genome["tile"], genome["stages"]] += 1
    return found


def individual(where: Space, score: float, **alleles: Allele) -> Individual:
    return Individual(where.genome({"by": "kernel", "warps": 4, **alleles}), score)


def test_what_wakes_is_the_best_ones_that_have_it() -> None:
    where = space()
    best = where.genome({"by": "library", "choice": 0, "warps": 8})
    known = [
        Individual(best, 3.0),
        individual(where, 2.0, tile=128, stages=5),
        individual(where, 1.0, tile=16, stages=2),
    ]
    counts = woken(where, known)
    assert 260 < counts[128, 5] < 340, "some are drawn"
    assert len(counts) == 16


def test_what_nobody_has_is_the_usual_one() -> None:
    elsewhere = Genome("s", {"by": "kernel", "tile": 16, "stages": 2, "warps": 4})
    for known in ([], [Individual(elsewhere, 9.0)]):
        assert 260 < woken(space(), known)[64, 3] < 340


def test_without_either_it_is_drawn() -> None:
    counts = woken(space(usual=False), [])
    assert len(counts) == 16 and max(counts.values()) < 50


@pytest.mark.parametrize("by", ["kernel", "library"])
def test_a_draft_that_wakes_nothing_stays_as_it_is(by: str) -> None:
    where = space()
    rest: dict[str, Allele] = {"tile": 16, "stages": 2} if by == "kernel" else {"choice": 3}
    genome = where.genome({"by": by, "warps": 4, **rest})
    known = [individual(where, 1.0, tile=128, stages=5)]
    rng = np.random.default_rng(0)
    made = legal(genome.replace({"warps": 8}), survey(where, Strategy.MEMORY), known, rng)
    assert made == where.genome({**genome.alleles(), "warps": 8})


def test_neighbours_hold_the_usual_alleles() -> None:
    start = space().genome({"by": "library", "choice": 5, "warps": 8})
    (step,) = (g for g in space().neighbours(start) if g["by"] == "kernel")
    assert step.alleles() == {"by": "kernel", "warps": 8, **USUAL}
    (first,) = (g for g in space(usual=False).neighbours(start) if g["by"] == "kernel")
    assert first.alleles() == {"by": "kernel", "warps": 8, "tile": 16, "stages": 2}
