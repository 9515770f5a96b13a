"""Compiling CUDA C++ with NVRTC: a cubin for a real architecture, without any GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from kernelarc.genomes._errors import MissingPartError
from kernelarc.genomes.kernels import BuildError, KernelReport, report_of

_NOTED = {
    "wgmma": re.compile(r"\bwgmma\.mma_async"),
    "tma": re.compile(r"\bcp\.async\.bulk\.(?:tensor|shared|global)"),
    "tcgen05": re.compile(r"\btcgen05\.mma"),
    "mma": re.compile(r"\bmma\.sync"),
}
_BASE = ("--std=c++17", "-default-device", "--ptxas-options=-v")
_SERIAL = re.compile(r"\(C75\d\d\)")
_KEPT = 256  # builds of one process


@dataclass(frozen=True, slots=True)
class CudaCode:
    """What NVRTC made of one source.

    Attributes:
        cubin: Machine code.
        instructions: How often instructions of note stand in the PTX, by the names of
            ``KernelReport.instructions``.
        warnings: Of compiler and assembler, one line each.
    """

    cubin: bytes
    instructions: Mapping[str, int]
    warnings: tuple[str, ...]

    def report(self, symbol: str, *, threads: int, shared_bytes: int) -> KernelReport:
        """Return what one of its kernels needs."""
        return report_of(
            self.cubin,
            symbol,
            threads=threads,
            shared_bytes=shared_bytes,
            instructions=self.instructions,
            warnings=self.warnings,
        )


def nvrtc_missing() -> str | None:
    """Say what must be installed before NVRTC can be called, or None."""
    try:
        found = find_spec("cuda.bindings")
    except ModuleNotFoundError:
        found = None
    return None if found else "kernelarc[cuda] (cuda-python brings NVRTC's binding)"


def _nvrtc() -> Any:
    why = nvrtc_missing()
    if why is not None:
        raise MissingPartError(f"CUDA C++ cannot be compiled here: install {why}")
    from cuda.bindings import nvrtc  # noqa: PLC0415 - only compile processes pay for it

    return nvrtc


def nvrtc_version() -> str:
    """Return NVRTC's version, for example ``"13.0"``.

    Raises:
        MissingPartError: It is not installed.
    """
    error, major, minor = _nvrtc().nvrtcVersion()
    if int(error) != 0:
        raise MissingPartError(f"NVRTC does not answer (error {int(error)}): is it installed?")
    return f"{major}.{minor}"


@lru_cache(maxsize=_KEPT)
def compile_cuda(source: str, arch: str, options: tuple[str, ...] = ()) -> CudaCode:
    """Compile a whole source; equal content is compiled once a process.

    Args:
        source: CUDA C++ that includes nothing.
        arch: ``"sm_90a"`` or ``"sm_100a"``.
        options: NVRTC's, beside the architecture and the language.

    Raises:
        BuildError: It does not compile; the message is the first line that says why.
        MissingPartError: NVRTC is not installed.
    """
    nvrtc = _nvrtc()
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    if int(error) != 0:
        raise BuildError(f"NVRTC takes no source: error {int(error)}")
    try:
        flags = [f"--gpu-architecture={arch}", *_BASE, *options]
        error = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])[0]
        log = _text(nvrtc, program, "ProgramLog")
        if int(error) != 0:
            raise BuildError(_first_error(log))
        ptx = _text(nvrtc, program, "PTX")
        counts = {name: len(pattern.findall(ptx)) for name, pattern in _NOTED.items()}
        return CudaCode(_read(nvrtc, program, "CUBIN"), counts, _warnings(log))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(nvrtc: Any, program: Any, what: str) -> bytes:
    size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)[1]
    held = bytes(size)
    getattr(nvrtc, f"nvrtcGet{what}")(program, held)
    return held


def _text(nvrtc: Any, program: Any, what: str) -> str:
    return _read(nvrtc, program, what).decode("utf-8", "replace").strip("\0 \n")


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()]
    said = [line for line in lines if "error" in line.lower()]
    return (said or lines or ["NVRTC does not say why"])[0]


def _warnings(log: str) -> tuple[str, ...]:
    """Return warnings, and the assembler's notes that products wait for one another."""
    lines = (line.strip() for line in log.splitlines())
    return tuple(line for line in lines if " warning" in line or _SERIAL.search(line))
