"""What a GPU allows a kernel: for constraints before compiling and for the check after it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes.kernels._build import Build, KernelReport
from kernelarc.genomes.kernels._plan import Launch

OUT_OF_SHARED = "out of shared memory"
OUT_OF_REGISTERS = "too many registers"
OUT_OF_THREADS = "too many threads"
CLUSTER_TOO_LARGE = "cluster too large"
_REGISTER_GRAIN = 256  # registers are given to warps in such portions
_WARP = 32
_PORTABLE_CLUSTER, _WIDE_CLUSTER = 8, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """The figures of one device that constraints are made of.

    Attributes:
        name: Model name, or the architecture where no device is at hand.
        compute_capability: (9, 0) for Hopper.
        multiprocessors: How many.
        shared_bytes: Most shared memory of one block, static and dynamic, once asked for.
        shared_bytes_multiprocessor: Of one multiprocessor.
        registers_multiprocessor: 32-bit registers of one multiprocessor.
        registers_thread: Most registers of one thread.
        threads_block: Most threads of one block.
        threads_multiprocessor: Most threads resident on one multiprocessor.
        l2_bytes: Size of the L2 cache.
        memory_bytes: Device memory.
    """

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    shared_bytes_multiprocessor: int
    registers_multiprocessor: int = 65536
    registers_thread: int = 255
    threads_block: int = 1024
    threads_multiprocessor: int = 2048
    l2_bytes: int = 50 << 20
    memory_bytes: int = 80 << 30

    @property
    def arch(self) -> str:
        """What compilers are told: ``"sm_90a"`` where the architecture has specific features."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @classmethod
    def of_arch(cls, arch: str) -> DeviceLimits:
        """Return the figures of an architecture's usual device, for compiling without one.

        Raises:
            InputError: The architecture is not one of ``ARCHES``.
        """
        if arch not in ARCHES:
            raise InputError(
                f"architecture {arch!r} is none of {', '.join(ARCHES)}{nearest(arch, ARCHES)}"
            )
        return ARCHES[arch]

    def resident_blocks(self, *, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks fit on one multiprocessor at once, 0 where not even one does."""
        warps = max(1, -(-threads // _WARP))
        portion = -(-max(registers, 1) * _WARP // _REGISTER_GRAIN) * _REGISTER_GRAIN
        limits = [
            self.registers_multiprocessor // (portion * warps),
            self.threads_multiprocessor // (warps * _WARP),
            self.shared_bytes_multiprocessor // (shared_bytes + 1024),
        ]
        return min(limits)


_HOPPER = DeviceLimits(
    name="sm_90a",
    compute_capability=(9, 0),
    multiprocessors=132,
    shared_bytes=227 << 10,
    shared_bytes_multiprocessor=228 << 10,
)
_BLACKWELL = replace(
    _HOPPER, name="sm_100a", compute_capability=(10, 0), multiprocessors=148, l2_bytes=126 << 20
)
ARCHES: Mapping[str, DeviceLimits] = MappingProxyType({"sm_90a": _HOPPER, "sm_100a": _BLACKWELL})
"""Architectures that can be compiled for without a device, with the figures of their usual one."""


def resource_fault(build: Build, device: DeviceLimits) -> tuple[str, str] | None:
    """Say why a build cannot run on a device, from the compiler's report, before any launch.

    Returns:
        A failure class and one line, or None where nothing stands in the way.
    """
    for launch, report in zip(build.plan.launches, build.kernels, strict=True):
        fault = _fault(launch, report, device)
        if fault is not None:
            return fault
    return None


def _fault(launch: Launch, report: KernelReport, device: DeviceLimits) -> tuple[str, str] | None:
    shared = report.static_shared_bytes + launch.shared_bytes
    threads, cluster = math.prod(launch.block), math.prod(launch.cluster)
    most = _WIDE_CLUSTER if launch.attributes.wide_cluster else _PORTABLE_CLUSTER
    where = f"kernel {report.symbol}"
    if shared > device.shared_bytes:
        return OUT_OF_SHARED, f"{where} needs {shared} bytes of {device.shared_bytes}"
    if threads > device.threads_block:
        return OUT_OF_THREADS, f"{where} has {threads} threads of {device.threads_block} in a block"
    if report.registers > device.registers_thread or not device.resident_blocks(
        threads=threads, registers=report.registers, shared_bytes=0
    ):
        return OUT_OF_REGISTERS, f"{where} needs {report.registers} registers by {threads} threads"
    if cluster > most:
        return CLUSTER_TOO_LARGE, f"{where} has {cluster} blocks in a cluster of at most {most}"
    return None
