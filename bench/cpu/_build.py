"""What is built from a genome: the job, its key, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelarc.bench._environment import cpu_features, cpu_model
from kernelarc.bench.cpu._compiler import Compiler
from kernelarc.genomes import Genome, canonical_json, fingerprint_of
from kernelarc.genomes.routes import Route

DOES_NOT_COMPILE = "does not compile"
COMPILER_CRASHED = "compiler crashed"
COMPILER_TIMED_OUT = "compiler timed out"
COMPILER_OUT_OF_MEMORY = "compiler out of memory"
COMPILER_LEFT_NOTHING = "compiler left no output"

_CRASHES = ("internal compiler error", "please submit a bug report", "stack dump:")
_MEMORY = ("out of memory", "virtual memory exhausted", "cannot allocate memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """One shared library to be made.

    Attributes:
        key: Content hash of everything that the library depends on.
        source: The whole C source.
        options: The compiler's options, without source and output.
    """

    key: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A library that lies in the cache.

    Attributes:
        binary: Content hash of the library: equal for genomes that differ in nothing.
        seconds: What making it cost; 0 when it was there.
    """

    path: Path
    binary: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailure:
    """Why there is no library. ``failure`` is a stable class, ``message`` one line."""

    failure: str
    message: str
    seconds: float = 0.0


def build_job(route: Route, genome: Genome, compiler: Compiler) -> BuildJob:
    """Return the job that builds a genome of a route."""
    options = route.options(genome)
    content = {
        "source": route.source,
        "options": options,
        "compiler": [compiler.identity, compiler.path],
        "cpu": [cpu_model(), sorted(cpu_features())],
    }
    key = fingerprint_of(canonical_json(content))
    return BuildJob(key=key, source=route.source, options=options)


def failure_of(
    returncode: int, timed_out: bool, said: str, limit_s: float
) -> tuple[str, str] | None:
    """Return failure class and message of a compiler's end, or None when it went well."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    low = said.lower()
    if timed_out:
        return COMPILER_TIMED_OUT, f"the compiler did not end within {limit_s:g} s"
    if returncode == 0:
        return None
    if any(word in low for word in _MEMORY):
        return COMPILER_OUT_OF_MEMORY, told
    if returncode < 0:
        return COMPILER_CRASHED, f"the compiler was ended by signal {-returncode}"
    if any(word in low for word in _CRASHES) or "signal terminated program" in low:
        return COMPILER_CRASHED, told
    return DOES_NOT_COMPILE, told or f"the compiler exited with {returncode}"
