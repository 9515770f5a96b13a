"""A campaign in a process of its own, that says what was acknowledged, for others to kill.

    python campaign_under_fire.py TARGET STORE ACKNOWLEDGED SEED BUDGET DELAY_S

TARGET is a recorded space, or ``gemm`` (tiny, on the CPU). The store is resumed where it exists.
Every verdict that the engine reports as committed is appended to ACKNOWLEDGED, a line each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernelarc.bench import CpuDevice, Device, ReplayDevice
from kernelarc.engine import CampaignSettings, Counts, Observer, resume, run
from kernelarc.genomes import Judged


class Acknowledged(Observer):
    """Writes down what was acknowledged; the write is one system call, so it is whole or not."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        candidate = judged.evaluation.candidate
        line = f"{candidate.number} {candidate.genome.fingerprint} {judged.verdict}\n"
        os.write(self._file, line.encode())


def main(target: str, store: str, acknowledged: str, seed: str, budget: str, delay_s: str) -> None:
    """Run or resume."""
    device: Device = CpuDevice()
    axes = {"M": 48, "N": 64, "K": 32}
    if target != "gemm":
        device, axes = ReplayDevice(Path(target), delay_s=float(delay_s)), {}
    observer = Acknowledged(Path(acknowledged))
    if Path(store).exists() and _begun(store):
        resume(store, device=device, observer=observer)
        return
    settings = CampaignSettings(
        target=target,
        axes=axes,
        store=store,
        seed=int(seed),
        budget=int(budget),
        models=False,
        confirm_rounds=8,
        audit_rounds=8,
    )
    run(settings, device=device, observer=observer)


def _begun(store: str) -> bool:
    """Tell whether the store holds a campaign: death may come before it does."""
    from kernelarc.genomes import InputError
    from kernelarc.storage import open_reader

    try:
        with open_reader(store) as reader:
            return bool(reader.campaigns())
    except InputError:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
