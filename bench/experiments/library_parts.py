"""Which products of a composite job the library should make, on this GPU.

    python -m kernelarc.bench.experiments.library_parts decoder_block --tokens 128,1024 -o FILE

Needs an NVIDIA GPU and what the route needs to compile. For each of the packaged workloads: the
route's first genomes, checked by the judge, then timed in turn with the baseline (cold L2); then,
from the genome that leaves every product to the library, each kind's other choices, each alone,
timed in turn with the first ones. ``--plain`` leaves the baseline out. Figures are written as they
come.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from kernelarc.bench.experiments._machine import output_option, write
from kernelarc.bench.kernels import KernelDevice
from kernelarc.genomes import (
    Candidate,
    Evaluation,
    Genome,
    Problem,
    Status,
    Workload,
    axis_values,
    packaged_problem,
)
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute, kernel_routes
from kernelarc.genomes.routes._library_part import BY, KERNEL, LIBRARY

KINDS: Mapping[str, tuple[str, ...]] = {
    "decoder_block": ("q", "kv", "o", "wide", "down"),
    "moe_swiglu_backward": ("inner", "hidden", "token", "weight"),
}
_ROUNDS, _CHOICES, _AT_ONCE = 15, 8, 12
_BASELINE, _SAME = "baseline:", "same_as"


def named(genome: Genome, kinds: Sequence[str]) -> str:
    """Say which kinds the library makes, and by which choice where it is not the first."""
    parts = []
    for kind in kinds:
        if genome[f"{kind}_{BY}"] == LIBRARY:
            choice, room = genome[f"{kind}_heuristic"], genome[f"{kind}_workspace_mib"]
            usual = choice == 0 and room == 32
            parts.append(kind if usual else f"{kind}[{choice}, {room} MiB]")
    return " ".join(parts) or KERNEL


def others(route: KernelRoute, workload: Workload, genome: Genome, kind: str) -> list[Genome]:
    """Return a genome with every other choice of the library for one kind of product."""
    space = route.space(workload, DeviceLimits.of_arch("sm_90a"))
    ways = [(choice, 32) for choice in range(1, _CHOICES)] + [(0, 0)]
    return [
        space.genome(
            {**genome.alleles(), f"{kind}_heuristic": choice, f"{kind}_workspace_mib": room}
        )
        for choice, room in ways
    ]


def evaluated(session: Any, workload: Workload, genomes: Sequence[Genome]) -> list[Evaluation]:
    """Have the judge check and time some genomes, in their order."""
    session.submit(
        [
            Candidate(
                number=n, round=0, workload=workload.fingerprint, island="user", mutation="seed",
                genome=genome,
            )
            for n, genome in enumerate(genomes)
        ],
        limit={},
    )  # fmt: skip
    return sorted(session.collect(), key=lambda e: e.candidate.number)


def raced(
    session: Any, workload: Workload, genomes: Sequence[Genome], *, baseline: bool
) -> dict[str, float]:
    """Return the median of each genome (by fingerprint) and of the baseline, timed in turn."""
    contest = session.contest(workload, genomes, rounds=_ROUNDS, baseline=baseline)
    return {
        name: round(median(contest.column(name)), 2)
        for name in contest.names
        if name not in contest.failures
    }


def figures_of(
    session: Any, route: KernelRoute, workload: Workload, kinds: Sequence[str], *, baseline: bool
) -> dict[str, Any]:
    """Return what one workload's genomes take, in microseconds."""
    limits = DeviceLimits.of_arch("sm_90a")
    seeds = [seed.genome for seed in route.seeds(workload, limits)]
    seen = evaluated(session, workload, seeds)
    right = [e.candidate.genome for e in seen if e.status is Status.OK]
    medians = raced(session, workload, right, baseline=baseline)
    found: dict[str, Any] = {
        "wrong": [f"{named(e.candidate.genome, kinds)}: {e.failure}, {e.message}"
                  for e in seen if e.status is not Status.OK],
        "first": [{"library": named(g, kinds), "us": medians.get(g.fingerprint)} for g in right],
        "baseline": {n.removeprefix(_BASELINE): us for n, us in medians.items()
                     if n.startswith(_BASELINE)},
    }  # fmt: skip
    whole = [g for g in right if all(g[f"{kind}_{BY}"] == LIBRARY for kind in kinds)]
    for kind in kinds if whole else ():
        tried = evaluated(session, workload, others(route, workload, whole[0], kind))
        usable = [
            e.candidate.genome for e in tried if e.status is Status.OK and _SAME not in e.properties
        ][: _AT_ONCE - 1]
        taken = raced(session, workload, [whole[0], *usable], baseline=False)
        found[f"choices of {kind}"] = {
            named(g, kinds): taken.get(g.fingerprint) for g in (whole[0], *usable)
        }
        found[f"{kind}: an algorithm seen before"] = sum(_SAME in e.properties for e in tried)
        found[f"{kind}: not offered or wrong"] = sum(e.status is not Status.OK for e in tried)
    return found


def main() -> None:
    """Time the genomes of one packaged problem."""
    parser = argparse.ArgumentParser(
        prog="library_parts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("problem", choices=tuple(KINDS))
    parser.add_argument("--tokens", default="", help="only workloads of so many, as 128,1024")
    parser.add_argument("--plain", action="store_true", help="without the baseline")
    output_option(parser)
    asked = parser.parse_args()
    whole = packaged_problem(asked.problem)
    wanted = {int(text) for text in asked.tokens.split(",") if text}
    chosen = tuple(w for w in whole.workloads if not wanted or tokens_of(whole, w) in wanted)
    if not chosen:
        parser.error(
            f"--tokens: {asked.problem} has {[tokens_of(whole, w) for w in whole.workloads]}"
        )
    problem = Problem(operator=whole.operator, workloads=chosen)
    (route,) = (r for r in kernel_routes(problem.operator) if r.name == "cuda")
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        KernelDevice(routes=[route]).open(problem, seed=1, artefacts=Path(folder)) as session,
    ):
        device = session.environment.identity
        for workload in problem.workloads:
            found = figures_of(
                session, route, workload, KINDS[asked.problem], baseline=not asked.plain
            )
            rows.append({"workload": workload.label, **found})
            print(rows[-1], flush=True)
            write({"problem": asked.problem, "device": dict(device), "rows": rows}, asked.output)


def tokens_of(problem: Problem, workload: Workload) -> int:
    """Return the tokens of all sequences of a workload."""
    axes = axis_values(problem.operator, workload)
    return axes["tokens"] if "tokens" in axes else axes["batch"] * axes["seq"]


if __name__ == "__main__":
    main()
