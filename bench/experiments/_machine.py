"""What benchmark programs share: where results go, and what they say about the machine."""

from __future__ import annotations

import argparse
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


def output_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says into which file the figures go, as ``output``."""
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the figures")


def keep(figures: dict[str, Any], path: Path | None) -> None:
    """Print the figures with the machine's, and write them where asked to."""
    show(with_machine(figures), path)


def show(figures: Any, path: Path | None) -> None:
    """Print figures that name their machine themselves, and write them where asked to."""
    print(json.dumps(figures, indent=1, default=str), flush=True)
    write(figures, path)


def write(figures: Any, path: Path | None) -> None:
    """Write figures where asked to; whoever is stopped meanwhile leaves the file that was there."""
    if path is not None:
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(figures, indent=1, default=str) + "\n")
        part.replace(path)
