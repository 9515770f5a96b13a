"""docs/guardrails.md names, for every row, code and tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
MODULE = re.compile(r"`((?:bench|engine|storage|islands|genomes)/[\w/]+\.py)`")


def rows() -> dict[int, tuple[str, str]]:
    """Return (guard, tests) by number."""
    text = (ROOT / "docs" / "guardrails.md").read_text()
    return {int(found[0]): (found[2], found[3]) for found in ROW.findall(text)}


@cache
def functions_of(file: str) -> frozenset[str]:
    return frozenset(function_names(file))


def function_names(file: str) -> Iterator[str]:
    for path in (ROOT / "tests").rglob(file):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield node.name


def test_every_row_is_there_once() -> None:
    numbers = [
        int(found[0]) for found in ROW.findall((ROOT / "docs" / "guardrails.md").read_text())
    ]
    assert numbers == list(range(1, 37))


@pytest.mark.parametrize("number", range(1, 37))
def test_a_row_names_code_and_tests_that_exist(number: int) -> None:
    guard, tests = rows()[number]
    named = TEST.findall(tests)
    assert named
    for file, function in named:
        assert function in functions_of(file), f"{file} has no {function}"
    for module in MODULE.findall(guard):
        assert (ROOT / module).is_file(), f"there is no {module}"


def test_every_test_that_is_named_anywhere_exists() -> None:
    named = TEST.findall((ROOT / "docs" / "guardrails.md").read_text())
    assert len(named) > 100
    assert [f"{file}::{name}" for file, name in named if name not in functions_of(file)] == []
