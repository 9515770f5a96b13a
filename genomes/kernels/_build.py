"""Build: machine code with the plan that launches it and what the compiler reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelarc.genomes.kernels._plan import LaunchPlan

COMPILE_ERROR = "compile error"


class BuildError(Exception):
    """A genome cannot be built.

    Args:
        message: One line.
        failure: Stable failure class; traps are formed by it.
    """

    def __init__(self, message: str, failure: str = COMPILE_ERROR) -> None:
        super().__init__(message)
        self.message = (message.strip().splitlines() or ["?"])[0][:500]
        self.failure = failure

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str]]:
        return BuildError, (self.message, self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """What one kernel needs, as its compiler says.

    Attributes:
        symbol: The kernel.
        registers: Of each thread.
        spill_bytes: Stack of each thread: spilled registers and arrays that found none.
        static_shared_bytes: Shared memory that the code itself declares.
        shared_bytes: Dynamic shared memory that it is launched with.
        threads: Threads of a block that it is launched with.
        instructions: How often instructions of note occur: ``wgmma``, ``tma``, ``tcgen05``,
            ``mma``.
        warnings: Of the compiler, one line each.
    """

    symbol: str
    registers: int
    spill_bytes: int = 0
    static_shared_bytes: int = 0
    shared_bytes: int = 0
    threads: int = 0
    instructions: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What came of building one genome.

    Attributes:
        plan: How it is launched.
        binaries: Cubins by ``code_hash``; every launch of the plan names one of them.
        kernels: One report for each launch of the plan, in order.
        arch: ``"sm_90a"``.
        source: Readable code for ``show`` (CUDA C++, PTX), empty where there is none.
    """

    plan: LaunchPlan
    binaries: Mapping[str, bytes]
    kernels: tuple[KernelReport, ...]
    arch: str
    source: str = ""

    def __post_init__(self) -> None:
        missing = [step.binary for step in self.plan.launches if step.binary not in self.binaries]
        if missing or not self.plan.launches:
            raise ValueError(f"a plan launches what was not built: {missing or 'nothing at all'}")

    @property
    def content(self) -> str:
        """Fingerprint of machine code and plan: builds with equal content are measured once."""
        return self.plan.fingerprint
