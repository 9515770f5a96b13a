"""Campaigns that die on the spot, and what is compared afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelarc.engine import CampaignSettings, _crash_points, result_of, run
from kernelarc.storage import Event, open_reader


def in_dying_child(work: Callable[[], object], point: str, count: int) -> bool:
    """Fork, arm a crash point in the child, run ``work`` there; tell whether it was killed.

    A child that gets through (the point is passed less often) ends with exit status 0.
    """
    child = os.fork()
    if child == 0:
        _crash_points._armed = f"{point}:{count}"
        _crash_points._passed = 0
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def comparable(store: Path) -> dict[str, Any]:
    """Return the JSON object without what may differ between equal runs."""
    with open_reader(store) as reader:
        found = result_of(reader, None, store=str(store)).to_json()
    for key in ("campaign_id", "seconds", "store"):
        del found[key]
    return found


def history(store: Path) -> list[object]:
    """Return the whole log but for events: what was asked, found and concluded, in order."""
    with open_reader(store) as reader:
        return [entry for _, entry in reader.log(1) if not isinstance(entry, Event)]


def run_here(space: Path, store: Path, **settings: Any) -> None:
    """Run a small campaign over a recorded space in this process."""
    run(CampaignSettings(target=str(space), store=str(store), **settings))
