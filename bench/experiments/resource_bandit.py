"""What the bandit of register caps and pipeline depths gains, on spaces that a GPU has measured.

First record a small space with both genes, all of it, on a GPU; then, on any machine, search the
recordings with and without the bandit, at equal budgets:

    python -m kernelarc.bench.experiments.resource_bandit RECORDING... [-o OUT.json]

Every campaign has a seed of its own and a store of its own. Where there are several recordings,
each is searched also in a store that holds a campaign on the one before it, made in the same way:
the bandit then begins with its lessons. Figures, by way and budget: the best found over the best
there is, geometric mean over recordings and seeds; with the bandit over without, by pairs of equal
seeds, with a 95 % interval and how often exchanged signs give as large a difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kernelarc.bench import ReplayDevice
from kernelarc.bench.experiments._following import Follower
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import KernelarcError, Status

BANDIT = ", bandit"
WAYS: Mapping[str, Mapping[str, Any]] = {
    "mutation": {"models": False, "resources": False},
    f"mutation{BANDIT}": {"models": False, "resources": True},
    "models": {"models": True, "resources": False},
    f"models{BANDIT}": {"models": True, "resources": True},
}
_EXCHANGES, _RESAMPLES, _CHUNK, _STREAM = 20_000, 4_000, 1_000, 20261201
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Task:
    """One campaign.

    Attributes:
        path: The recording that is searched.
        teacher: The one that is searched before it in the same store, if any.
        way: A name of ``WAYS``.
        seed: Of every campaign.
        budget: Unique evaluations of every campaign.
        starts: Whether it begins with the genomes that the device began with.
    """

    path: Path
    teacher: Path | None
    way: str
    seed: int
    budget: int
    starts: bool


def play(task: Task) -> list[float]:
    """Run a campaign; return the best over the optimum after 1, 2, ... evaluations."""
    with threadpool_limits(1), tempfile.TemporaryDirectory(prefix="kernelarc-bandit-") as folder:
        store, curve = str(Path(folder) / "campaign.db"), list[float]()
        for path in filter(None, (task.teacher, task.path)):
            device, follower = _device(path, task.starts), Follower()
            settings = CampaignSettings(
                target=str(path), budget=task.budget, seed=task.seed, store=store, **WAYS[task.way]
            )
            result = run(settings, device=device, problem=device.problem, observer=follower)
            if result.status != "finished":
                raise KeyboardInterrupt
            curve = follower.curve
    best, worst = _bounds(task.path)
    whole = [*curve, *[curve[-1]] * (task.budget - len(curve))][: task.budget]
    return [min(value, worst) / best for value in whole]


@cache
def _device(path: Path, starts: bool) -> ReplayDevice:
    device = ReplayDevice(path)
    if not starts:
        device.recording = replace(device.recording, seeds=())
    return device


@cache
def _bounds(path: Path) -> tuple[float, float]:
    """Return the lowest and the highest time of a recording."""
    recording = _device(path, True).recording
    genomes = (g for space in recording.spaces.values() for g in space.enumerate())
    answers = map(recording.answer, genomes)
    times = [a.objective for a in answers if a is not None and a.status is Status.OK]
    return min(times), max(times)


def compared(
    paths: Sequence[Path], *, budgets: Sequence[int], seeds: Sequence[int], jobs: int | None = None
) -> dict[str, Any]:
    """Return the figures of every situation, way and budget."""
    situations = {"cold": (False, False), "cold, begun by rule": (False, True)}
    if len(paths) > 1:
        situations["taught"] = (True, False)
    tasks = {
        (situation, way): [
            Task(path, paths[place - 1] if taught else None, way, seed, max(budgets), starts)
            for place, path in enumerate(paths)
            for seed in seeds
        ]
        for situation, (taught, starts) in situations.items()
        for way in WAYS
    }
    curves: dict[tuple[str, str], NDArray[np.float64]] = {}
    with ProcessPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        for key, some in tasks.items():
            logs = np.log(np.array(list(pool.map(play, some, chunksize=4))))
            curves[key] = logs.reshape(len(paths), len(seeds), -1)
            print(", ".join(key), file=sys.stderr, flush=True)
    return {
        "recordings": {path.name: _size(path) for path in paths},
        "seeds": [min(seeds), max(seeds)],
        "figures": {
            situation: {
                str(budget): {
                    way: _figures(curves, situation, way, budget)
                    for way in WAYS
                }
                for budget in budgets
            }
            for situation in situations
        },
    }  # fmt: skip


def _size(path: Path) -> dict[str, int]:
    counts = _device(path, True).recording.counts
    return {"genomes": counts.genomes, "failed": counts.failed}


def _figures(
    curves: Mapping[tuple[str, str], NDArray[np.float64]], situation: str, way: str, budget: int
) -> dict[str, Any]:
    logs = curves[situation, way][:, :, budget - 1]
    found: dict[str, Any] = {
        "over_best": round(float(np.exp(logs.mean())), 4),
        "at_best": round(float((logs < _SAME).mean()), 3),
    }
    without = way.removesuffix(BANDIT)
    if without != way:
        found |= paired(logs, curves[situation, without][:, :, budget - 1])
    return found


def paired(logs: NDArray[np.float64], others: NDArray[np.float64]) -> dict[str, Any]:
    """Compare by pairs of equal recordings and seeds.

    Args:
        logs: Of the best over the optimum, shape (recordings, seeds).
        others: Of the way without the bandit, the same shape.
    """
    apart, rng = logs - others, np.random.default_rng(_STREAM)
    drawn = rng.integers(apart.shape[1], size=(_RESAMPLES, *apart.shape))
    means = np.take_along_axis(apart[None], drawn, axis=2).mean(axis=(1, 2))
    low, high = np.exp(np.percentile(means, (2.5, 97.5)))
    return {
        "over_without": round(float(np.exp(apart.mean())), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "better": int((apart < -_SAME).sum()),
        "worse": int((apart > _SAME).sum()),
        "pairs": apart.size,
        "p": round(_by_chance(apart.ravel(), rng), 4),
    }


def _by_chance(apart: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Return how often exchanged signs give as large a mean difference, two-sided."""
    hits, wanted = 1, abs(apart.sum()) - _SAME
    for _ in range(_EXCHANGES // _CHUNK):
        signs = rng.choice((-1.0, 1.0), size=(_CHUNK, apart.size))
        hits += int((np.abs(signs @ apart) >= wanted).sum())
    return hits / (_EXCHANGES + 1)


def main() -> None:
    """Compare, print, and write where asked to."""
    parser = argparse.ArgumentParser(description="Compare searches with and without the bandit.")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--budgets", default="25,50,100")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    output_option(parser)
    given = parser.parse_args()
    budgets = [int(text) for text in given.budgets.split(",")]
    try:
        found = compared(
            given.recordings, budgets=budgets, seeds=range(given.repeats), jobs=given.jobs
        )
    except KernelarcError as error:
        parser.error(str(error))
    keep({"what": "resource bandit", **found}, given.output)


if __name__ == "__main__":
    main()
