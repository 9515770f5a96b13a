"""Signals end a campaign in order; a terminal that closes is one of them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelarc.engine import StopRequest, result_of
from kernelarc.storage import open_reader

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDING = ROOT / "bench" / "results" / "recordings" / "h200_matmul_bf16_tn_1000x1000x1000.json.gz"
ON_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from kernelarc.cli import main
main(sys.argv[1:])
"""
WORDS = ["run", str(RECORDING), "--budget", "5000", "--log", "run.log"]


def wait_for_verdicts(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") > 30):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended_by(store: Path) -> tuple[str, str, object]:
    with open_reader(str(store)) as reader:
        result = result_of(reader, 1, store=str(store))
        (event,) = [e for e in reader.events(1) if e.kind == "interrupted"]
        assert not [e for e in reader.events(1) if e.kind == "audited"]
    assert result.evaluations.unique > 20
    return result.status, result.reason, event.payload["signal"]


def test_a_terminal_that_closes_ends_the_campaign_in_order(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        running = subprocess.Popen(
            [sys.executable, "-c", ON_A_TERMINAL, *WORDS],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),  # type: ignore[call-overload]
            cwd=tmp_path,
        )
        os.close(theirs)
        wait_for_verdicts(tmp_path / "run.log")
        os.set_blocking(ours, False)
        drawn = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
    assert b"budget" in drawn or b"campaign 1" in drawn
    assert running.wait(timeout=30) == 3
    assert ended_by(tmp_path / "kernelarc.db") == ("interrupted", "signal", "SIGHUP")


def test_under_nohup_a_hangup_changes_nothing(tmp_path: Path) -> None:
    running = subprocess.Popen(
        ["nohup", sys.executable, "-m", "kernelarc", *WORDS],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    wait_for_verdicts(tmp_path / "run.log")
    running.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == 3
    assert ended_by(tmp_path / "kernelarc.db") == ("interrupted", "signal", "SIGTERM")


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_hangup_is_no_second_request_but_the_others_are(first: signal.Signals) -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
        signal.raise_signal(first)
        signal.raise_signal(signal.SIGHUP)
        assert stop.name == first.name
        signal.raise_signal(signal.SIGTERM)
    after = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before
