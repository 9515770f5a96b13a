"""What the route ``cublaslt`` does on this GPU: rates, noise, and a plain seeded climb.

Run it from a checkout on a machine with a GPU: ``python -m
kernelarc.bench.experiments.cublaslt_probe [--seconds S] [-o FILE]``. It needs no engine: it opens a
session and calls it directly.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench import noise_floor, paired_speedup
from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.bench.experiments._machine import output_option, show
from kernelarc.genomes import (
    Candidate,
    Evaluation,
    Genome,
    MatmulForm,
    Problem,
    Status,
    Workload,
    matmul_operator,
    matmul_problem,
)

L1_030_TOKENS = (256, 512, 586, 1024, 1571, 2048, 4096, 7976, 8192)
SHAPES = (
    (64, 14336, 4096),
    (1000, 1000, 1000),
    (256, 256, 65536),
    (512, 4096, 14336),
    (4096, 4096, 4096),
)


def attention_output() -> Problem:
    """The attention output projection with its residual in place."""
    operator = matmul_operator(MatmulForm(residual=True))
    shapes = [{"M": tokens, "N": 2560, "K": 2560} for tokens in L1_030_TOKENS]
    return matmul_problem(operator, shapes, in_place=True)


def plain() -> Problem:
    """Products without a residual."""
    shapes = [{"M": m, "N": n, "K": k} for m, n, k in SHAPES]
    return matmul_problem(matmul_operator(MatmulForm()), shapes)


class Numbers:
    """Counts candidates up."""

    def __init__(self) -> None:
        self._next = 0

    def candidate(self, workload: Workload, genome: Genome, mutation: str) -> Candidate:
        """Make the next candidate."""
        self._next += 1
        return Candidate(
            number=self._next,
            round=0,
            workload=workload.fingerprint,
            island="probe",
            mutation=mutation,
            genome=genome,
        )


def evaluated(
    session: CudaSession, candidates: Sequence[Candidate], limit: dict[str, float]
) -> Iterator[Evaluation]:
    """Submit candidates and yield their evaluations."""
    session.submit(candidates, limit=limit)
    yield from session.collect()


def check_rate(
    session: CudaSession, workload: Workload, rng: np.random.Generator
) -> dict[str, Any]:
    """Sample each algorithm's part of the space and let the library check it."""
    space = session.spaces(workload)["cublaslt"]
    begun = time.perf_counter()
    size = space.size()
    sized_s = time.perf_counter() - begun
    genomes: list[Genome] = []
    begun = time.perf_counter()
    for algo in space.gene("algo").values():
        part = space.pin({"algo": algo})
        genomes += [part.sample(rng) for _ in range(500)]
    sampled_s = time.perf_counter() - begun
    begun = time.perf_counter()
    answers = session.check(workload, genomes)
    checked_s = time.perf_counter() - begun
    legal: Counter[str] = Counter()
    for genome, answer in zip(genomes, answers, strict=True):
        legal[str(genome["algo"])] += answer is None
    return {
        "raw": size.raw,
        "legal_bound": size.legal,
        "exact": size.exact,
        "size_s": sized_s,
        "sample_us": 1e6 * sampled_s / len(genomes),
        "checks_per_s": len(genomes) / checked_s,
        "legal_of_500": dict(legal),
        "reasons": dict(Counter(a for a in answers if a is not None)),
    }


