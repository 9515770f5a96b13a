"""How the best of a replayed campaign falls, evaluation by evaluation."""

from __future__ import annotations

import math

from kernelarc.engine import Counts, Observer
from kernelarc.genomes import Judged, Status


class Follower(Observer):
    """Notes the best after every unique evaluation.

    Attributes:
        curve: The best objective after 1, 2, ... evaluations; infinite before the first that ran.
    """

    def __init__(self) -> None:
        self.curve: list[float] = []

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """Note one."""
        found = judged.evaluation
        if found.properties.get("reused", False):
            return
        best = self.curve[-1] if self.curve else math.inf
        if found.status is Status.OK and found.measurement is not None:
            best = min(best, found.measurement.objective)
        self.curve.append(best)
