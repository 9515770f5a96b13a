"""Row 25 and 23: what identifies an environment, what is only seen, and who else is running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernelarc.bench import (
    ForeignLoad,
    ForeignProcess,
    LoadWatch,
    affinity,
    cpu_environment,
    cpu_features,
    cpu_observations,
    file_hash,
    source_hash,
)

SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
DETACHED = f"""
import subprocess, sys
quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
spin = [sys.executable, "-c", {SPIN.format(20)!r}]
print(subprocess.Popen(spin, start_new_session=True, **quiet).pid)
"""


def test_identity_holds_versions_and_contents_but_no_paths() -> None:
    found = cpu_environment(compiler="cc 12.2.0", source="abc")
    for part in ("cpu", "features", "caches", "compiler", "libc", "python", "numpy", "blas"):
        assert found.identity[part], part
    assert found.identity["cores"] == str(len(affinity()))
    assert not any("/" in found.identity[part] for part in ("compiler", "blas", "python"))
    assert "load" in found.observations
    assert Path(found.observations["python_path"]).is_absolute()


def test_identity_is_stable_and_changes_with_compiler_and_source() -> None:
    first = cpu_environment(compiler="cc 12.2.0", source="abc")
    assert cpu_environment(compiler="cc 12.2.0", source="abc").fingerprint == first.fingerprint
    assert cpu_environment(compiler="cc 13.1.0", source="abc").fingerprint != first.fingerprint
    assert cpu_environment(compiler="cc 12.2.0", source="abd").fingerprint != first.fingerprint


def test_identity_does_not_depend_on_what_else_is_loaded() -> None:
    """Another package's BLAS in the process is not the one that NumPy uses."""
    code = (
        "{}from kernelarc.bench import cpu_environment\n"
        "print(cpu_environment(compiler='c', source='s').fingerprint)"
    )
    root = Path(__file__).parents[2] / "src"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code.format(first)],
            env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first in ("", "import optuna, sqlite3\n")
    }
    assert len(printed) == 1


def test_a_library_that_changes_under_the_same_name_is_seen(tmp_path: Path) -> None:
    """The planted fault of row 25."""
    library = tmp_path / "libblas.so"
    library.write_bytes(b"one")
    before = file_hash(library)
    assert file_hash(library) == before
    library.write_bytes(b"two!")
    assert file_hash(library) != before


def test_a_source_hash_is_of_contents_and_names_not_of_places(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.c").write_text("int a;")
        (tmp_path / folder / "b.c").write_text("int b;")
    first = source_hash([tmp_path / "x" / "a.c", tmp_path / "x" / "b.c"])
    assert source_hash([tmp_path / "y" / "b.c", tmp_path / "y" / "a.c"]) == first
    assert source_hash([tmp_path / "y" / "b.c"]) != first


def test_observations_are_filled_or_absent_and_features_known() -> None:
    assert all(cpu_observations().values())
    assert all(" " not in feature for feature in cpu_features())


def test_own_children_are_not_foreign() -> None:
    watch = LoadWatch()
    child = subprocess.Popen([sys.executable, "-c", SPIN.format(5)])
    try:
        time.sleep(0.5)
        load = watch.foreign()
    finally:
        child.kill()
        child.wait()
    assert load.seconds >= 0.5
    assert child.pid not in {process.pid for process in load.processes}


def test_a_foreign_process_is_seen_and_named() -> None:
    """Row 23: started so that it does not descend from us."""
    watch = LoadWatch()
    started = subprocess.run(
        [sys.executable, "-c", DETACHED], capture_output=True, text=True, check=True
    )
    pid, seen = int(started.stdout), ForeignLoad()
    for _ in range(10):
        time.sleep(0.3)
        seen = watch.foreign()
        if pid in {process.pid for process in seen.processes}:
            break
    os.kill(pid, signal.SIGKILL)
    assert pid in {process.pid for process in seen.processes}
    assert seen.cpus > 0.1
    assert "others used" in (seen.warning() or "")


def test_a_quiet_machine_gives_no_warning() -> None:
    assert ForeignLoad(cpus=0.05, seconds=1.0).warning() is None
    busy = ForeignLoad(
        cpus=0.9, stolen=0.2, seconds=1.0, processes=(ForeignProcess(pid=7, name="cc1", cpus=0.9),)
    )
    assert busy.warning() == (
        "others used 0.90 of the cores while timing, the hypervisor took 0.20: cc1 (7) 0.90"
    )


def test_a_span_too_short_to_judge_says_nothing() -> None:
    assert LoadWatch().foreign() == ForeignLoad()
