"""Made-up kernels: legal recordings with interactions, cliffs and failures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from kernelarc.bench import load_recording
from kernelarc.bench.experiments.generated_spaces import make_kernel, rows_of


def test_a_made_up_kernel_replays(tmp_path: Path) -> None:
    kernel = make_kernel(np.random.default_rng(5))
    rows = rows_of(kernel, "x")
    document = {
        "kernel_name": "x",
        "tune_params_keys": list(kernel.domains),
        "tune_params": {gene: list(values) for gene, values in kernel.domains.items()},
        "restrictions": [kernel.legal],
        "cache": rows,
    }
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    recording = load_recording(path)
    (space,) = recording.spaces.values()
    assert space.size().legal == len(rows) == recording.counts.genomes
    assert 0.01 * len(rows) < recording.counts.failed < 0.5 * len(rows)
    times = np.array([row["time"] for row in rows.values() if not isinstance(row["time"], str)])
    assert len(set(times.tolist())) > 0.9 * len(times)
    assert np.median(times) > 1.2 * times.min()


def test_equal_seeds_give_equal_kernels() -> None:
    first, again, other = (make_kernel(np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert rows_of(first, "x") == rows_of(again, "x")
    assert (first.domains, first.legal) != (other.domains, other.legal)
