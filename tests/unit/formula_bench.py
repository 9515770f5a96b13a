"""A bench that answers by a build's bytes, so that everything around it runs without a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.unit.compiling_routes import met

from kernelarc.bench.cuda._escapes import DeviceBusyError, given_up
from kernelarc.bench.cuda._protocol import ContestReply, Outcome
from kernelarc.bench.kernels._messages import (
    TORCH_COMPILED,
    TORCH_EAGER,
    BaselineContender,
    Contender,
    DeviceReply,
    KernelTask,
    PlanContender,
    TriedBaseline,
)
from kernelarc.genomes import Environment, InputError, Status
from kernelarc.genomes.kernels import DeviceLimits

LATENCY_US = {b"machine code": 10.0, b"slow": 30.0}
BASELINES_US = {TORCH_EAGER: 25.0, TORCH_COMPILED: 15.0}


class FormulaBench:
    """Has the verbs of the real one."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal, self._broken = ordinal, False
        self._seen: set[bytes] = set()

    def open(self, tasks: Sequence[KernelTask], seed: int) -> None:
        """Take a problem."""

    def describe(self) -> DeviceReply:
        """Return Hopper's figures; those of an older device as number 80."""
        limits = DeviceLimits.of_arch("sm_90a")
        if self._ordinal == 80:
            limits = replace(limits, compute_capability=(8, 0))
        offered = tuple(BASELINES_US) if self._ordinal in range(20, 26) else ()
        return DeviceReply(limits=limits, baselines={0: offered})

    def environment(self) -> Environment:
        """Return a fixed identity."""
        return Environment(identity={"device": "formula"})

    def observe(self) -> Mapping[str, str]:
        """Return nothing of interest."""
        return {"clock_mhz": "1"}

    def prepare(self, workload: int) -> None:
        """Be ready: at once, or as number 3 only after a while, as behind a slow reference.

        Number 31 dies of it the first time, number 32 has a reference that fails. That of number
        33 ends once a build has begun.
        """
        folder = Path(os.environ["KERNELARC_LOCK_DIR"])
        if self._ordinal == 3:
            begun = time.monotonic()
            time.sleep(2.0)
            (folder / "slow reference").write_text(str(time.monotonic() - begun))
        if self._ordinal == 33 and not met("reference", "build"):
            raise InputError("no build began beside the reference")
        if self._ordinal == 32:
            raise InputError("the reference of 'gemm' fails on the device: no such thing")
        died = folder / "died of its reference"
        if self._ordinal == 31 and not died.exists():
            died.touch()
            os._exit(1)

    def broken(self) -> bool:
        """Tell whether a candidate took the context with it."""
        return self._broken

    def evaluate(
        self, workload: int, number: int, contender: Contender, limit_us: float | None
    ) -> Outcome:
        """Answer by the build's bytes."""
        content = self._content(contender)
        if content == b"dies":
            os._exit(1)
        if content == b"never returns":
            time.sleep(600)
        if content == b"takes the context":
            self._broken = True
            raise RuntimeError("an illegal memory access was encountered")
        if content.startswith(b"busy") and (content == b"busy" or self._met(content)):
            return given_up(number, DeviceBusyError("other work runs on this GPU"), 0.01)
        if content.startswith(b"wrong"):
            return Outcome(
                number=number,
                status=Status.WRONG_RESULT,
                failure="error above the cap",
                message="random inputs",
            )
        latency_us = _latency_us(content)
        late = limit_us is not None and latency_us > 1.5 * limit_us
        samples = (latency_us,) * (3 if late else 5)
        return Outcome(number=number, status=Status.OK, samples=samples, censored=late)

    def contest(
        self, workload: int, contenders: Sequence[Contender], rounds: int, cache: str, seed: int
    ) -> ContestReply:
        """Return constant columns; a contender may take the context with it here."""
        row: list[float] = []
        failures: dict[int, str] = {}
        for column, one in enumerate(contenders):
            if isinstance(one, BaselineContender):
                if self._ordinal == 21:
                    raise RuntimeError("a reference that nobody can run")
                failures |= {column: "launch refused"} if self._ordinal == 22 else {}
                row.append(BASELINES_US[one.name])
                continue
            if self._content(one) == b"takes the context":
                self._broken = True
                raise RuntimeError("an illegal memory access was encountered")
            row.append(_latency_us(self._content(one)))
        return ContestReply(samples=(tuple(row),) * rounds, failures=failures, launches=1)

    def _met(self, content: bytes) -> bool:
        """Tell whether this is met for the first time."""
        first = content not in self._seen
        self._seen.add(content)
        return first

    def try_baseline(self, workload: int, name: str) -> TriedBaseline:
        """Answer by the name; what goes wrong is the device's number, and torch.compile's alone."""
        if self._ordinal == 21:
            raise RuntimeError("a reference that nobody can run")
        if self._ordinal == 22:
            return TriedBaseline(cause="launch refused")
        if self._ordinal == 23 and name == TORCH_COMPILED:
            time.sleep(600)
        if self._ordinal == 24 and name == TORCH_COMPILED:
            os._exit(1)
        wrong = "mismatch" if self._ordinal == 25 and name == TORCH_COMPILED else ""
        return TriedBaseline(latency_us=BASELINES_US[name], wrong=wrong)

    @staticmethod
    def _content(contender: Contender) -> bytes:
        assert not isinstance(contender, BaselineContender)
        assert isinstance(contender, PlanContender)
        assert not contender.build.source
        content = next(iter(contender.build.binaries.values()))
        return b"slow" if content.startswith(b"large") else content


def _latency_us(content: bytes) -> float:
    return LATENCY_US[b"machine code" if content.startswith(b"busy") else content]
