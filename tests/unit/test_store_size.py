"""The size budget, extrapolated from a store that is made quickly; and bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.unit.store_records import HERE, LARGE, SPEC, many

from kernelarc.genomes import Genome, Judged
from kernelarc.storage import open_reader, open_writer

BUDGET_BYTES = 120e6
BUDGET_EVALUATIONS = 100_000
MADE = 4_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("size") / "kernelarc.db"
    entries = many(MADE, samples=20, rng=np.random.default_rng(3))
    with open_writer(path, create=True, synchronous="NORMAL") as writer:
        campaign = writer.begin(SPEC, HERE)
        for start in range(0, MADE, 64):
            writer.append(campaign, entries[start : min(start + 64, MADE)])
            writer.append(campaign, entries[MADE + start : MADE + min(start + 64, MADE)])
    return path


def test_a_hundred_thousand_evaluations_fit_the_budget(store: Path) -> None:
    extrapolated = store.stat().st_size / MADE * BUDGET_EVALUATIONS
    assert extrapolated < 0.8 * BUDGET_BYTES, f"{extrapolated / 1e6:.0f} MB"


def test_the_log_is_streamed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at once is a page, not the log."""
    monkeypatch.setattr("kernelarc.storage._log.PAGE", 128)
    with open_reader(store) as reader:
        tracemalloc.start()
        try:
            assert sum(1 for _ in reader.log(1)) == 2 * MADE
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # Candidates stay until their evaluation has passed, 64 of them here; the decoder keeps a
    # bounded number of genomes. The whole log as records takes more than ten times as much.
    assert peak < 8e6, f"{peak / 1e6:.1f} MB"


def test_genomes_are_parsed_when_they_are_looked_at(store: Path) -> None:
    with open_reader(store) as reader:
        judged = next(entry for _, entry in reader.log(1) if isinstance(entry, Judged))
        genome = judged.evaluation.candidate.genome
        with pytest.raises(AttributeError):
            object.__getattribute__(genome, "_alleles")
        assert genome["loop_order"] == ("i", "k", "j")
        assert object.__getattribute__(genome, "_alleles")["loop_order"] == ("i", "k", "j")
        again = Genome(genome.route, genome.alleles())
        assert (again, hash(again)) == (genome, hash(genome))
        known = next(iter(reader.known(HERE.fingerprint, LARGE.fingerprint)))
        assert known.genome == genome
