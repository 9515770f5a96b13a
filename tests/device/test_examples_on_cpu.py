"""The example that compiles a kernel of its own."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import kernelarc
from kernelarc.cli import exit_code

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "own_route.py"


def test_a_route_of_one_s_own_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "over baseline:" in capsys.readouterr().out
    with kernelarc.open_store("own.db") as store:
        evaluations = [judged.evaluation for judged in store.evaluations(1)]
    assert len(evaluations) == 6
    assert any(evaluation.status is kernelarc.Status.OK for evaluation in evaluations)
    for command in (["verify", "own.db"], ["resume", "own.db", "--budget", "1"]):
        assert exit_code(command) == 2
        assert "a program brought its problem and device" in capsys.readouterr().err
