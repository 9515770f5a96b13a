"""An attention output projection with its residual in place at nine token counts, then verified.

``python -m kernelarc.bench.experiments.l1_030 [--seconds 9] [--store FILE] [-o FILE]``: one
campaign from a cold store, ``verify`` in a fresh worker, and the same algorithms with one set of
buffers (warm). The campaign's own figures rotate buffers beyond twice the L2 cache (cold).
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
    exported_mean,
    genome_of,
    geometric_mean,
    never_slower,
    opened,
    projections,
    recorded,
    search,
    side_by_side,
    speedup,
    told,
    uses,
)
from kernelarc.engine import CampaignResult, verify
from kernelarc.genomes import matmul_target


def measure(seconds: float, seed: int, store: Path, output: Path | None) -> dict[str, Any]:
    """Search, verify and time warm; what is done is written before the next begins."""
    shapes = projections(TOKENS)
    result = search(shapes, PROJECTION, store, seconds=seconds * len(shapes), seed=seed)
    campaign = result.campaign_id
    assert campaign is not None
    use = uses(store, campaign)
    figures: dict[str, Any] = with_machine(
        {
            "what": "y += x W^T, K = N = 2560, bf16, residual in place, cold store",
            "seconds_a_shape": seconds,
            "geometric_mean": exported_mean(result, use),
            "geometric_mean_of_lower_bounds": geometric_mean(
                best.speedup.low if best.speedup and use[best.workload] == "algorithm" else 1.0
                for best in result.bests
            ),
            "never_slower": never_slower(result, use),
            **recorded(store, campaign),
            "uses": use,
            "campaign": told(result),
        }
    )
    write(figures, output)
    again = verify(str(store), campaign).to_json()
    del again["store"]
    figures["verify"] = again
    figures["geometric_mean_verify"] = geometric_mean(
        row["speedup"]["estimate"] for row in again["verified"] if row["speedup"]
    )
    write(figures, output)
    figures["warm"] = warm(result)
    return figures


def warm(result: CampaignResult) -> dict[str, Any]:
    """Time the bests beside the first heuristic with one set of buffers, as found in the cache."""
    problem = matmul_target(projections(TOKENS), PROJECTION)
    labels = {workload.label: workload.fingerprint for workload in problem.workloads}
    finds = {labels[best.workload]: genome_of(best) for best in result.bests}
    with opened(problem) as session:
        timed = side_by_side(session, {key: [g] for key, g in finds.items()}, cache="warm")
    rows = {
        label: speedup(timed[key], finds[key].fingerprint, BASELINE)
        for label, key in labels.items()
        if key in finds
    }
    return {
        "geometric_mean": geometric_mean(row["estimate"] for row in rows.values() if row),
        "speedups": rows,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=9.0, help="of searching, a shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, help="new file to keep the campaign in")
    output_option(parser)
    arguments = parser.parse_args()
    if arguments.store is not None and arguments.store.exists():
        parser.error(f"{arguments.store} is there already: the campaign begins from a cold store")
    with tempfile.TemporaryDirectory() as folder:
        store = arguments.store or Path(folder) / "l1_030.db"
        show(measure(arguments.seconds, arguments.seed, store, arguments.output), arguments.output)


if __name__ == "__main__":
    main()
