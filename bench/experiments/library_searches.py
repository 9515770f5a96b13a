"""Searches over cuBLASLt's space: the same number of legal evaluations for each.

``python -m kernelarc.bench.experiments.library_searches RECORDING... [-o FILE]`` compares
them on recordings, ``--live`` on five products on this machine's GPU; there each repeat ends with
a contest of what the methods had found at each mark, beside the library's first heuristic. Every
method but the random one begins with the library's heuristics, which count as evaluations. What is
illegal, or was evaluated before, costs nothing; on a GPU, where each costs time, Optuna is asked at
most eight times for each evaluation. ``--seconds`` ends a live comparison after whole
repeats, as many of each shape; what each shape has is written after every one of them, and the
means so far with it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelarc.bench import Device, Recording, ReplayDevice
from kernelarc.bench.experiments._library_live import live
from kernelarc.bench.experiments._library_methods import MARKS, METHODS, Play, SpentError
from kernelarc.bench.experiments._machine import keep, output_option, show
from kernelarc.genomes import LT_ROUTE, Genome, Problem, Space, Status


class Recorded:
    """Answers of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.space: Space = recording.spaces[LT_ROUTE]
        self.seeds: Sequence[Genome] = [proposal.genome for proposal in recording.seeds]

    def times(self, genomes: Sequence[Genome]) -> list[float | None]:
        """Look them up."""
        answers = [self.recording.answer(genome) for genome in genomes]
        return [
            None if a is None else a.objective if a.status is Status.OK else math.inf
            for a in answers
        ]

    def device(self) -> tuple[Device, Problem]:
        """Return a device of its own."""
        found = ReplayDevice(self.recording.path)
        return found, found.problem


def compare(path: Path, budget: int, repeats: int) -> dict[str, Any]:
    """Run every method on one recording."""
    recording = ReplayDevice(path).recording
    first = recording.answer(recording.seeds[0].genome)
    assert first is not None
    optimum = min(
        answer.objective
        for space in recording.spaces.values()
        for genome in space.enumerate()
        if (answer := recording.answer(genome)) is not None and answer.status is Status.OK
    )
    rows = {}
    for name, method in METHODS.items():
        runs, begun = [], time.perf_counter()
        for seed in range(repeats):
            play = Play(Recorded(recording), budget)
            with contextlib.suppress(SpentError):
                method(play, seed)
            runs.append([first.objective / play.best[min(m, len(play.best)) - 1] for m in MARKS])
        rows[name] = {
            "speedup_at": {
                str(mark): [round(run_[i], 4) for run_ in runs] for i, mark in enumerate(MARKS)
            },
            "seconds_a_run": round((time.perf_counter() - begun) / repeats, 2),
        }
    return {
        "recording": path.name,
        "first_heuristic_us": first.objective,
        "optimum_us": optimum,
        "optimum_speedup": round(first.objective / optimum, 4),
        "legal": recording.counts.genomes,
        "methods": rows,
    }


def table(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return geometric means of the speed-up over recordings and repeats, by method and mark."""
    found = {}
    for name in METHODS:
        found[name] = {
            str(mark): round(
                math.exp(
                    statistics.mean(
                        math.log(value)
                        for result in results
                        for value in result["methods"][name]["speedup_at"][str(mark)]
                    )
                ),
                4,
            )
            for mark in MARKS
        }
    found["optimum"] = {
        str(MARKS[-1]): round(
            math.exp(statistics.mean(math.log(r["optimum_speedup"]) for r in results)), 4
        )
    }
    return found


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--live", action="store_true", help="on this machine's GPU")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a live run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9, help="wall time of a live comparison")
    output_option(parser)
    arguments = parser.parse_args()
    if arguments.live:
        lived = live(arguments.budget, arguments.repeats, arguments.seconds, arguments.output)
        show(lived, arguments.output)
        return
    results = []
    for path in arguments.recordings:
        results.append(compare(path, MARKS[-1], arguments.repeats))
        for name, row in results[-1]["methods"].items():
            means = {m: round(statistics.mean(v), 4) for m, v in row["speedup_at"].items()}
            print(f"{path.name[:44]:44s} {name:26s} {means} {row['seconds_a_run']} s", flush=True)
    means = table(results)
    for name, row in means.items():
        print(f"{name:26s} {row}")
    if arguments.output:
        figures = {"means": means, "repeats": arguments.repeats, "recordings": results}
        keep(figures, arguments.output)


if __name__ == "__main__":
    main()
