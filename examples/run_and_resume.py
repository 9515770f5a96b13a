"""Run a campaign with a callback per verdict, then give it more budget.

Needs no GPU and no compiler: it writes a small recorded space and searches that. To search a real
kernel on this machine's CPU, say ``target="gemm"`` and ``axes={"M": 512, "N": 512, "K": 512}``.
"""

import json
from pathlib import Path

import kernelarc


def write_space(path: Path) -> Path:
    """Write a recorded space: 6 x 4 configurations of a kernel, with their times in ms."""
    tiles, unrolls = [4, 8, 16, 32, 64, 128], [1, 2, 4, 8]
    rows = {
        f"{tile},{unroll}": {
            "tile": tile,
            "unroll": unroll,
            "time": 1.0 + abs(tile - 32) / 32 + abs(unroll - 4) / 8,
        }
        for tile in tiles
        for unroll in unrolls
    }
    content = {
        "device_name": "a recorded GPU",
        "kernel_name": "example",
        "problem_size": [4096],
        "tune_params_keys": ["tile", "unroll"],
        "tune_params": {"tile": tiles, "unroll": unrolls},
        "cache": rows,
    }
    path.write_text(json.dumps(content))
    return path


class Printer(kernelarc.Observer):
    """Prints every new best. Whatever an observer is told was committed to the store before."""

    def on_verdict(self, judged: kernelarc.Judged, counts: kernelarc.Counts) -> None:
        """Print a KEEP with its genome."""
        measurement = judged.evaluation.measurement
        if judged.verdict is kernelarc.Verdict.KEEP and measurement is not None:
            candidate = judged.evaluation.candidate
            print(f"#{candidate.number}: {measurement.objective:.3f} ms {dict(candidate.genome)}")


def main() -> None:
    """Search, then extend the finished campaign."""
    settings = kernelarc.CampaignSettings(
        target=str(write_space(Path("example.json"))), budget=8, seed=2, store="example.db"
    )
    first = kernelarc.run(settings, observer=Printer())
    assert first.best is not None
    print(f"{first.status} ({first.reason}): {first.best.objective} {first.best.unit}")

    again = kernelarc.resume("example.db", budget=10, observer=Printer())
    assert again.best is not None
    print(f"after {again.evaluations.unique} evaluations: {again.best.objective}")
    assert again.best.objective <= first.best.objective
    assert again.evaluations.unique == first.evaluations.unique + 10


if __name__ == "__main__":
    main()
