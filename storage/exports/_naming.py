"""Names of files and macros made from what people call things."""

from __future__ import annotations

import re
from pathlib import Path

from kernelarc.genomes import Workload


def paths_for(path: Path, workloads: tuple[Workload, ...]) -> dict[str, Path]:
    """Return where each workload's file goes, by fingerprint.

    One workload gets the path itself; of several each gets its label before the suffix.
    """
    if len(workloads) == 1:
        return {workloads[0].fingerprint: path}
    stem, dot, suffix = path.name.partition(".")
    taken: set[str] = set()
    found = {}
    for workload in workloads:
        label = re.sub(r"[^A-Za-z0-9=_-]+", "_", workload.label)
        if label in taken:
            label = f"{label}_{workload.fingerprint[:8]}"
        taken.add(label)
        found[workload.fingerprint] = path.with_name(f"{stem}.{label}{dot}{suffix}")
    return found


def macro_word(text: str) -> str:
    """Return text as the upper-case part of a C macro's name."""
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_") or "UNNAMED"
