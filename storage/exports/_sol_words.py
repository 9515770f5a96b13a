"""What a solution says of itself: name, and on what its figures stand."""

from __future__ import annotations

import re

from kernelarc.storage.exports._subject import Subject


def solution_name(subject: Subject, route: str) -> str:
    """Return a name made of problem, route and device."""
    text = f"kernelarc_{subject.operator.name}_{route}_{subject.device_label}"
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")


def about(subject: Subject) -> str:
    """Return one line: what was found where, and that no public board's figures are meant."""
    gains = [
        f"{best.speedup.value:.3f}"
        for best in subject.bests
        if best.audited and best.speedup is not None
    ]
    against = dict.fromkeys(b.against for b in subject.bests if b.audited and b.against)
    over = " or ".join(name.removeprefix("baseline:") for name in against) or "the baseline"
    return (
        f"Found by kernelarc on {subject.device_label}: {len(gains)} of "
        f"{len(subject.workloads)} shapes audited, speed-ups over {over}: {', '.join(gains)}. "
        f"Figures of that device, not comparable with a public board's."
    )
