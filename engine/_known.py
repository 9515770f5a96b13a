"""What earlier campaigns of the same store measured in the same environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernelarc.engine._arena import STORE, Arena
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Candidate, Evaluation, Judged, Status, Verdict
from kernelarc.storage import Entry, Known, Round, StoreReader

# The best known genomes join the new campaign's log, as parents and as the bar to pass.
_REUSED = 16


def _earlier(arena: Arena, reader: StoreReader, campaign: int) -> Iterator[Known]:
    """Yield what campaigns before this one know; a later one must not change a resumed one."""
    environment = reader.campaign(campaign).environment.fingerprint
    for known in reader.known(environment, arena.key):
        if known.campaign < campaign:
            yield known


def reserve_known(state: CampaignState, reader: StoreReader, campaign: int) -> None:
    """Note what is known, so that no device time is spent on it again."""
    if campaign == 1:
        return
    for arena in state.arenas.values():
        for known in _earlier(arena, reader, campaign):
            arena.view.reserve(known.genome.fingerprint)


def known_entries(state: CampaignState, reader: StoreReader, campaign: int) -> list[Entry]:
    """Return rounds, one a workload, that copy the best known evaluations into this campaign.

    They are marked ``reused`` and count for no budget. Empty where nothing is known.
    """
    if campaign == 1:
        return []
    entries: list[Entry] = []
    number, round_number = state.next_number, state.next_round
    for arena in state.arenas.values():
        best = _best_known(arena, reader, campaign)
        if not best:
            continue
        evaluations = [
            _reused(known, number=number + place, round_number=round_number)
            for place, known in enumerate(best)
        ]
        entries.append(Round(number=round_number, counts={}))
        entries.extend(evaluation.candidate for evaluation in evaluations)
        # The first becomes the bar; the others, being no better, are working points.
        entries.extend(Judged(evaluation=e, verdict=Verdict.ACCEPT) for e in evaluations)
        number, round_number = number + len(best), round_number + 1
    return entries


def _best_known(arena: Arena, reader: StoreReader, campaign: int) -> list[Known]:
    """Return the best that earlier campaigns measured and this one may have, best first."""
    ranked = sorted(
        (known.evaluation.measurement.objective, known.genome.fingerprint, known)
        for known in _earlier(arena, reader, campaign)
        if known.evaluation.status is Status.OK
        and known.evaluation.measurement is not None
        and not known.evaluation.measurement.censored
        and arena.spaces.get(known.genome.route) is not None
        and arena.spaces[known.genome.route].contains(known.genome)
    )
    return [known for _, _, known in ranked[:_REUSED]]


def _reused(known: Known, *, number: int, round_number: int) -> Evaluation:
    candidate = Candidate(
        number=number,
        round=round_number,
        workload=known.evaluation.candidate.workload,
        island=STORE,
        mutation="known",
        genome=known.genome,
    )
    properties = {**known.evaluation.properties, "reused": True}
    return replace(known.evaluation, candidate=candidate, cost_s=0.0, properties=properties)
