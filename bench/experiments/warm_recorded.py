"""A campaign on a recorded product that is warm from campaigns on the folder's other products.

``python -m kernelarc.bench.experiments.warm_recorded FOLDER... [--seeds 3] [-o FILE]``. Every
recording of a folder is searched twice with one seed: in a store that holds a campaign over the
folder's others, and in an empty one. Figures: after how many evaluations each run reached what
the cold one ended with, and how far above that it stood after a third of the evaluations.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelarc.bench.experiments._machine import keep, output_option, with_machine, write
from kernelarc.bench.experiments._products import geometric_mean
from kernelarc.engine import CampaignSettings, run
from kernelarc.storage import open_reader

_PART = 3


def trajectory(target: Path, store: Path, evaluations: int, seed: int) -> list[float]:
    """Run a campaign on one recording; return the best objective after each evaluation."""
    result = run(
        CampaignSettings(target=str(target), store=str(store), budget=evaluations, seed=seed)
    )
    assert result.campaign_id is not None
    best: list[float] = []
    with open_reader(str(store)) as reader:
        for judged in reader.evaluations(result.campaign_id):
            timed = judged.evaluation.measurement
            found = math.inf if timed is None else timed.objective
            best.append(min(found, best[-1]) if best else found)
    return best


def compare(path: Path, others: Sequence[Path], evaluations: int, seed: int) -> dict[str, Any]:
    """Search one recording warm and cold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        near = folder / "others"
        near.mkdir()
        for other in others:
            (near / other.name).symlink_to(other.absolute())
        first = evaluations * len(others)
        run(CampaignSettings(target=str(near), store=f"{folder}/warm.db", budget=first, seed=seed))
        runs = {
            name: trajectory(path, folder / f"{name}.db", evaluations, seed)
            for name in ("warm", "cold")
        }
    goal = runs["cold"][-1]
    third = evaluations // _PART
    return {
        "recording": path.name,
        "seed": seed,
        "reached_after": {
            name: next((n + 1 for n, best in enumerate(run_) if best <= goal), None)
            for name, run_ in runs.items()
        },
        "over_goal_after_a_third": {
            name: round(run_[third - 1] / goal, 4) for name, run_ in runs.items()
        },
        "over_goal_at_the_end": {name: round(run_[-1] / goal, 4) for name, run_ in runs.items()},
    }


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--evaluations", type=int, default=150, help="a recording")
    parser.add_argument("--seeds", type=int, default=3)
    output_option(parser)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for folder in arguments.folders:
            paths = sorted(folder.glob("*.json.gz"))
            for path in paths:
                others = [other for other in paths if other != path]
                rows.append(compare(path, others, arguments.evaluations, seed))
                write(with_machine({"rows": rows}), arguments.output)
    means = {
        name: geometric_mean(row["over_goal_after_a_third"][name] for row in rows)
        for name in ("warm", "cold")
    }
    keep({"over_goal_after_a_third": means, "rows": rows}, arguments.output)


if __name__ == "__main__":
    main()
