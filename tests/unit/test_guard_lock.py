"""Row 23 and 36: one device, one job; the lock dies with its holder and with nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelarc.bench import LOCK_DIR_VARIABLE, DeviceLock, lock_path
from kernelarc.genomes import InputError, StoppedError

HOLD = """
import sys, time
from kernelarc.bench import DeviceLock
lock = DeviceLock("cpu", command="kernelarc run gemm").acquire()
print("held", flush=True)
"""
WAIT = "time.sleep(60)\n"
EXEC_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
"""
FORKED_CHILD = """
import os
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path))
    return tmp_path


class Holder:
    """A real process that holds the device ``cpu``."""

    def __init__(self, source: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", source],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
        assert self.line() == "held"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for holder in made:
        holder.kill()


def test_a_second_process_is_refused_and_told_who_holds_it(holders: list[Holder]) -> None:
    holders.append(Holder(HOLD + WAIT))
    with pytest.raises(StoppedError) as refused:
        DeviceLock("cpu").acquire()
    message = str(refused.value)
    assert f"process {holders[0].process.pid} (kernelarc run gemm)" in message
    assert "\n" not in message
    DeviceLock("cuda:0").acquire().release()  # another device is free


def test_the_lock_is_free_as_soon_as_its_holder_is_killed(holders: list[Holder]) -> None:
    holders.append(Holder(HOLD + WAIT))
    holders[0].kill()
    lock = DeviceLock("cpu").acquire()
    assert lock.held
    lock.release()


@pytest.mark.parametrize("child", [EXEC_CHILD, FORKED_CHILD], ids=["exec", "fork"])
def test_children_do_not_keep_the_lock_of_a_killed_parent(
    holders: list[Holder], child: str
) -> None:
    holders.append(Holder(HOLD + child + WAIT))
    pid = int(holders[0].line())
    try:
        holders[0].kill()
        os.kill(pid, 0)  # the child is alive
        DeviceLock("cpu").acquire(wait_s=1.0).release()
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_that_ends_does_not_free_the_lock() -> None:
    with DeviceLock("cpu"):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        with pytest.raises(StoppedError):
            DeviceLock("cpu").acquire()


def test_waiting_ends_when_the_holder_ends(holders: list[Holder]) -> None:
    holders.append(Holder(HOLD + "time.sleep(0.4)\n"))
    start = time.monotonic()
    DeviceLock("cpu").acquire(wait_s=20.0).release()
    assert time.monotonic() - start < 15.0


def test_one_process_cannot_take_it_twice() -> None:
    with DeviceLock("cpu") as lock:
        with pytest.raises(StoppedError, match="already in use by this process"):
            lock.acquire()
        with pytest.raises(StoppedError, match=f"process {os.getpid()}"):
            DeviceLock("cpu").acquire()
    assert not lock.held
    lock.release()


def test_an_existing_file_is_opened_without_o_creat(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sticky folder the kernel refuses O_CREAT on another user's file, even to root."""
    DeviceLock("cpu").acquire().release()
    flags: list[int] = []
    really_open = os.open

    def watched(path: str, flag: int, mode: int = 0o777) -> int:
        flags.append(flag)
        return really_open(path, flag, mode)

    monkeypatch.setattr(os, "open", watched)
    DeviceLock("cpu").acquire().release()
    assert len(flags) == 1
    assert not flags[0] & os.O_CREAT
    assert flags[0] & os.O_CLOEXEC


@pytest.fixture
def sticky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setenv(LOCK_DIR_VARIABLE, folder)
        yield Path(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("mode", [0o666, 0o444])
@pytest.mark.usefixtures("sticky")
def test_any_user_can_take_the_lock_of_another(mode: int) -> None:
    DeviceLock("cpu").acquire().release()
    lock_path("cpu").chmod(mode)
    assert _locked_as_nobody()
    with DeviceLock("cpu"):
        assert not _locked_as_nobody()


def _locked_as_nobody() -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            DeviceLock("cpu").acquire()
        except StoppedError:
            os._exit(3)
        except BaseException:
            os._exit(4)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 3)
    return code == 0


def test_the_umask_does_not_lock_other_users_out() -> None:
    before = os.umask(0o077)
    try:
        DeviceLock("cpu").acquire().release()
    finally:
        os.umask(before)
    assert lock_path("cpu").stat().st_mode & 0o777 == 0o666


def test_what_is_no_lock_file_is_refused_in_one_line(own_folder: Path) -> None:
    (own_folder / "target").touch()
    lock_path("linked").symlink_to(own_folder / "target")
    os.mkfifo(lock_path("piped"))
    lock_path("folder").mkdir()
    for device in ("linked", "piped", "folder"):
        with pytest.raises(InputError, match="lock") as refused:
            DeviceLock(device).acquire()
        assert "\n" not in str(refused.value)


def test_a_missing_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIR_VARIABLE, "/nowhere/at/all")
    with pytest.raises(InputError, match="no folder /nowhere/at/all"):
        DeviceLock("cpu").acquire()


@pytest.mark.parametrize("text", [b"", b'{"pid": 12', b"[]", b"\xff\xfe"])
def test_a_holder_text_half_written_is_no_error(text: bytes) -> None:
    with DeviceLock("cpu") as lock:
        lock.path.write_bytes(text)
        with pytest.raises(StoppedError, match="another process"):
            DeviceLock("cpu").acquire()


def test_names_of_devices_make_no_paths() -> None:
    assert lock_path("../../etc/x").parent == lock_path("cpu").parent
