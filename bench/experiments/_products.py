"""What programs over cuBLASLt's space share: a campaign, its record, and finds side by side."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelarc.bench import paired_speedup
from kernelarc.bench.cuda import CudaDevice, CudaSession
from kernelarc.engine import BestResult, CampaignResult, CampaignSettings, run
from kernelarc.genomes import LT_ROUTE, Genome, Problem, Workload
from kernelarc.storage import export, open_reader

Axes = Mapping[str, int]

# An attention output projection with its residual in place, K = N = 2560.
TOKENS = (256, 512, 586, 1024, 1571, 2048, 4096, 7976, 8192)
PROJECTION: Mapping[str, bool | int | str] = {
    "dtype": "bf16",
    "layout": "TN",
    "residual": True,
    "workspace_mib": 64,
}
_VISITS, _ROUNDS = 3, 40
BASELINE = "first heuristic"


def projections(tokens: Iterable[int]) -> list[dict[str, int]]:
    """Return the projection's axes at each token count."""
    return [{"M": m, "N": 2560, "K": 2560} for m in tokens]


def search(
    shapes: Sequence[Axes], options: Mapping[str, Any], store: Path, **limits: Any
) -> CampaignResult:
    """Run one campaign over products, as ``kernelarc run matmul`` does.

    Args:
        shapes: Axes, one mapping a workload.
        options: Of the target ``matmul``.
        store: May hold earlier campaigns: what they concluded is used.
        **limits: ``budget``, ``seconds``, ``seed``.

    Raises:
        SystemExit: A signal stopped it before its audit: there are no figures.
    """
    result = run(
        CampaignSettings(
            target="matmul",
            device="cuda:0",
            routes=(LT_ROUTE,),
            workloads=tuple(shapes),
            options=dict(options),
            store=str(store),
            **limits,
        )
    )
    if result.status != "finished":
        raise SystemExit(f"the campaign over {len(shapes)} products was stopped: no figures of it")
    return result


def recorded(store: Path, campaign: int) -> dict[str, Any]:
    """Return what a store knows about a campaign: where it ran, what it did, how it ended."""
    with open_reader(str(store)) as reader:
        row = reader.campaign(campaign)
        contests = Counter(
            f"{c.purpose} {'upheld' if c.upheld else 'not upheld'}"
            for c in reader.contests(campaign)
        )
        costs = [judged.evaluation.cost_s for judged in reader.evaluations(campaign)]
        searched = [e.payload for e in reader.events(campaign) if e.kind == "searched"]
        seconds = sum(float(part["seconds"]) for part in searched)
        idle = sum(float(part["idle_s"]) for part in searched)
        return {
            "environment": {
                "identity": dict(row.environment.identity),
                "observations": {
                    k: v for k, v in row.environment.observations.items() if "path" not in k
                },
            },
            "search_seconds": round(seconds, 3),
            "device_idle_seconds": round(idle, 3),
            "device_idle_share": round(idle / seconds, 4) if seconds else None,
            "evaluations": len(costs),
            "device_seconds_of_evaluations": round(sum(costs), 3),
            "contests": dict(sorted(contests.items())),
            "failures": dict(reader.failures(campaign)),
        }


def told(result: CampaignResult) -> dict[str, Any]:
    """Return a campaign's result without where its store lies."""
    found = result.to_json()
    del found["store"], found["best"]
    return found


def uses(store: Path, campaign: int) -> dict[str, str]:
    """Return what the exported table uses for each workload: an algorithm or the heuristic."""
    with tempfile.TemporaryDirectory() as folder, open_reader(str(store)) as reader:
        path = Path(folder) / "table.json"
        export(reader, campaign, "cublaslt", path)
        entries = json.loads(path.read_text())["entries"]
    return {entry["workload"]: entry["use"] for entry in entries}


def never_slower(result: CampaignResult, use: Mapping[str, str]) -> dict[str, Any]:
    """Say which exported algorithms are not surely faster than the heuristic: none should be."""
    kept = [best for best in result.bests if use[best.workload] == "algorithm"]
    return {
        "algorithms": len(kept),
        "heuristics": len(use) - len(kept),
        "not_surely_faster": [
            best.workload for best in kept if best.speedup is None or best.speedup.low <= 1.0
        ],
    }


def exported_mean(result: CampaignResult, use: Mapping[str, str]) -> float:
    """Return the geometric mean of what the exported table gains: a heuristic gains nothing.

    A workload of which the search found no best is in the table, and counts, with its heuristic.
    """
    gains = {best.workload: best.speedup.value for best in result.bests if best.speedup}
    return geometric_mean(
        gains.get(workload, 1.0) if kind == "algorithm" else 1.0 for workload, kind in use.items()
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Return it, to four digits."""
    return round(math.exp(statistics.mean(map(math.log, values))), 4)


def genome_of(best: BestResult) -> Genome:
    """Return a best as a genome."""
    return Genome(best.route, best.genome)


def opened(problem: Problem) -> CudaSession:
    """Open the library's own session, whose contests can be cold and warm."""
    return CudaDevice().open(problem, seed=1, artefacts=Path(tempfile.gettempdir()))


def side_by_side(
    session: CudaSession, finds: Mapping[str, Sequence[Genome]], *, cache: str = "cold"
) -> dict[str, dict[str, list[float]]]:
    """Time genomes beside the first heuristic, each workload visited several times.

    Args:
        session: Open on the workloads' problem.
        finds: By workload fingerprint; each genome once.
        cache: Whether inputs are ``"cold"`` (sets of buffers take turns) or ``"warm"`` (one set).

    Returns:
        By workload fingerprint the samples of each genome, by fingerprint, and of ``BASELINE``.
        What failed in one visit is left out.
    """
    by_key: dict[str, Workload] = {w.fingerprint: w for w in session.problem.workloads}
    samples: dict[str, dict[str, list[float]]] = {key: {} for key in finds}
    failed: dict[str, set[str]] = {key: set() for key in finds}
    for _ in range(_VISITS):
        for key, genomes in finds.items():
            contest = session.contest_in(cache, by_key[key], genomes, rounds=_ROUNDS, baseline=True)
            failed[key].update(contest.failures)
            names = [*contest.names[:-1], BASELINE]
            for name, known in zip(names, contest.names, strict=True):
                samples[key].setdefault(name, []).extend(contest.column(known))
    return {
        key: {name: column for name, column in columns.items() if name not in failed[key]}
        for key, columns in samples.items()
    }


def speedup(columns: Mapping[str, Sequence[float]], name: str, over: str) -> dict[str, float]:
    """Return how much faster one column is than another, with its interval; empty if one failed."""
    if name not in columns or over not in columns:
        return {}
    found = paired_speedup(columns[name], columns[over])
    return {
        "estimate": round(found.value, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
    }
