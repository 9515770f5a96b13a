"""The command line over a real, small gemm: run, look, export, compile what was exported."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelarc.cli import exit_code

AXES = [word for axis in "MNK" for word in ("--set", f"{axis}=48")]
QUICK = ["--budget", "3", "--audit-rounds", "5", "--confirm-rounds", "5"]


def test_a_genome_s_source_compiles_as_its_first_lines_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(["run", "gemm", *AXES, *QUICK, "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["evaluations"]["unique"] == 3
    best = result["best"]
    assert best["latency_us"] > 0
    assert best["audited"] is True
    assert best["speedup"]["low"] <= best["speedup"]["estimate"] <= best["speedup"]["high"]

    assert exit_code(["show", "kernelarc.db", best["fingerprint"], "--source"]) == 0
    source = capfd.readouterr().out
    Path("best.c").write_text(source)
    options = re.search(r"/\* cc (.*) \*/", source)
    assert options is not None
    built = ["cc", *options[1].split(), "-c", "best.c", "-o", "best.o"]
    assert subprocess.run(built, check=False).returncode == 0

    assert exit_code(["show", "kernelarc.db", best["fingerprint"], "--rerun"]) == 0
    shown = capfd.readouterr().out
    assert "measured now" in shown
    assert len(shown.splitlines()) < 60
    assert "#include" not in shown
    hint = shown.splitlines()[-1].partition(": kernelarc ")[2]
    assert exit_code(hint.split()) == 0
    assert capfd.readouterr().out == source

    assert exit_code(["verify", "kernelarc.db", "--json"]) in {0, 1}
    verified = json.loads(capfd.readouterr().out)["verified"]
    assert verified[0]["speedup"]["estimate"] > 0


def test_a_recording_is_all_that_record_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ["--measure", "2", "--check", "10", "-o", "space.json.gz", "--json"]
    assert exit_code(["record", "gemm", *AXES, *wanted]) == 0
    (one,) = json.loads(capfd.readouterr().out)["recordings"]
    assert one["measured"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["space.json.gz"]


def _verdicts(log: Path) -> int:
    return log.read_text().count(" cpu ") if log.exists() else 0


def test_ctrl_c_ends_in_order_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "kernelarc", "run", "gemm", *AXES, "--budget", "5000"]
    running = subprocess.Popen(
        [*command, "--log", "run.log"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 90
    while _verdicts(Path("run.log")) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    printed, said = running.communicate(timeout=30)
    assert running.returncode == 3, said
    assert said.strip().endswith("go on with: kernelarc resume kernelarc.db 1")
    assert "campaign 1 interrupted" in printed

    assert exit_code(["best", "kernelarc.db", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["status"], result["reason"]) == ("interrupted", "signal")
    assert result["evaluations"]["unique"] >= 2
