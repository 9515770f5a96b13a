"""The parts of ``make gpu`` end in time, and with the script that runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "bounded.sh"
PART = "import os, time; print(os.getpid(), flush=True); time.sleep(120)"


def _script(tmp_path: Path, most: str) -> subprocess.Popen[bytes]:
    words = 'source "$1"; bounded "$2" "$3" "$4" "$2" -c "$5"; echo "status $?" >>"$4"'
    log = str(tmp_path / "log")
    command = ["bash", "-c", words, "script", str(TOOL), sys.executable, most, log, PART]
    return subprocess.Popen(command, start_new_session=True)


def _pid_of(log: Path) -> int:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if log.exists() and (said := log.read_text()).endswith("\n"):
            return int(said.splitlines()[0])
        time.sleep(0.02)
    raise AssertionError("the part never began")


def _gone(pid: int, most_s: float) -> bool:
    until = time.monotonic() + most_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_part_ends_with_its_script(tmp_path: Path, number: int) -> None:
    with _script(tmp_path, "100") as script:
        pid = _pid_of(tmp_path / "log")
        os.kill(script.pid, number)
        assert script.wait(10) == (-number if number == signal.SIGKILL else 143)
        assert _gone(pid, 5.0), "the part outlived its script"


def test_a_part_ends_in_time_and_says_so(tmp_path: Path) -> None:
    with _script(tmp_path, "2") as script:
        pid = _pid_of(tmp_path / "log")
        assert script.wait(20) == 0
        assert _gone(pid, 5.0)
    assert (tmp_path / "log").read_text().splitlines()[-1] == "status 124"
