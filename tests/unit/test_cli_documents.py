"""The documents say what the program does: help texts, README commands, TOML keys."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import click
import pytest

from kernelarc.cli import COMMANDS, program
from kernelarc.engine import CampaignSettings

ROOT = Path(__file__).resolve().parent.parent.parent


def _command(name: str) -> click.Command:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    return found


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "tools" / "command_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_listed_line_is_the_first_of_the_command_s_help(name: str) -> None:
    assert (_command(name).help or "").split("\n")[0] == COMMANDS[name]


def test_every_command_stands_in_the_document_with_its_help() -> None:
    tool = _tool()
    page = (ROOT / "docs" / "commands.md").read_text()
    assert tool.documented(page) == tool.commands() >= {"bench search", *COMMANDS}
    assert tool.filled(page) == page


def _command_lines(text: str) -> list[list[str]]:
    lines = re.findall(r"^(?:\$ )?kernelarc (.+)$", text, re.MULTILINE)
    return [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]


@pytest.mark.parametrize("document", ["README.md", "docs/commands.md"])
def test_every_command_line_in_a_document_parses(document: str) -> None:
    found = _command_lines((ROOT / document).read_text())
    assert found
    for words in found:
        if words[0] not in COMMANDS:
            continue
        command = _command(words[0])
        command.make_context(words[0], list(words[1:]))


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        for name in re.findall(r"make ([a-z]+)\b", (ROOT / document).read_text()):
            assert name in targets | {"it"}, f"{document}: make {name}"


def test_every_flag_of_run_is_a_key_and_every_key_is_documented() -> None:
    keys = set(CampaignSettings.keys())
    flags = {
        str(parameter.name)
        for parameter in _command("run").params
        if isinstance(parameter, click.Option)
    }
    assert flags - {"dry_run", "help"} == keys - {"target"}
    text = (ROOT / "docs" / "commands.md").read_text()
    for key in keys:
        assert re.search(rf"\b{key}\b", text), key
