"""Made-up GPU spaces: listed, with conditions, failures and devices whose optima are related."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench import load_recording
from kernelarc.bench.experiments.held_out_spaces import ROUTE, MadeKernel, make_kernel, write_space
from kernelarc.genomes import Strategy


@pytest.fixture(scope="module")
def kernel() -> MadeKernel:
    return make_kernel(np.random.default_rng(11), "made", 3, legal=(400, 3_000))


def times(kernel: MadeKernel, device: str) -> np.ndarray:
    found = [kernel.time_us(genome, device) for genome in kernel.space.enumerate()]
    return np.array([np.nan if one is None else one for one in found])


def test_a_recording_of_it_replays(kernel: MadeKernel, tmp_path: Path) -> None:
    path = tmp_path / "made.json.gz"
    legal, failed = write_space(path, kernel, "one")
    recording = load_recording(path)
    space = recording.spaces[ROUTE]
    assert space.size().legal == legal == recording.counts.genomes
    assert recording.counts.failed == failed
    assert 0.01 * legal < failed < 0.3 * legal
    assert any(gene.when is not None for gene in space.genes)
    for genome in list(space.enumerate())[:50]:
        answer, time_us = recording.answer(genome), kernel.time_us(genome, "one")
        assert answer is not None
        wanted = np.nan if time_us is None else time_us
        assert answer.objective == pytest.approx(wanted, abs=1e-6, nan_ok=True)


def test_the_devices_are_related_and_not_equal(kernel: MadeKernel) -> None:
    one, two = times(kernel, "one"), times(kernel, "two")
    both = ~np.isnan(one) & ~np.isnan(two)
    assert 0.5 < np.corrcoef(np.log(one[both]), np.log(two[both]))[0, 1] < 0.98
    assert np.nanargmin(one) != np.nanargmin(two)


def test_no_gene_decides_by_itself(kernel: MadeKernel) -> None:
    """Main effects alone leave much unexplained: genes act together."""
    logs = np.log(times(kernel, "one"))
    works = ~np.isnan(logs)
    rows = [kernel.space.encode(genome) for genome in kernel.space.enumerate()]
    encoded = np.column_stack([np.array(rows), np.ones(len(rows))])[works]
    fitted = encoded @ np.linalg.lstsq(encoded, logs[works], rcond=None)[0]
    explained = 1 - np.var(logs[works] - fitted) / np.var(logs[works])
    assert 0.05 < explained < 0.9


def test_strategies_and_seeds() -> None:
    first, again, other = (make_kernel(np.random.default_rng(s), "made", 8) for s in (3, 3, 4))
    assert {gene.strategy for gene in first.space.genes} == set(Strategy)
    assert first.space.genes == again.space.genes
    genomes = list(first.space.enumerate())[:200]
    assert [first.time_us(g, "two") for g in genomes] == [again.time_us(g, "two") for g in genomes]
    assert [first.time_us(g, "two") for g in genomes] != [
        other.time_us(g, "two") for g in list(other.space.enumerate())[:200]
    ]
