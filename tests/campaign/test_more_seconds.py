"""Seconds that are added to a campaign are there to search, whatever it spent before."""

from __future__ import annotations

from pathlib import Path

from tests.campaign.conftest import RecordedSpace

from kernelarc.bench import ReplayDevice
from kernelarc.engine import CampaignSettings, Counts, Observer, StopRequest, resume, run
from kernelarc.genomes import Judged

DELAY_S, BEFORE, MORE_S = 0.02, 25, 0.4


class _Stopping(Observer):
    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        if counts.unique >= BEFORE:
            self._stop.ask()


def test_more_seconds_are_seconds_of_search(recorded_space: RecordedSpace, tmp_path: Path) -> None:
    space, store = recorded_space(), str(tmp_path / "s.db")
    device = ReplayDevice(space, delay_s=DELAY_S)
    stop = StopRequest()
    settings = CampaignSettings(target=str(space), budget=1000, store=store)
    first = run(settings, device=device, observer=_Stopping(stop), stop=stop)
    assert first.status == "interrupted"
    assert first.seconds > MORE_S
    more = resume(store, seconds=MORE_S, device=device)
    assert (more.status, more.reason) == ("finished", "seconds")
    assert 3 < more.evaluations.unique - first.evaluations.unique <= MORE_S / DELAY_S + 1
