"""kill -9 at any moment: what was acknowledged is there, once, and a group is whole or absent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelarc.genomes import Candidate, InputError, Judged
from kernelarc.storage import Round, open_reader, open_writer

ROOT = Path(__file__).resolve().parent.parent.parent
GROUP = 4
WRITE = """
import sys
from kernelarc.storage import Round, open_writer
from tests.unit.store_records import *
with open_writer(sys.argv[1], create=True) as writer:
    campaign = writer.campaign().id if writer.campaigns() else writer.begin(SPEC, HERE)
    start = len(writer.rounds(campaign))
    for number in range(start, 100000):
        asked = [candidate(4 * number + place) for place in range(4)]
        told = [measured(c, 1.0 + c.number) for c in asked]
        writer.append(campaign, [Round(number=number, counts={{}}), *asked, *told])
        print(number, flush=True)
        {pause}
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def _run_and_kill(path: Path, after_s: float) -> int:
    """Let a process append, kill it, and return the last round it was told is committed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITE.format(pause=""), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        said = [child.stdout.readline()]  # the first one: it has begun to append
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
        # Not by communicate(): it loses what readline() has read ahead.
        rest, errors = child.stdout.read(), child.stderr.read()
    assert errors == ""
    said += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(said[-1])


def _check(path: Path, acknowledged: int) -> None:
    with open_reader(path) as reader:
        entries = [entry for _, entry in reader.log(1)]
    rounds = [entry.number for entry in entries if isinstance(entry, Round)]
    asked = [entry.number for entry in entries if isinstance(entry, Candidate)]
    told = [e.evaluation.candidate.number for e in entries if isinstance(e, Judged)]
    assert rounds == list(range(len(rounds)))
    assert asked == told == list(range(GROUP * len(rounds)))
    # One group may be committed and not yet said to be.
    assert acknowledged < len(rounds) <= acknowledged + 2


def test_killed_at_random_moments_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    rng = random.Random(20)
    for _ in range(4):
        _check(path, _run_and_kill(path, rng.uniform(0.0, 0.15)))
        assert (tmp_path / "kernelarc.db-wal").exists(), "the kill came too late to matter"


@pytest.mark.parametrize("after_s", [0.001, 0.004, 0.012])
def test_killed_while_it_makes_the_store(tmp_path: Path, after_s: float) -> None:
    """The file is there, whole, or it is not there; what a draft left is in nobody's way."""
    program = (
        "import sys\n"
        "from kernelarc.storage import open_writer\n"
        "print(flush=True)\n"
        "open_writer(sys.argv[1], create=True).close()\n"
    )
    path = tmp_path / "kernelarc.db"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(after_s)
        child.kill()
    if path.exists():
        with open_reader(path) as reader:
            assert list(reader.campaigns()) == []
    else:
        with pytest.raises(InputError, match="there is no such file"):
            open_reader(path)
    with open_writer(path, create=True) as writer:
        assert list(writer.campaigns()) == []
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
