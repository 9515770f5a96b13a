"""Islands that read only their own evaluations: conclusions are what they learn of one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaign.conftest import RecordedSpace

from kernelarc.engine import CampaignSettings, run
from kernelarc.engine._arena import Arena
from kernelarc.engine._campaign import build_state, fold
from kernelarc.engine._run import make_ground
from kernelarc.genomes import Conclusion, ConclusionKind, Judged
from kernelarc.storage import open_reader, open_writer

REVERT = "attribute.revert"


def settled(space: Path, store: Path, *, conclusions: bool) -> tuple[Arena, list[Judged]]:
    """Run a campaign with closed logs; return where it ends and what it evaluated."""
    settings = CampaignSettings(
        target=str(space),
        store=str(store),
        budget=120,
        seed=4,
        share_log=False,
        conclusions=conclusions,
    )
    run(settings)
    with make_ground(settings).open() as session, open_writer(str(store)) as writer:
        state = build_state(session, settings)
        fold(state, writer, 1)
    state.tell_for(10**9)
    with open_reader(store) as reader:
        entries = [entry for _, entry in reader.log(1) if isinstance(entry, Judged)]
    (arena,) = state.arenas.values()
    return arena, entries


def wins(store: Path) -> list[Conclusion]:
    with open_reader(store) as reader:
        return [c for _, c in reader.conclusions() if c.kind is ConclusionKind.WIN]


@pytest.mark.parametrize("conclusions", [True, False])
def test_a_win_shows_the_evaluation_that_it_rests_on(
    conclusions: bool, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    store = tmp_path / "s.db"
    arena, entries = settled(recorded_space(), store, conclusions=conclusions)
    proposer = {e.evaluation.candidate.genome.fingerprint: e.evaluation.candidate for e in entries}
    foreign = {
        (name, win.genome.fingerprint)
        for win in wins(store)
        for name in arena.islands
        if win.genome is not None and proposer[win.genome.fingerprint].island != name
    }
    assert foreign, "some island won something"
    seen = {pair for pair in foreign if arena.view_of(pair[0]).find(pair[1]) is not None}
    assert seen == (foreign if conclusions else set())
    others = {
        judged.evaluation.candidate.island
        for name in arena.islands
        for judged in arena.view_of(name).recent(512)
        if judged.evaluation.candidate.island not in {name, "device", "engine"}
    }
    assert bool(others) is conclusions, "nothing else of the others is seen"


def test_wins_are_explained_from_the_start_and_only_where_somebody_hears(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space = recorded_space()
    _, heard = settled(space, tmp_path / "heard.db", conclusions=True)
    trials = [i for i, e in enumerate(heard) if e.evaluation.candidate.mutation == REVERT]
    assert trials
    assert trials[0] < 40
    assert len(trials) <= 0.1 * len(heard) + 1
    _, unheard = settled(space, tmp_path / "unheard.db", conclusions=False)
    assert not [e for e in unheard if e.evaluation.candidate.mutation == REVERT]
