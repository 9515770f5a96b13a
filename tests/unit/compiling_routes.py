"""Routes whose builds do what compilers do at their worst; importable by compile processes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from kernelarc.genomes import Choice, Gene, Genome, IntegerRange, Operator, Space, Workload
from kernelarc.genomes.kernels import (
    Build,
    BuildError,
    DeviceLimits,
    KernelReport,
    KernelRoute,
    Launch,
    LaunchPlan,
    TensorArgument,
    code_hash,
)

WAYS = ("good", "twin", "refuses", "aborts", "hangs", "eats memory", "raises")
LARGE = ("large 1", "large 2", "large 3")
MEETS, MOST_S = "meets the reference", 40.0
ON_DEVICE = (*LARGE, "slow", "wrong", "dies", "never returns", "takes the context", "too wide")


class PlantedRoute(KernelRoute):
    """The allele of ``way`` says what building does."""

    name = "planted"

    def __init__(
        self,
        operator: Operator,
        *,
        version: str = "1",
        ways: tuple[str, ...] = (*WAYS, *ON_DEVICE, MEETS),
        idle: int = 1,
    ) -> None:
        self.operator, self._version, self._ways, self._idle = operator, version, ways, idle

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return every way, beside a gene that changes nothing where one is asked for."""
        genes: list[Gene] = [Choice(name="way", options=self._ways)]
        if self._idle > 1:
            genes.append(IntegerRange(name="idle", low=1, high=self._idle))
        return Space(self.name, genes)

    def identity(self) -> Mapping[str, str]:
        """Return a version that tests choose."""
        return {"version": self._version}

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Do what the genome says."""
        way = genome["way"]
        if way == "refuses":
            raise BuildError("error: too wide\nsecond line")
        if way == "raises":
            raise KeyError("a compiler's own bug")
        if way == "aborts":
            os.abort()
        if way == "hangs":
            subprocess.run(["sleep", "600"], check=False)  # as an assembler may
        if way == MEETS:
            raise BuildError("met" if met("build", "reference") else "the reference never began")
        if way == "eats memory":
            held = []
            while True:
                held.append(bytearray(64 << 20))
        if way in ON_DEVICE or str(way).startswith(("wrong", "busy")):
            threads = 2048 if way == "too wide" else 128
            tail = bytes(4 << 20) if way in LARGE else b""  # more than a socket holds
            return plain_build(arch, content=str(way).encode() + tail, threads=threads)
        return plain_build(arch)


def met(mine: str, other: str) -> bool:
    """Say that one has begun and wait until the other has; tell whether it has."""
    folder, end = Path(os.environ["KERNELARC_LOCK_DIR"]), time.monotonic() + MOST_S
    (folder / f"{mine} began").touch()
    while not (there := (folder / f"{other} began").exists()) and time.monotonic() < end:
        time.sleep(0.01)
    return there


def plain_build(arch: str, *, content: bytes = b"machine code", threads: int = 128) -> Build:
    """Return a build of one launch over bytes that no machine runs."""
    name = code_hash(content)
    launch = Launch(
        binary=name,
        symbol="kernel",
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        arguments=(TensorArgument("c"),),
    )
    return Build(
        plan=LaunchPlan(steps=(launch,)),
        binaries={name: content},
        kernels=(KernelReport(symbol="kernel", registers=32, threads=128),),
        arch=arch,
    )
