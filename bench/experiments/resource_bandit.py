"""What the bandit of register caps and pipeline depths gains, on spaces that a GPU has measured.

First measure nearly all genomes of a small space with both genes, on a GPU:

    kernelarc run KERNEL.py --budget 2000 --store swept.db

then, on any machine, search that store's answers with and without the bandit, at equal budgets:

    python -m kernelarc.bench.experiments.resource_bandit swept.db [--teach other.db] [-o OUT.json]

Every campaign has a seed of its own and a store of its own; with ``--teach`` that store holds a
campaign on the other answers first, so that the bandit begins with its lessons. Figures: the best
found over the best there is, geometric mean over the seeds, and in how many seeds it was better.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench import Device
from kernelarc.bench.experiments._formula import AnsweringSession
from kernelarc.bench.experiments._machine import keep, output_option
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import (
    Allele,
    Candidate,
    Choice,
    Environment,
    Evaluation,
    Genome,
    InputError,
    Problem,
    Space,
)
from kernelarc.genomes.triton import TabledConstraint
from kernelarc.storage import open_reader

WAYS: Mapping[str, Mapping[str, Any]] = {
    "mutation": {"models": False, "resources": False},
    "mutation, bandit": {"models": False, "resources": True},
    "models": {"models": True, "resources": False},
    "models, bandit": {"models": True, "resources": True},
}


class StoredDevice(Device):
    """Answers from one campaign of a store, with what its compiler reported.

    Args:
        store: A store whose newest campaign evaluated most of a space, on one workload.

    Raises:
        InputError: It has several workloads or routes, or nothing that worked.
    """

    name, deterministic = "stored", True

    def __init__(self, store: str) -> None:
        with open_reader(store) as reader:
            row = reader.campaign()
            judged = list(reader.evaluations(row.id))
        self.problem, self._environment = row.spec.problem, row.environment
        self.answers: dict[str, Evaluation] = {}
        for one in judged:
            genome = one.evaluation.candidate.genome
            known = self.answers.get(genome.fingerprint)
            if known is None or known.measurement is None or one.evaluation.measurement is not None:
                self.answers[genome.fingerprint] = one.evaluation
        genomes = [answer.candidate.genome for answer in self.answers.values()]
        routes = {genome.route for genome in genomes}
        if len(self.problem.workloads) != 1 or len(routes) != 1:
            raise InputError(f"{store}: one workload and one route are wanted")
        self.space = space_of(routes.pop(), genomes)
        times = [a.measurement.objective for a in self.answers.values() if a.measurement]
        if not times:
            raise InputError(f"{store}: nothing in it worked")
        self.least = min(times)

    def environment(self) -> Environment:
        """Return the environment of the campaign."""
        return self._environment

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> StoredSession:
        """Open a session."""
        return StoredSession(self)


def space_of(route: str, genomes: Sequence[Genome]) -> Space:
    """Return the space that holds exactly these genomes."""
    names = list(genomes[0])
    values: dict[str, list[Allele]] = {n: list(dict.fromkeys(g[n] for g in genomes)) for n in names}
    rows = [tuple(genome[name] for name in names) for genome in genomes]
    return Space(
        route,
        [Choice(name=name, options=tuple(values[name])) for name in names],
        [TabledConstraint(names, rows, "was measured")],
    )


class StoredSession(AnsweringSession):
    """Hands the stored evaluations out again."""

    def __init__(self, device: StoredDevice) -> None:
        super().__init__(device, device.problem, device.space)
        self._answers = device.answers

    def answer(self, candidate: Candidate) -> Evaluation:
        """Return the stored evaluation."""
        return replace(self._answers[candidate.genome.fingerprint], candidate=candidate)

    def objective(self, genome: Genome) -> float:
        """Return the stored time, NaN where it failed."""
        measured = self._answers[genome.fingerprint].measurement
        return math.nan if measured is None else measured.objective


def best_ratio(
    device: StoredDevice, teacher: StoredDevice | None, *, budget: int, seed: int, way: str
) -> float:
    """Run one campaign; return its best over the best there is."""
    with tempfile.TemporaryDirectory(prefix="kernelarc-bandit-") as folder:
        store = str(Path(folder) / "campaign.db")
        for each in filter(None, (teacher, device)):
            settings = CampaignSettings(
                target="stored", budget=budget, seed=seed, store=store, **WAYS[way]
            )
            result = run(settings, device=each, problem=each.problem)
        assert result.best is not None
        return result.best.objective / device.least


def compared(
    device: StoredDevice, teacher: StoredDevice | None, *, budgets: Sequence[int], repeats: int
) -> dict[str, Any]:
    """Return the figures of every way and budget."""
    figures: dict[str, Any] = {"genomes": len(device.answers), "least": device.least}
    for budget in budgets:
        ratios = {
            way: [
                best_ratio(device, teacher, budget=budget, seed=seed, way=way)
                for seed in range(repeats)
            ]
            for way in WAYS
        }
        figures[str(budget)] = {
            way: {
                "over_best": round(float(np.exp(np.mean(np.log(found)))), 5),
                "better_than_without": _wins(ratios, way),
            }
            for way, found in ratios.items()
        }
    return figures


def _wins(ratios: Mapping[str, Sequence[float]], way: str) -> str | None:
    """Say in how many seeds a way with the bandit was better and worse than without."""
    other = way.removesuffix(", bandit")
    if other == way:
        return None
    pairs = list(zip(ratios[way], ratios[other], strict=True))
    better, worse = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return f"{better} better, {worse} worse of {len(pairs)}"


def main() -> None:
    """Compare, print, and write where asked to."""
    parser = argparse.ArgumentParser(description="Compare searches with and without the bandit.")
    parser.add_argument("store")
    parser.add_argument("--teach", help="store of another workload, searched beforehand")
    parser.add_argument("--budgets", default="30,60,120")
    parser.add_argument("--repeats", type=int, default=20)
    output_option(parser)
    given = parser.parse_args()
    device = StoredDevice(given.store)
    teacher = StoredDevice(given.teach) if given.teach else None
    budgets = [int(text) for text in given.budgets.split(",")]
    keep(compared(device, teacher, budgets=budgets, repeats=given.repeats), given.output)


if __name__ == "__main__":
    main()
