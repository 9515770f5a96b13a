"""The public names exist, load lazily, and the examples that need no compiler run."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import kernelarc
from kernelarc.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("name", kernelarc.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    found = getattr(kernelarc, name)
    assert found.__doc__
    assert name in (kernelarc.__doc__ or "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kernelarc.nothing


@pytest.mark.parametrize("statement", ["import kernelarc", "import kernelarc.cli"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    heavy = "{'numpy', 'optuna', 'sqlalchemy', 'deap', 'rich'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "src",
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("command", [*COMMANDS, "bench search"])
def test_the_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    words = [*command.split(), "--help"]
    script = (
        "import sys; from kernelarc.cli import exit_code\n"
        f"assert exit_code({words!r}) == 0\n"
        "print({'numpy', 'optuna', 'sqlalchemy', 'deap'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT / "src"
    )
    assert f"kernelarc {command} [OPTIONS]" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    "package", ["genomes", "storage", "storage.exports", "engine", "engine.comparison"]
)
def test_every_name_of_a_package_is_found_on_first_use(package: str) -> None:
    module = importlib.import_module(f"kernelarc.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"'kernelarc.{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_examples_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run_and_resume", "read_a_store", "own_space"):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "finished (budget)" in printed
    assert "after 18 evaluations" in printed
    assert "24,480 legal" in printed


def test_every_example_is_named_in_the_api_document() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"../examples/{path.name}" in text
