"""What every result file says about where and when it was measured."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelarc.bench import cpu_environment


def with_machine(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures with date, environment identity and what was observed."""
    environment = cpu_environment(compiler="not used", source="not used")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "environment": dict(environment.identity),
        # Where things lie on one person's disk says nothing to anybody else.
        "observations": {k: v for k, v in environment.observations.items() if "path" not in k},
        **figures,
    }


def keep(figures: dict[str, Any], path: Path | None) -> None:
    """Print the figures, and write them where asked to."""
    text = json.dumps(with_machine(figures), indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n")
