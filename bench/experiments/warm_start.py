"""What a campaign gains from one on the same kernel on another GPU: run by hand.

    python -m kernelarc.bench.experiments.warm_start --spaces DIR [--seeds N] [-o OUT.json]

DIR holds recorded spaces (Kernel Tuner caches, T4 files, our own recordings). Of every two that
record one operator on two devices, each is searched in a store that holds a campaign on the other
(warm), and in an empty store (cold), with the same seeds and budgets. Figures: the best found over
the optimum after so many unique evaluations, geometric means; and how likely so large a difference
is by chance (the signs of the paired differences exchanged at random, pair by pair).
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kernelarc.bench import ReplayDevice
from kernelarc.bench.experiments._following import Follower
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import InputError, KernelarcError, Status

COLD, WARM, EVEN = "cold", "warm", "warm, without controller"
# Campaign settings that differ from the defaults, by way to search.
WAYS: Mapping[str, Mapping[str, Any]] = {COLD: {}, WARM: {}, EVEN: {"controller": False}}
_PERMUTATIONS = 10_000
_STREAM = 20240601
_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True)
class Pair:
    """One operator on two devices.

    Attributes:
        before: The recording that is searched first.
        after: The one whose search is measured.
    """

    before: Path
    after: Path

    @property
    def name(self) -> str:
        """Both files' names."""
        return f"{_name(self.before)} -> {_name(self.after)}"


@dataclass(frozen=True, slots=True)
class Task:
    """One operator's pairs with one seed.

    Attributes:
        pairs: Those that are played.
        seed: Of every campaign.
        budget: Evaluations of every campaign.
        ways: How each pair's second recording is searched.
    """

    pairs: tuple[Pair, ...]
    seed: int
    budget: int
    ways: tuple[str, ...]


def pairs_in(folder: Path) -> list[Pair]:
    """Return every two recordings of one operator on different devices, in both orders.

    Raises:
        InputError: There is no such folder, a file in it is no recording, or there is no pair.
    """
    if not folder.is_dir():
        raise InputError(f"--spaces {folder}: no such folder")
    paths = sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(_SUFFIXES))
    places = {}
    for path in paths:
        device = ReplayDevice(path)
        genes = {r: space.names for r, space in device.recording.spaces.items()}
        job = (device.recording.operator.fingerprint, sorted(genes.items()))
        places[path] = job, device.environment().identity.get("device")
    found = [
        Pair(before, after)
        for before, after in itertools.permutations(paths, 2)
        if places[before][0] == places[after][0] and places[before][1] != places[after][1]
    ]
    if not found:
        raise InputError(
            f"--spaces {folder}: holds no operator that was recorded, with the same genes, on two "
            "devices"
        )
    return found


def play(task: Task) -> dict[str, dict[str, list[float]]]:
    """Return by pair and way the best over the optimum after 1, 2, ... evaluations.

    The campaign that is cold on a recording is the earlier one of those that are warm elsewhere.
    """
    found: dict[str, dict[str, list[float]]] = {pair.name: {} for pair in task.pairs}
    with threadpool_limits(1), tempfile.TemporaryDirectory(prefix="kernelarc-warm-") as text:
        folder = Path(text)
        paths = dict.fromkeys(path for pair in task.pairs for path in (pair.before, pair.after))
        cold = {
            path: _campaign(path, task, folder / f"{place}.db", {})
            for place, path in enumerate(paths)
        }
        stores = {path: folder / f"{place}.db" for place, path in enumerate(paths)}
        for pair in task.pairs:
            for way in task.ways:
                store = folder / "warm.db"
                shutil.copy(stores[pair.before], store)
                found[pair.name][way] = (
                    cold[pair.after]
                    if way == COLD
                    else _campaign(pair.after, task, store, WAYS[way])
                )
    return found


def _campaign(path: Path, task: Task, store: Path, settings: Mapping[str, Any]) -> list[float]:
    device, follower = _device(path), Follower()
    values = {"target": str(path), "store": str(store), "budget": task.budget, "seed": task.seed}
    asked = CampaignSettings.from_values({**values, **settings})
    result = run(asked, device=device, problem=device.problem, observer=follower)
    if result.status != "finished":
        raise KeyboardInterrupt
    return _over_optimum(path, follower.curve, task.budget)


@cache
def _device(path: Path) -> ReplayDevice:
    """Return the recording, without what its device would have tried first."""
    device = ReplayDevice(path)
    device.recording = replace(device.recording, seeds=())
    return device


@cache
def _bounds(path: Path) -> tuple[float, float]:
    """Return the lowest and the highest time of a recording."""
    recording = _device(path).recording
    genomes = itertools.chain.from_iterable(s.enumerate() for s in recording.spaces.values())
    answers = map(recording.answer, genomes)
    times = [a.objective for a in answers if a is not None and a.status is Status.OK]
    return min(times), max(times)


