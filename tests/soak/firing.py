"""Killing campaigns, and what must hold afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelarc.genomes import Judged
from kernelarc.storage import open_reader

SCRIPT = Path(__file__).with_name("campaign_under_fire.py")
ROOT = Path(__file__).parents[2]
TOKEN = "KERNELARC_SOAK_TOKEN"
LINGER_S = 10.0


@dataclass(kw_only=True)
class Victim:
    """One campaign that is started again and again."""

    target: str
    folder: Path
    seed: int
    budget: int
    delay_s: float = 0.0
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def store(self) -> Path:
        return self.folder / "soak.db"

    @property
    def acknowledged(self) -> Path:
        return self.folder / "acknowledged.txt"

    def start(self) -> subprocess.Popen[bytes]:
        """Start or resume the campaign; every process of its own carries the token."""
        command = [sys.executable, str(SCRIPT), self.target, str(self.store)]
        command += [str(self.acknowledged), str(self.seed), str(self.budget), str(self.delay_s)]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, TOKEN: self.token, "PYTHONPATH": path}
        with (self.folder / "errors.txt").open("ab") as errors:
            return subprocess.Popen(command, env=environment, stderr=errors)

    def processes(self) -> list[int]:
        """Return every living process of this campaign, whatever its parent."""
        return [
            pid
            for pid in map(int, filter(str.isdigit, (p.name for p in Path("/proc").iterdir())))
            if self._is(pid)
        ]

    def _is(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return f"{TOKEN}={self.token}".encode() in words and state != "Z"

    def wait_until_gone(self) -> None:
        """Wait for orphans to end by themselves; fail when one stays."""
        deadline = time.monotonic() + LINGER_S
        while left := self.processes():
            assert time.monotonic() < deadline, f"orphans {left} outlive the campaign"
            time.sleep(0.02)

    def errors(self) -> str:
        return (self.folder / "errors.txt").read_text()


def kill(
    victim: Victim, coordinator: subprocess.Popen[bytes], whom: str, rng: np.random.Generator
) -> None:
    """Send SIGKILL to the coordinator, to one of its workers, or to all at once."""
    others = [pid for pid in victim.processes() if pid != coordinator.pid]
    chosen = {
        "coordinator": [coordinator.pid],
        "worker": [int(rng.choice(others))] if others else [],
        "all": [coordinator.pid, *others],
    }[whom]
    for pid in chosen:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def fire(victim: Victim, kills: int, rng: np.random.Generator, longest_s: float) -> Counter[str]:
    """Kill at random moments until the shots are spent or the campaign is through.

    Returns:
        How often each kind of process was killed.
    """
    shots: Counter[str] = Counter()
    while sum(shots.values()) < kills:
        coordinator = victim.start()
        while coordinator.poll() is None and sum(shots.values()) < kills:
            time.sleep(float(rng.uniform(0.05, longest_s)))
            whom = str(rng.choice(["coordinator", "worker", "all"]))
            if coordinator.poll() is None:
                kill(victim, coordinator, whom, rng)
                shots[whom] += 1
            if whom != "worker":
                break
        if coordinator.poll() == 0:
            break
        finish(coordinator, victim) if sum(shots.values()) >= kills else coordinator.wait()
        victim.wait_until_gone()
        check_acknowledged(victim)
    complete(victim)
    return shots


def finish(coordinator: subprocess.Popen[bytes], victim: Victim) -> None:
    """Let a campaign that only lost a worker go on to its end."""
    coordinator.wait(timeout=600)
    assert coordinator.returncode in {0, -signal.SIGKILL}, victim.errors()


def complete(victim: Victim) -> None:
    """Resume until the campaign ends by itself, and check what it left."""
    coordinator = victim.start()
    assert coordinator.wait(timeout=600) == 0, victim.errors()
    victim.wait_until_gone()
    check_acknowledged(victim)


def check_acknowledged(victim: Victim) -> None:
    """Everything acknowledged is in the store, once, with the verdict that was told."""
    if not victim.acknowledged.exists():
        return
    told = victim.acknowledged.read_text().splitlines()
    with open_reader(victim.store) as reader:
        kept = [e for _, e in reader.log(1) if isinstance(e, Judged)]
    lines = Counter(
        f"{j.evaluation.candidate.number} {j.evaluation.candidate.genome.fingerprint} {j.verdict}"
        for j in kept
    )
    assert max(lines.values(), default=1) == 1
    assert len(told) == len(set(told)), "an acknowledged evaluation was repeated"
    assert set(told) <= lines.keys(), "an acknowledged evaluation was lost"
