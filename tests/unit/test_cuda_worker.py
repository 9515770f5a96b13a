"""The worker process: its conversation, its death, and what the coordinator maps."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelarc.bench.cuda import CudaDevice
from kernelarc.bench.cuda._process import WorkerProcess, checked
from kernelarc.bench.cuda._protocol import Channel, Fault, Request, WorkerGoneError
from kernelarc.genomes import InputError, MissingPartError, StoppedError

LIBRARIES = ("libcuda.", "libcudart", "libcublas", "libnvidia-ml", "libnvrtc")
HAS_GPU = Path("/dev/nvidiactl").exists()


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that died and was not collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: object, timeout_s: float = 20.0) -> bool:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if callable(condition) and condition():
            return True
        time.sleep(0.02)
    return False


# The conversation


def pair() -> tuple[Channel, Channel]:
    left, right = socket.socketpair()
    return Channel(left), Channel(right)


def test_messages_arrive_whole_and_in_order() -> None:
    left, right = pair()
    big = bytes(range(256)) * 40_000

    def speak() -> None:
        for message in (Request(verb="check"), big, [1, "two"]):
            left.send(message)

    speaker = threading.Thread(target=speak)
    speaker.start()
    assert [right.receive(10.0) for _ in range(3)] == [Request(verb="check"), big, [1, "two"]]
    speaker.join()
    left.close()
    right.close()


def test_silence_is_a_timeout_and_a_closed_end_is_gone() -> None:
    left, right = pair()
    with pytest.raises(TimeoutError):
        right.receive(0.01)
    assert not right.ready()
    left.send("last")
    left.close()
    assert right.ready()
    assert right.receive() == "last"
    with pytest.raises(WorkerGoneError):
        right.receive(1.0)
    with pytest.raises(WorkerGoneError):
        for _ in range(3):
            right.send(bytes(1 << 20))
    right.close()


def test_half_a_message_is_waited_for() -> None:
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    theirs.sendall(b"\x10\0\0\0")
    with pytest.raises(TimeoutError):
        channel.receive(0.05)
    theirs.close()
    with pytest.raises(WorkerGoneError):
        channel.receive(1.0)
    channel.close()


def test_faults_become_errors_with_their_exit_code() -> None:
    assert checked(5) == 5
    for kind, error in (("InputError", InputError), ("MissingPartError", MissingPartError)):
        with pytest.raises(error, match="no such"):
            checked(Fault(kind=kind, message="no such thing"))
    with pytest.raises(StoppedError, match="worker failed: boom"):
        checked(Fault(kind="", message="boom"))


# The process


def test_worker_lives_in_a_group_of_its_own_and_closes() -> None:
    worker = WorkerProcess(0)
    pid = worker.pid
    assert os.getpgid(pid) == pid != os.getpgid(0)
    worker.close()
    assert not alive(pid)
    worker.close()


def test_a_stopped_worker_is_killed_all_the_same() -> None:
    worker = WorkerProcess(0)
    os.kill(worker.pid, signal.SIGSTOP)
    begun = time.monotonic()
    worker.kill()
    assert not alive(worker.pid)
    assert time.monotonic() - begun < 2.0


def test_a_worker_imports_ahead_what_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import pathlib, time\ntime.sleep(0.2)\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = WorkerProcess(0, imports=("no_such_module", "slow_to_import"))
    try:
        assert wait_for((tmp_path / "imported").exists)
        assert alive(worker.pid)
    finally:
        worker.close()


_BENCH = """
import ctypes
import subprocess


class Bench:
    def __init__(self, ordinal):
        pass

    def assemble(self):
        print("ready", subprocess.Popen(["sleep", "120"]).pid, flush=True)
        subprocess.run(["sleep", "120"])

    def hang(self):  # in C, with the interpreter's lock: nothing of Python runs any more
        print("ready", 0, flush=True)
        ctypes.PyDLL(None).sleep(120)
"""
_PARENT = """
import sys, time
from kernelarc.bench.cuda._process import WorkerProcess
from kernelarc.bench.cuda._protocol import Request
worker = WorkerProcess(0, "bench_that_stands_still:Bench")
if sys.argv[1] != "idle":
    worker.channel.send(Request(verb=sys.argv[1]))
said = ""
while sys.argv[1] != "idle" and not said.endswith("\\n"):
    time.sleep(0.05)
    worker._errors.seek(0)
    said = worker._errors.read().decode()
print(worker.pid, said.split()[-1] if said else 0, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("doing", ["idle", "assemble", "hang"])
def test_worker_dies_with_its_parent_whatever_it_is_doing(
    tmp_path: Path, doing: str, number: int
) -> None:
    """And what it has started dies as well; within a second, also on a busy machine."""
    (tmp_path / "bench_that_stands_still.py").write_text(_BENCH)
    root = str(Path(sys.modules["kernelarc"].__path__[0]).parent)
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, doing],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, str(tmp_path)])},
    )
    assert parent.stdout is not None
    pid, child = (int(word) for word in parent.stdout.readline().split())
    try:
        assert wait_for(lambda: "_worker" in Path(f"/proc/{pid}/cmdline").read_text())
        assert wait_for(lambda: _armed(pid)), "the worker never armed its lifeline"
        assert child == 0 or alive(child)
        parent.send_signal(number)
        parent.wait()
        assert wait_for(lambda: not alive(pid), 1.0)
        assert child == 0 or wait_for(lambda: not alive(child), 1.0)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def _armed(pid: int) -> bool:
    """Tell whether one of the process's descriptors raises a signal (O_ASYNC is 0o20000)."""
    for info in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            flags = info.read_text().splitlines()[1].split()[1]
        except OSError:  # it was closed meanwhile
            continue
        if int(flags, 8) & 0o20000:
            return True
    return False


# The coordinator


ASKING = """
from pathlib import Path
from kernelarc.bench.cuda import CudaDevice
from kernelarc.genomes import MissingPartError
device = CudaDevice("cuda:0")
print(device.name)
try:
    device.environment()
except MissingPartError as error:
    print("missing", error.exit_code, len(str(error).splitlines()))
print(Path("/proc/self/maps").read_text())
"""


def test_naming_and_asking_a_device_maps_no_cuda_library() -> None:
    """In a process of its own: other tests of this one may have compiled CUDA."""
    done = subprocess.run(
        [sys.executable, "-c", ASKING], capture_output=True, text=True, check=True, timeout=60
    )
    name, said, *maps = done.stdout.splitlines()
    assert name == "cuda:0"
    assert HAS_GPU or said == "missing 4 1"
    assert any("libc" in line for line in maps)
    assert not [line for line in maps if any(library in line for library in LIBRARIES)]


@pytest.mark.parametrize("name", ["cpu", "cuda:x", "cuda:-1", "gpu:0", ""])
def test_a_name_that_is_no_gpu_is_bad_input(name: str) -> None:
    with pytest.raises(InputError, match="names no GPU"):
        CudaDevice(name)
