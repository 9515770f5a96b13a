"""Every benchmark program starts in the default install and says how it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from kernelarc.bench import experiments
from kernelarc.bench.experiments._machine import keep

PROGRAMS = sorted(
    path.stem
    for path in Path(experiments.__path__[0]).glob("*.py")
    if not path.stem.startswith("_")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = import_module(f"kernelarc.bench.experiments.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    assert f"usage: {name}" in capsys.readouterr().out


def test_figures_are_kept_with_the_machine_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep({"median_us": 1.5}, tmp_path / "figures.json")
    text = (tmp_path / "figures.json").read_text()
    assert '"median_us": 1.5' in text
    assert '"date"' in text and '"environment"' in text
    assert capsys.readouterr().out == text
