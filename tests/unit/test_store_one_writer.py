"""One writing process a store: the second is refused by name, and no death leaves a lock."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store_records import HERE, RACE, SPEC, asked_and_told

from kernelarc.genomes import InputError
from kernelarc.storage import open_reader, open_writer

ROOT = Path(__file__).resolve().parent.parent.parent
HOLD = """
import sys, time
from kernelarc.storage import open_writer
writer = open_writer(sys.argv[1], create=True)
{more}
print("holding", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def holder(path: Path, more: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run another process that opens the store for writing and keeps it."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(more=more), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "holding\n"
            yield child
        finally:
            child.kill()


def test_a_second_process_is_refused_by_name_and_told_how_to_wait(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    with holder(path) as child:
        with pytest.raises(InputError) as caught:
            open_writer(path)
        line = str(caught.value)
        assert re.search(rf"in use by a running campaign \(pid {child.pid}: .*{path}\)", line)
        assert f"tail --pid={child.pid}" in line
        assert "\n" not in line
        assert caught.value.exit_code == 2


def test_a_second_writer_of_one_process_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    with (
        open_writer(path, create=True),
        pytest.raises(InputError, match=rf"in use by a running campaign \(pid {os.getpid()}:"),
    ):
        open_writer(path)
    open_writer(path).close()


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    with holder(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert (tmp_path / "kernelarc.db.lock").exists()
        with open_writer(path) as writer:
            assert writer.begin(SPEC, HERE) == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_readers_work_beside_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    more = (
        "from tests.unit.store_records import *\n"
        "writer.append(writer.begin(SPEC, HERE), asked_and_told(5))"
    )
    with holder(path, more), open_reader(path) as reader:
        assert len(list(reader.log(1))) == 10


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    more = "import os\nif os.fork() == 0:\n    time.sleep(60)\n"
    with holder(path, more) as child:
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(child.pid)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        child.kill()
        child.wait()
        try:
            open_writer(path).close()
        finally:
            for orphan in children:
                os.kill(int(orphan), signal.SIGKILL)
    assert len(children) == 1


def test_a_started_program_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    writer = open_writer(path, create=True)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            writer.close()
            open_writer(path).close()
        finally:
            child.kill()


def test_the_lock_of_a_full_disk_still_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    path = tmp_path / "kernelarc.db"
    open_writer(path, create=True).close()
    monkeypatch.setattr(os, "pwrite", full)
    with open_writer(path), pytest.raises(InputError, match="in use by a running campaign"):
        open_writer(path)


def test_a_lock_that_is_removed_while_waiting_is_not_taken(tmp_path: Path) -> None:
    """Releasing removes the file: who opened it before must not count it as the lock."""
    path = tmp_path / "kernelarc.db"
    for _ in range(3):
        first = open_writer(path, create=True)
        assert json.loads((tmp_path / "kernelarc.db.lock").read_text())["pid"] == os.getpid()
        first.close()
        assert not (tmp_path / "kernelarc.db.lock").exists()


def test_many_processes_race_and_one_wins(tmp_path: Path) -> None:
    """Everyone appends under the lock or is refused; nothing is lost, nothing interleaves."""
    path = tmp_path / "kernelarc.db"
    with open_writer(path, create=True) as writer:
        writer.begin(SPEC, HERE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", RACE, str(path), name], env=environment)
        for name in "abc"
    ]
    deadline = time.monotonic() + 60
    codes = [child.wait(max(0.1, deadline - time.monotonic())) for child in running]
    assert codes == [0, 0, 0]
    with open_reader(path) as reader:
        kinds = [event.kind for event in reader.events(1)]
    for name in "abc":
        assert [kind for kind in kinds if kind[0] == name] == [f"{name}{n}" for n in range(5)]


def test_a_writer_that_cannot_tidy_up_leaves_the_wal_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    writer = open_writer(path, create=True)
    writer.append(writer.begin(SPEC, HERE), asked_and_told(2))
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 4
        writer.close()
        assert len(list(reader.log(1))) == 4
        with open_writer(path) as other:
            other.append(1, asked_and_told(1, start=2))
            assert len(list(reader.log(1))) == 6
    open_writer(path).close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
