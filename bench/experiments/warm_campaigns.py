"""A campaign that is warm from an earlier one over neighbouring shapes, beside a cold one.

``python -m kernelarc.bench.experiments.warm_campaigns [--first STORE] [-o FILE]``. The first
campaign is over nine token counts of a projection (``l1_030 --store`` keeps such a one); the
second is over token counts fixed here, in the same store, with a third of the evaluations; the
third is over the same ones, in a store of its own. What the last two end with is timed side by
side, in one fresh worker, beside the library's first heuristic.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from kernelarc.bench.experiments._machine import output_option, show, with_machine, write
from kernelarc.bench.experiments._products import (
    BASELINE,
    PROJECTION,
    TOKENS,
    genome_of,
    geometric_mean,
    opened,
    projections,
    recorded,
    search,
    side_by_side,
    speedup,
    told,
)
from kernelarc.engine import CampaignResult
from kernelarc.genomes import Genome, Verdict, matmul_target
from kernelarc.storage import open_reader

NEIGHBOURS = (384, 768, 1280, 3072, 6144)
_PART = 3  # the warm campaign has this part of the cold one's evaluations


def measure(
    first: Path | None, evaluations: int, seed: int, folder: Path, output: Path | None
) -> dict[str, Any]:
    """Run the campaigns and time their ends; what is done is written before the next begins."""
    figures: dict[str, Any] = with_machine(
        {"first": list(TOKENS), "second": list(NEIGHBOURS), "evaluations_a_shape": evaluations}
    )
    warm_store, cold_store = first or folder / "warm.db", folder / "cold.db"
    if first is None:
        search(projections(TOKENS), PROJECTION, warm_store, budget=evaluations * len(TOKENS))
    shapes = projections(NEIGHBOURS)
    whole = evaluations * len(shapes)
    ended: dict[str, CampaignResult] = {}
    for name, store, budget in (
        ("warm", warm_store, whole // _PART),
        ("cold", cold_store, whole),
    ):
        ended[name] = search(shapes, PROJECTION, store, budget=budget, seed=seed)
        campaign = ended[name].campaign_id
        assert campaign is not None
        figures[name] = {
            **recorded(store, campaign),
            "standing": standing(store, campaign),
            "campaign": told(ended[name]),
        }
        write(figures, output)
    return {**figures, **compared(ended["warm"], ended["cold"])}


def standing(store: Path, campaign: int) -> dict[str, list[list[Any]]]:
    """Return by workload what stood as best: after how many of its evaluations, which genome."""
    counts: dict[str, int] = {}
    found: dict[str, list[list[Any]]] = {}
    with open_reader(str(store)) as reader:
        labels = {w.fingerprint: w.label for w in reader.campaign(campaign).spec.problem.workloads}
        for judged in reader.evaluations(campaign):
            candidate = judged.evaluation.candidate
            label = labels[candidate.workload]
            counts[label] = counts.get(label, 0) + 1
            if judged.verdict is Verdict.KEEP or label not in found:
                found.setdefault(label, []).append([counts[label], candidate.genome.fingerprint])
    return found


def compared(warm: CampaignResult, cold: CampaignResult) -> dict[str, Any]:
    """Time what both ended with side by side."""
    problem = matmul_target(projections(NEIGHBOURS), PROJECTION)
    labels = {workload.label: workload.fingerprint for workload in problem.workloads}
    ends: dict[str, dict[str, Genome]] = {
        name: {labels[best.workload]: genome_of(best) for best in result.bests}
        for name, result in (("warm", warm), ("cold", cold))
    }
    finds = {
        key: list(dict.fromkeys((ends["warm"][key], ends["cold"][key]))) for key in labels.values()
    }
    with opened(problem) as session:
        timed = side_by_side(session, finds)
    rows = {}
    for label, key in labels.items():
        mine, other = ends["warm"][key].fingerprint, ends["cold"][key].fingerprint
        rows[label] = {
            "warm": speedup(timed[key], mine, BASELINE),
            "cold": speedup(timed[key], other, BASELINE),
            "warm_over_cold": speedup(timed[key], mine, other),
        }
    whole = [row for row in rows.values() if all(row.values())]
    return {
        "side_by_side": rows,
        "geometric_means": {
            name: geometric_mean(row[name]["estimate"] for row in whole)
            for name in ("warm", "cold", "warm_over_cold")
        },
        "reached": sum(row["warm_over_cold"]["high"] >= 1.0 for row in whole),
        "of": len(rows),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=Path, help="store that holds the first campaign")
    parser.add_argument("--evaluations", type=int, default=300, help="of the cold ones, a shape")
    parser.add_argument("--seed", type=int, default=1)
    output_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(
            arguments.first,
            arguments.evaluations,
            arguments.seed,
            Path(folder),
            arguments.output,
        )
    show(figures, arguments.output)


if __name__ == "__main__":
    main()
