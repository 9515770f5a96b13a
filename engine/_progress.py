"""Snapshots of a running campaign for whoever displays it."""

from __future__ import annotations

from kernelarc.engine._arena import Arena
from kernelarc.engine._compare import exact_speedup
from kernelarc.engine._observer import IslandShare, Progress
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine._state import CampaignState


def island_shares(state: CampaignState) -> dict[str, IslandShare]:
    """Return every island's part in the campaign, asleep ones with their reason."""
    arenas = list(state.arenas.values())
    total = sum(t.judged for arena in arenas for t in arena.tallies.values())
    found: dict[str, IslandShare] = {}
    for arena in arenas:
        for name, tally in arena.tallies.items():
            so_far = found.get(name)
            proposals = tally.judged + (so_far.proposals if so_far else 0)
            keeps = tally.keeps + (so_far.keeps if so_far else 0)
            share = proposals / total if total else 0.0
            found[name] = IslandShare(asleep=None, proposals=proposals, keeps=keeps, share=share)
    for name, why in (item for arena in arenas for item in arena.asleep.items()):
        found.setdefault(name, IslandShare(asleep=why, proposals=0, keeps=0, share=0.0))
    return found


def progress_of(
    state: CampaignState, settings: CampaignSettings, *, elapsed_s: float, stage: str
) -> Progress:
    """Return a snapshot; the best shown is the first workload's."""
    budget = settings.budget + state.budget_added if settings.budget is not None else None
    first = next(iter(state.arenas.values()))
    best, objective, unit, gain = _best(first)
    evaluated = state.counting.spent
    return Progress(
        evaluated=evaluated,
        budget=budget,
        seconds=settings.seconds,
        elapsed_s=elapsed_s,
        rate=evaluated / elapsed_s if elapsed_s > 0 else 0.0,
        best=best,
        objective=objective,
        unit=unit,
        gain=gain,
        stage=stage,
        counts=state.counts,
        islands=island_shares(state),
    )


def _best(arena: Arena) -> tuple[str | None, float | None, str, float | None]:
    incumbent = arena.ledger.incumbent
    if incumbent is None or incumbent.evaluation.measurement is None:
        return None, None, "us", None
    measurement = incumbent.evaluation.measurement
    gain = exact_speedup(incumbent, arena.ledger.claims[0]).value
    name = incumbent.evaluation.candidate.genome.fingerprint[:12]
    return name, measurement.objective, measurement.unit, gain
