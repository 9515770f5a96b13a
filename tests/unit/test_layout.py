"""The layout promised in ADR 0001, and words that stay out of names and texts."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("genomes", "bench", "islands", "storage", "engine", "cli")
AVOIDED = {
    *("manager", "helper", "helpers", "util", "utils", "data", "info", "handle"),
    *("config", "dna", "deme", "measures", "restriction", "restrictions"),
}
# Spelt in pieces so that this file does not contain them.
_HOSTS = ("py" + "pi.org", "files.python" + "hosted", "deb.debi" + "an")
_ELSEWHERE = ("/wo" + "rk/", ".lib" + "rary/", "../sha" + "red")
_MADE_UP = {"cli/_name.py"}


def tracked(*patterns: str) -> list[Path]:
    """Return the committed files; the tests run in a checkout."""
    done = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in done.stdout.split("\0") if name]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_role_is_a_folder_at_the_root_and_a_relative_link(folder: str) -> None:
    link = ROOT / "src" / "kernelarc" / folder
    assert link.is_symlink()
    assert str(link.readlink()) == f"../../{folder}"
    assert link.resolve() == ROOT / folder
    assert (ROOT / folder / "__init__.py").is_file()


def test_src_holds_no_logic() -> None:
    package = ROOT / "src" / "kernelarc"
    files = {path.name for path in package.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "py.typed", "runtime.py"}
    # The runtime is a name that programs import; what it does stands in engine/.
    kinds = {type(node) for node in ast.parse((package / "runtime.py").read_text()).body}
    assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}


def _defined(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _vague(name: str) -> bool:
    # A process of the operating system is one; to "process" something says nothing.
    return bool(_words(name) & AVOIDED) or name.lstrip("_").startswith("process_")


def test_no_avoided_word_stands_in_a_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in (path.stem, *_defined(path))
        if _vague(name)
    ]
    assert found == []


def test_no_text_names_a_place_outside_the_project() -> None:
    found = []
    for path in tracked():
        if path.is_symlink() or not path.is_file() or path.suffix in {".gz", ".db"}:
            continue
        text = path.read_text(errors="replace")
        found += [f"{path.relative_to(ROOT)}: {w}" for w in (*_HOSTS, *_ELSEWHERE) if w in text]
    assert found == []


def test_every_relative_link_in_the_documents_resolves() -> None:
    broken = []
    for path in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_decision_has_a_number_of_its_own_and_stands_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    names = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in names] == [f"{n:04d}" for n in range(1, len(names) + 1)]
    assert re.findall(r"^\| \[\d+\]\((.+?)\)", (folder / "README.md").read_text(), re.M) == names
    for name in names:
        assert (folder / name).read_text().startswith(f"# {name[:4]}: ")


def test_every_path_that_the_documents_name_is_there() -> None:
    named = re.compile(rf"`((?:{'|'.join(FOLDERS)}|tests|tools|examples)/[\w./*-]+)`")
    missing = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in tracked("*.md")
        for place in named.findall(path.read_text())
        if not list(ROOT.glob(place.rstrip("/"))) and place not in _MADE_UP
    ]
    assert missing == []


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned: dict[str, list[str]] = {}
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    for name, version in (m.groups() for m in map(re.compile(r"^(\S+)==(\S+)").match, lines) if m):
        pinned.setdefault(canonicalize_name(name), []).append(version)
    for wanted in map(Requirement, asked):
        versions = pinned.get(canonicalize_name(wanted.name), [])
        assert versions, f"make lock: {wanted.name} is not in it"
        assert all(wanted.specifier.contains(version) for version in versions), wanted