def climb(
    session: CudaSession, workload: Workload, seconds: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Seed with the heuristics, then step to legal neighbours of the best few."""
    numbers, space = Numbers(), session.spaces(workload)["cublaslt"]
    seen: dict[str, float] = {}
    known: dict[str, Genome] = {}
    status: Counter[str] = Counter()
    costs: list[float] = []
    limit: dict[str, float] = {}
    begun = time.perf_counter()

    def run(genomes: Sequence[Genome], mutation: str) -> None:
        fresh = [g for g in dict.fromkeys(genomes) if g.fingerprint not in known]
        for genome in fresh:
            known[genome.fingerprint] = genome
        candidates = [numbers.candidate(workload, g, mutation) for g in fresh]
        for evaluation in evaluated(session, candidates, limit):
            status[evaluation.failure or "OK"] += 1
            costs.append(evaluation.cost_s)
            if evaluation.status is Status.OK and evaluation.measurement is not None:
                objective = evaluation.measurement.objective
                if not evaluation.measurement.censored:
                    seen[evaluation.candidate.genome.fingerprint] = objective
                    limit[workload.fingerprint] = min(seen.values())

    run([p.genome for p in session.seeds(workload)], "seed")
    seeded = min(seen.values())
    checked = 0
    while time.perf_counter() - begun < seconds:
        elite = sorted(seen, key=lambda f: seen[f])[:5]
        parents = [known[f] for f in elite]
        tries = [n for p in parents for n in space.neighbours(p)]
        tries += [mutated(space, parents[int(rng.integers(len(parents)))], rng) for _ in range(60)]
        fresh = [g for g in dict.fromkeys(tries) if g.fingerprint not in known]
        rng.shuffle(fresh)
        fresh = fresh[:200]
        answers = session.check(workload, fresh)
        checked += len(fresh)
        run([g for g, a in zip(fresh, answers, strict=True) if a is None][:32], "step")
    wall = time.perf_counter() - begun
    best = min(seen, key=lambda f: seen[f])
    finalists = [known[f] for f in sorted(seen, key=lambda f: seen[f])[:4]]
    return {
        "evaluated": sum(status.values()),
        "checked": checked,
        "status": dict(status),
        "wall_s": wall,
        "ms_per_candidate": 1e3 * statistics.median(costs),
        "mean_ms": 1e3 * statistics.mean(costs),
        "best_seed_us": seeded,
        "best_us": seen[best],
        "finalists": finalists,
    }


def mutated(space: Any, genome: Genome, rng: np.random.Generator) -> Genome:
    """Change two or three genes at once, repaired into the space."""
    alleles = genome.alleles()
    for name in rng.choice(space.names, size=int(rng.integers(2, 4)), replace=False):
        gene = space.gene(str(name))
        alleles[str(name)] = gene.mutate(alleles[str(name)], rng)
    found: Genome | None = space.repair(alleles, rng)
    return found or genome


def settle(session: CudaSession, workload: Workload, found: dict[str, Any]) -> dict[str, Any]:
    """Hold the finalists against the first heuristic, and that against itself."""
    finalists: list[Genome] = found.pop("finalists")
    row: dict[str, Any] = {"workload": workload.label, **found}
    first = session.seeds(workload)[0].genome
    for cache in ("cold", "warm"):
        begun = time.perf_counter()
        contest = session.contest_in(cache, workload, finalists, rounds=40, baseline=True)
        row[f"{cache}_contest_s"] = time.perf_counter() - begun
        base = contest.names[-1]
        row[f"{cache}_failures"] = dict(contest.failures)
        if base in contest.failures:
            continue
        row[f"{cache}_baseline_us"] = statistics.median(contest.column(base))
        good = [n for n in contest.names[:-1] if n not in contest.failures]
        speeds = {n: paired_speedup(contest.column(n), contest.column(base)) for n in good}
        best = max(speeds, key=lambda n: speeds[n].low)
        estimate = speeds[best]
        row[f"{cache}_speedup"] = [estimate.value, estimate.low, estimate.high]
        if cache == "cold":
            row["best"] = {g.fingerprint: g for g in finalists}[best].canonical
    same = session.contest(workload, [first], rounds=40, baseline=True)
    if not same.failures:
        floor = noise_floor(same.column(same.names[0]), same.column(same.names[1]))
        row["aa"] = [floor.ratio.value, floor.ratio.low, floor.ratio.high, floor.spread]
    return row


def probe(problem: Problem, seconds: float, seed: int) -> dict[str, Any]:
    """Run everything on one problem."""
    rng = np.random.default_rng(seed)
    device = CudaDevice("cuda:0")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        session = device.open(problem, seed=seed, artefacts=Path(folder))
    opened_s = time.perf_counter() - begun
    with session:
        rows = []
        for workload in problem.workloads:
            begun = time.perf_counter()
            session.spaces(workload)
            domain_s = time.perf_counter() - begun
            rate = check_rate(session, workload, rng)
            found = climb(session, workload, seconds, rng)
            row = {"domain_s": domain_s, "rate": rate, **settle(session, workload, found)}
            rows.append(row)
            show_row(row)
        return {
            "operator": problem.operator.name,
            "environment": dict(session.environment.identity),
            "observations": dict(session.environment.observations),
            "observed_after": dict(session.observe()),
            "roofline": dict(session.roofline()),
            "open_s": opened_s,
            "rows": rows,
        }


def show_row(row: dict[str, Any]) -> None:
    """Print one line."""
    cold, warm = row.get("cold_speedup"), row.get("warm_speedup")
    aa = row.get("aa")
    print(
        f"{row['workload']:42s} domain {row['domain_s']:.2f}s "
        f"size {row['rate']['legal_bound']:.2e}{'' if row['rate']['exact'] else '?'} "
        f"sample {row['rate']['sample_us']:.0f}us check {row['rate']['checks_per_s']:.0f}/s "
        f"n={row['evaluated']} {row['ms_per_candidate']:.1f}ms(mean {row['mean_ms']:.1f}) "
        f"base {row.get('cold_baseline_us', math.nan):.2f}us "
        f"cold {cold and [round(v, 4) for v in cold]} warm {warm and [round(v, 4) for v in warm]} "
        f"A/A {aa and [round(v, 4) for v in aa]} contests {row['cold_contest_s']:.2f}s "
        f"{row['status']} {row['cold_failures'] or ''}",
        flush=True,
    )


def main() -> None:
    """Run the probe and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="climbing time a shape")
    parser.add_argument("--seed", type=int, default=1)
    output_option(parser)
    arguments = parser.parse_args()
    results = []
    for problem in (attention_output(), plain()):
        result = probe(problem, arguments.seconds, arguments.seed)
        speeds = [row["cold_speedup"][0] for row in result["rows"] if "cold_speedup" in row]
        mean = math.exp(statistics.mean(math.log(s) for s in speeds)) if speeds else math.nan
        print(f"{result['operator']}: opened in {result['open_s']:.2f} s, mean {mean:.4f}")
        print(result["roofline"], result["observed_after"])
        results.append(result)
    show(results, arguments.output)


if __name__ == "__main__":
    main()