def _over_optimum(path: Path, curve: Sequence[float], budget: int) -> list[float]:
    """Return a curve over the optimum: as long as the budget, the worst before the first time."""
    best, worst = _bounds(path)
    whole = [*curve, *[curve[-1]] * (budget - len(curve))][:budget]
    return [min(value, worst) / best for value in whole]


def figures(
    pairs: Sequence[Pair],
    seeds: Sequence[int],
    curves: Mapping[tuple[str, int], Mapping[str, Sequence[float]]],
    budgets: Sequence[int],
    ways: Sequence[str],
) -> dict[str, Any]:
    """Return the figures of every budget, by way, beside the first way (cold).

    Args:
        pairs: Those that were played.
        seeds: Those of their campaigns.
        curves: By pair's name and seed, then by way.
        budgets: Evaluations at which figures are wanted.
        ways: Their names.
    """
    found: dict[str, Any] = {}
    for budget in budgets:
        logs = {
            way: np.array(
                [
                    [math.log(curves[pair.name, seed][way][budget - 1]) for seed in seeds]
                    for pair in pairs
                ]
            )
            for way in ways
        }
        found[str(budget)] = {way: _figure(logs[way], logs[ways[0]], pairs) for way in ways}
    return found


def _figure(logs: Any, cold: Any, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return one way's figures from logs of the best over the optimum, shape (pairs, seeds)."""
    medians = np.median(logs, axis=1)
    return {
        "geometric_mean_of_medians": round(float(np.exp(medians.mean())), 4),
        "geometric_mean": round(float(np.exp(logs.mean())), 4),
        "at_optimum": round(float((logs < 1e-6).mean()), 3),
        "over_cold": round(float(np.exp((logs - cold).mean())), 4),
        "better": int((logs < cold - 1e-9).sum()),
        "worse": int((logs > cold + 1e-9).sum()),
        "p": _by_chance(logs - cold),
        "medians": {
            pair.name: round(float(value), 4)
            for pair, value in zip(pairs, np.exp(medians), strict=True)
        },
    }


def _by_chance(differences: Any) -> float:
    """Return how often exchanged signs give as large a mean difference, two-sided."""
    rng = np.random.default_rng(_STREAM)
    flat = differences.ravel()
    signs = rng.choice((-1.0, 1.0), size=(_PERMUTATIONS, flat.size))
    exchanged = np.abs(signs @ flat)
    return float((1 + (exchanged >= abs(flat.sum()) - 1e-12).sum()) / (1 + _PERMUTATIONS))


def measured(
    folder: Path,
    *,
    seeds: Sequence[int],
    budgets: Sequence[int],
    ways: Sequence[str],
    jobs: int | None,
) -> dict[str, Any]:
    """Run every way on every pair with every seed."""
    pairs, chosen = pairs_in(folder), tuple(dict.fromkeys((COLD, *ways)))
    groups: dict[frozenset[Path], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(frozenset((pair.before, pair.after)), []).append(pair)
    tasks = [
        Task(tuple(group), seed, max(budgets), chosen)
        for seed in seeds
        for group in groups.values()
    ]
    curves = {}
    with ProcessPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        for task, played in zip(tasks, pool.map(play, tasks), strict=True):
            curves.update({(name, task.seed): found for name, found in played.items()})
            print(f"seed {task.seed}: {', '.join(played)}", file=sys.stderr, flush=True)
    return {
        "spaces": sorted({_name(pair.after) for pair in pairs}),
        "seeds": [min(seeds), max(seeds)],
        "evaluations_before": max(budgets),
        "figures": figures(pairs, seeds, curves, budgets, chosen),
    }


def _name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def _budgets(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description="Compare warm with cold campaigns.")
    parser.add_argument("--spaces", type=Path, required=True, help="folder of recorded spaces")
    parser.add_argument("--seeds", type=_positive, default=20, help="campaigns of a way and pair")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--budgets", type=_budgets, default="10,25,50,100,220")
    parser.add_argument("--without-controller", action="store_true", help="a third way beside")
    parser.add_argument("--jobs", type=_positive, help="processes (default: one a core)")
    output_option(parser)
    given = parser.parse_args()
    try:
        found = measured(
            given.spaces,
            seeds=range(given.first, given.first + given.seeds),
            budgets=given.budgets,
            ways=(WARM, EVEN) if given.without_controller else (WARM,),
            jobs=given.jobs,
        )
    except KernelarcError as error:
        parser.error(str(error))
    keep(found, given.output)


if __name__ == "__main__":
    main()
