"""Whether the genes change anything: a search on nothing must end, and say so."""

from __future__ import annotations

import numpy as np

from kernelarc.engine._arena import Arena

# Evaluations before anything is said. Twice an island's usual plateau.
_LEAST = 100
# Spread of medians between candidates that is called nothing on a noisy device.
_NOISE = 1.02


def without_effect(arena: Arena, *, deterministic: bool) -> bool:
    """Tell whether the genes of this workload show no effect on the objective.

    On a deterministic device all objectives must be equal. Elsewhere, after 100 evaluations, no
    claim may stand beside the start, and either all were built to the very same binary, or the
    middle four fifths of the candidates' medians must lie as close together as the samples of one
    genome do.
    """
    objectives = arena.objectives
    if len(objectives) < _LEAST or len(arena.ledger.claims) > 1:
        return False
    if deterministic:
        # Asked every round: the first that differs is the answer, however many there are.
        first = next(iter(objectives.values()))
        return all(objective == first for objective in objectives.values())
    if _one_binary(arena):
        return True
    values = np.fromiter(objectives.values(), dtype=np.float64)
    low, high = np.quantile(values, [0.1, 0.9])
    return bool(high / low <= max(_NOISE, _sample_spread(arena)))


def _one_binary(arena: Arena) -> bool:
    """Tell whether the newest measured candidates are one binary: no noise can blur that."""
    timed = [
        j.evaluation for j in arena.view.recent(_LEAST) if j.evaluation.measurement is not None
    ]
    binaries = {evaluation.properties.get("binary") for evaluation in timed}
    return len(binaries) == 1 and None not in binaries


def _sample_spread(arena: Arena) -> float:
    """Return the typical ratio between the 90th and 10th percentile of one genome's samples."""
    spreads = []
    for judged in arena.view.recent(32):
        measurement = judged.evaluation.measurement
        if measurement is not None and len(measurement.samples) >= 5:
            low, high = np.quantile(measurement.samples, [0.1, 0.9])
            spreads.append(high / low)
    return float(np.median(spreads)) if spreads else 1.0
