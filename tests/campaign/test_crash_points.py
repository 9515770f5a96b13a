"""A campaign killed at every commit and between every two steps goes on as if nothing was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.campaign.conftest import RecordedSpace
from tests.campaign.killing import comparable, history, in_dying_child, run_here

from kernelarc.engine import CRASH_POINTS, resume

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

# A deterministic device confirms nothing: these two are passed on noisy devices only, and a
# device test dies there.
NOISY_ONLY = {"before-confirm", "after-confirm"}
SETTINGS: dict[str, Any] = {"budget": 60, "seed": 3, "models": False, "audit_every": 30}


def survive(space: Path, folder: Path, point: str, count: int) -> bool:
    """Die at the point, resume, and compare with a run that was left alone."""
    whole, torn = folder / "whole.db", folder / f"torn-{point}-{count}.db"
    if not whole.exists():
        run_here(space, whole, **SETTINGS)
    if not in_dying_child(lambda: run_here(space, torn, **SETTINGS), point, count):
        return False
    if point == "campaign-begun":
        # Nothing but the campaign's own row is there: it starts from its settings.
        assert history(torn) == []
    resume(str(torn))
    assert history(torn) == history(whole)
    assert comparable(torn) == comparable(whole)
    return True


@pytest.mark.parametrize("point", sorted(set(CRASH_POINTS) - NOISY_ONLY))
def test_death_between_two_steps_is_survived(
    point: str, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space = recorded_space()
    assert survive(space, tmp_path, point, 1)
    survive(space, tmp_path, point, 4)


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
def test_death_at_every_commit_is_survived(
    point: str, recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, count = recorded_space(), 1
    while survive(space, tmp_path, point, count):
        count += 1
    assert count > 3


def test_dying_again_and_again_still_ends_with_the_same_result(
    recorded_space: RecordedSpace, tmp_path: Path
) -> None:
    space, torn, whole = recorded_space(), tmp_path / "torn.db", tmp_path / "whole.db"
    run_here(space, whole, **SETTINGS)
    assert in_dying_child(lambda: run_here(space, torn, **SETTINGS), "after-commit", 3)
    for point, count in [("after-evaluation", 9), ("before-commit", 1), ("between-audits", 1)]:
        assert in_dying_child(lambda: resume(str(torn)), point, count)
    resume(str(torn))
    assert history(torn) == history(whole)
    assert comparable(torn) == comparable(whole)
