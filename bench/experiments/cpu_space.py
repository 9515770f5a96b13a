"""What the spaces of the device ``cpu`` look like: random genomes, and each gene's own effect.

Three questions, answered with the machine at hand and written down as JSON:

1. How far is the best of N random legal genomes from their median?
2. Which genes change the time by themselves? A good genome is timed against neighbours that
   differ in one gene only, interleaved, beside itself (which shows the noise).
3. What do the starting genomes look like? They are the first random draws of some seeds.

Run it on a quiet machine: ``python -m kernelarc.bench.experiments.cpu_space gemm -o out.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench import CpuDevice, CpuLimits, Session, naive_gemm_route, paired_speedup
from kernelarc.bench.experiments._machine import output_option, show
from kernelarc.genomes import (
    Candidate,
    Evaluation,
    Genome,
    Problem,
    Space,
    Status,
    Workload,
    builtin_problem,
)

ROUNDS = 12
STARTS = 10
CLIMBS = 4


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator", choices=("gemm", "add_rmsnorm"))
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="axis=value")
    output_option(parser)
    return parser.parse_args()


@contextmanager
def session_on(problem: Problem, seed: int) -> Iterator[Session]:
    """Open the device without censoring: medians need full measurements."""
    limits = CpuLimits(censor=False)
    own = [naive_gemm_route()] if problem.operator.name == "gemm" else []
    with tempfile.TemporaryDirectory() as folder:
        device = CpuDevice(routes=own, limits=limits)
        with device.open(problem, seed=seed, artefacts=Path(folder)) as session:
            yield session


def measured(session: Session, workload: Workload, genomes: Sequence[Genome]) -> list[Evaluation]:
    """Judge genomes in batches; progress on standard error."""
    found: list[Evaluation] = []
    for start in range(0, len(genomes), session.window):
        batch = [
            Candidate(
                number=start + place,
                round=start,
                workload=workload.fingerprint,
                island="user",
                mutation="sample",
                genome=genome,
            )
            for place, genome in enumerate(genomes[start : start + session.window])
        ]
        session.submit(batch, limit={})
        found += session.collect()
        print(f"\r{len(found)}/{len(genomes)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def spread(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Return best, median and their ratio, and what failed."""
    times = sorted(e.measurement.objective for e in evaluations if e.measurement is not None)
    return {
        "ok": len(times),
        "failed": [f"{e.failure}: {e.message}" for e in evaluations if e.status is not Status.OK],
        "best_us": times[0],
        "median_us": statistics.median(times),
        "worst_us": times[-1],
        "median_over_best": statistics.median(times) / times[0],
        "seconds_per_candidate": statistics.mean(e.cost_s for e in evaluations),
    }


def one_gene_steps(space: Space, genome: Genome) -> dict[str, list[Genome]]:
    """Return, by gene, the legal genomes that differ from this one in that gene alone."""
    steps: dict[str, list[Genome]] = {}
    for gene in space.genes:
        for value in gene.values():
            changed = genome.replace({gene.name: value})
            if value != genome[gene.name] and space.violation(changed) is None:
                steps.setdefault(gene.name, []).append(space.genome(changed))
    return steps


def gene_effect(
    session: Session, workload: Workload, genome: Genome, others: Sequence[Genome]
) -> dict[str, Any]:
    """Return the largest change of the time by one gene, with its interval."""
    contest = session.contest(workload, [genome, *others], rounds=ROUNDS)
    base = contest.column(genome.fingerprint)
    ratios = [
        paired_speedup(base, contest.column(other.fingerprint), claims=len(others))
        for other in others
        if other.fingerprint not in contest.failures
    ]
    largest = max(ratios, key=lambda r: abs(np.log(r.value)))
    return {
        "slowdown": largest.value,
        "low": largest.low,
        "high": largest.high,
        "beyond_noise": any(r.low > 1.02 or r.high < 0.98 for r in ratios),
    }


def against_others(session: Session, workload: Workload, genome: Genome) -> dict[str, Any]:
    """Time a genome beside the baseline and, for gemm, beside a plain loop nest."""
    naive = session.spaces(workload).get("naive")
    plain = [naive.sample(np.random.default_rng(0))] if naive else []
    contest = session.contest(workload, [genome, *plain], rounds=ROUNDS, baseline=True)
    own = contest.column(genome.fingerprint)
    names = {plain[0].fingerprint: "naive i-k-j"} if plain else {}
    return {
        names.get(name, name): {
            "us": statistics.median(contest.column(name)),
            "speedup_over_it": paired_speedup(own, contest.column(name)).value,
        }
        for name in contest.names
    }


def climbed(session: Session, workload: Workload, space: Space, start: Evaluation) -> Evaluation:
    """Return a local optimum by steps of one gene: a base at which genes can matter."""
    best, seen = start, {start.candidate.genome.fingerprint}
    for _ in range(CLIMBS):
        steps = one_gene_steps(space, best.candidate.genome)
        near = [g for group in steps.values() for g in group if g.fingerprint not in seen]
        seen |= {genome.fingerprint for genome in near}
        found = [e for e in measured(session, workload, near[:200]) if e.measurement is not None]
        better = min(found, key=objective, default=best)
        if objective(better) > 0.99 * objective(best):
            break
        best = better
    return best


def objective(evaluation: Evaluation) -> float:
    """Return the median time in microseconds; infinite for what failed."""
    return evaluation.measurement.objective if evaluation.measurement else float("inf")


def main() -> None:
    """Answer the three questions."""
    chosen = arguments()
    axes = {name: int(value) for name, _, value in (text.partition("=") for text in chosen.set)}
    problem = builtin_problem(chosen.operator, axes)
    workload = problem.workloads[0]
    with session_on(problem, chosen.seed) as session:
        space = session.spaces(workload)["cpu"]
        rng = np.random.default_rng(chosen.seed)
        evaluations = measured(
            session, workload, [space.sample(rng) for _ in range(chosen.samples)]
        )
        best = climbed(session, workload, space, min(evaluations, key=objective))
        genome = best.candidate.genome
        report = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "workload": workload.label,
            "environment": dict(session.environment.identity),
            "observations": {
                name: text
                for name, text in session.observe().items()
                if not name.endswith(
                    "_path"
                )  # where this machine keeps its files is nobody's business
            },
            "random": spread(evaluations),
            "local_optimum": {"us": objective(best), "genome": genome.alleles()},
            "beside_others": against_others(session, workload, genome),
            "genes": {
                name: gene_effect(session, workload, genome, others)
                for name, others in one_gene_steps(space, genome).items()
            },
            "starting_genomes": [
                space.sample(np.random.default_rng(seed)).alleles() for seed in range(STARTS)
            ],
        }
    show(report, chosen.output)


if __name__ == "__main__":
    main()
