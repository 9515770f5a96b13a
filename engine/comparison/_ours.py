"""Our own search in a comparison: a whole campaign, as ``kernelarc run`` would drive it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelarc.engine._observer import Counts, Observer
from kernelarc.engine._run import run
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import Judged, Status


class _FoundError(Exception):
    """What was looked for was found."""


class _Follower(Observer):
    """Notes every unique evaluation in the order of the verdicts.

    Args:
        until: Objective at which the campaign is cut off.
    """

    def __init__(self, until: float | None) -> None:
        self.objectives: list[float] = []
        self._until = until

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        """Note one."""
        evaluation = judged.evaluation
        if evaluation.properties.get("reused", False):
            return
        measured = evaluation.status is Status.OK and evaluation.measurement is not None
        objective = evaluation.measurement.objective if evaluation.measurement else float("nan")
        self.objectives.append(objective if measured else float("nan"))
        if measured and self._until is not None and objective <= self._until:
            raise _FoundError


def play_campaign(
    table: Table,
    budget: int,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    *,
    until: float | None = None,
) -> list[float]:
    """Run one campaign on the table and return its unique evaluations' objectives in order.

    What the recorded device would have tried first is withheld: no peer is told of it.

    Args:
        table: The space; its device answers.
        budget: Unique evaluations.
        seed: The campaign's.
        settings: Campaign settings that differ from the defaults.
        until: Cut the campaign off at an objective this low: with the optimum for it, nothing
            that follows could change its trajectory.

    Raises:
        KeyboardInterrupt: Somebody asked this process to stop.
    """
    device, follower = table.device, _Follower(until)
    device.recording = replace(device.recording, seeds=())
    with tempfile.TemporaryDirectory(prefix="kernelarc-compare-") as folder:
        values = CampaignSettings.from_values(
            {
                "target": str(device.recording.path),
                "budget": budget,
                "seed": seed,
                "store": str(Path(folder) / "compare.db"),
                **(settings or {}),
            }
        )
        try:
            result = run(values, device=device, problem=device.problem, observer=follower)
        except _FoundError:
            return follower.objectives
    if result.status != "finished":
        # The campaign took the signal for itself; what it did until then is no whole run.
        raise KeyboardInterrupt
    return follower.objectives
