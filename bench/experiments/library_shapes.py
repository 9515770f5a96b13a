"""Nine products as they occur in models, plain and with a residual: one campaign of each kind.

``python -m kernelarc.bench.experiments.library_shapes [--seconds 4] [--only KIND] [-o FILE]``.
What comes out is each campaign's audited table, and whether an exported algorithm is not surely
faster than the library's first heuristic: none may be.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelarc.bench.experiments._machine import output_option, show, with_machine, write
from kernelarc.bench.experiments._products import (
    exported_mean,
    never_slower,
    recorded,
    search,
    told,
    uses,
)

SHAPES = tuple(
    {"M": m, "N": n, "K": k}
    for m, n, k in (
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (64, 14336, 4096),
        (1000, 1000, 1000),
        (1024, 28672, 8192),
        (2048, 6144, 2048),
        (512, 4096, 14336),
        (16, 4096, 4096),
        (256, 256, 65536),
    )
)
_OPTIONS = {"dtype": "bf16", "layout": "TN", "workspace_mib": 64}
_PLAIN, _RESIDUAL = "plain", "with residual in place"
KINDS = (_PLAIN, _RESIDUAL)


def measure(
    seconds: float, seed: int, output: Path | None, kinds: Sequence[str] = KINDS
) -> dict[str, Any]:
    """Run the campaigns; the first's figures are written before the second begins."""
    figures = with_machine({"seconds_a_shape": seconds, "campaigns": {}})
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "s.db"
            options = {**_OPTIONS, "residual": kind != _PLAIN}
            result = search(SHAPES, options, store, seconds=seconds * len(SHAPES), seed=seed)
            assert result.campaign_id is not None
            use = uses(store, result.campaign_id)
            figures["campaigns"][kind] = {
                "geometric_mean": exported_mean(result, use),
                "never_slower": never_slower(result, use),
                **recorded(store, result.campaign_id),
                "uses": use,
                "campaign": told(result),
            }
        write(figures, output)
    return figures


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of searching, a shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help="the other one stays out")
    output_option(parser)
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else KINDS
    show(measure(arguments.seconds, arguments.seed, arguments.output, kinds), arguments.output)


if __name__ == "__main__":
    main()
