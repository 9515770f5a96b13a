"""A wheel holds exactly ``kernelarc``, with every module and kernel source, and searches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("genomes", "bench", "islands", "storage", "engine", "cli")
SHIPPED = {".cuh", ".py", ".c", ".h", ".cu", ".json", ".jsonl", ".toml", ".typed"}
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a wheel is built from, so that the checkout stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for folder in (*FOLDERS, "src"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=_SKIPPED)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """Build the wheel with the locked build backend; nothing is downloaded."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", source / "out", source],
        check=True,
        capture_output=True,
    )
    (built,) = (source / "out").glob("*.whl")
    return built


def _expected(source: Path) -> set[str]:
    files = {
        f"kernelarc/{name}" for name in ("__init__.py", "__main__.py", "runtime.py", "py.typed")
    }
    for folder in FOLDERS:
        for path in (source / folder).rglob("*"):
            name = str(path.relative_to(source))
            if path.suffix in SHIPPED and not name.startswith("bench/results/"):
                files.add(f"kernelarc/{name}")
    return files


def test_the_wheel_holds_every_module_and_source_and_nothing_else(
    source: Path, wheel: Path
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    content = {name for name in names if ".dist-info/" not in name}
    assert content == _expected(source)
    assert any(name.endswith(".c") for name in content)
    assert any(name.endswith("LICENSE") for name in names)


def _venv_with(wheel: Path, folder: Path) -> Path:
    """Make a venv with the wheel in it; the dependencies are borrowed from this environment."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # A path file in a folder that a path file names is not read: our own editable install,
    # if there is one, does not come along.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def test_gemm_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    python = _venv_with(wheel, tmp_path / "venv")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment["KERNELARC_LOCK_DIR"] = str(tmp_path)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [python, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run("-c", "import kernelarc.engine as e; print(e.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path)
    axes = [word for axis in "MNK" for word in ("--set", f"{axis}=48")]
    limits = ("--budget", "2", "--audit-rounds", "5", "--json")
    result = json.loads(run("-m", "kernelarc", "run", "gemm", *axes, *limits))
    assert result["best"]["route"]
    assert result["evaluations"]["unique"] == 2
