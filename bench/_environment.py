"""Where a measurement is made: what makes numbers comparable, and what was merely seen.

The *identity* holds what a later reader must share before two numbers may be compared. The
*observations* hold what differs from minute to minute or from host to host. A library is
identified by version and by the content of the file that was really loaded; its path is seen.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from kernelarc.genomes import Environment

_CPUS = Path("/sys/devices/system/cpu")
_MATTERS = re.compile(
    r"sse2|sse4_2|avx|avx2|fma|f16c|avx512(f|bw|dq|vl|_bf16|_fp16|_vnni)|avx_vnni"
    r"|amx_(tile|bf16|int8)|asimd|asimdhp|asimddp|sve|sve2|sme"
)
_MODEL_FIELDS = ("model name", "CPU implementer", "CPU part", "cpu family", "model", "stepping")


def affinity() -> tuple[int, ...]:
    """Return the cores that this process may run on, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def _text(path: Path) -> str:
    """Return a system file's text, or nothing where it is absent or closed to us."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


@cache
def _first_core() -> Mapping[str, str]:
    """Return what the system says about its first core."""
    fields: dict[str, str] = {}
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def cpu_model() -> str:
    """Return the processor's name with its family, model and stepping numbers."""
    core = _first_core()
    parts = [f"{name} {core[name]}" for name in _MODEL_FIELDS[1:] if name in core]
    name = core.get("model name", platform.machine())
    return f"{name} ({', '.join(parts)})" if parts else name


def cpu_features() -> frozenset[str]:
    """Return the processor's features that change which code runs or how fast."""
    core = _first_core()
    listed = (core.get("flags") or core.get("Features", "")).split()
    return frozenset(feature for feature in listed if _MATTERS.fullmatch(feature))


def cpu_caches(core: int = 0) -> str:
    """Return the caches that a core sees, nearest first: ``"L1d 32K, L2 512K, L3 32768K"``."""
    seen = []
    for index in sorted((_CPUS / f"cpu{core}" / "cache").glob("index*")):
        kind = {"Data": "d", "Instruction": "i"}.get(_text(index / "type"), "")
        seen.append(f"L{_text(index / 'level')}{kind} {_text(index / 'size')}")
    return ", ".join(seen) or "unknown"


@cache
def _file_hash(path: str, size: int, changed_ns: int) -> str:
    state = hashlib.blake2b(digest_size=8)
    with Path(path).open("rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()


def file_hash(path: Path) -> str:
    """Return the content hash of a file: 16 hexadecimal digits, cached until it changes."""
    known = path.stat()
    return _file_hash(str(path), known.st_size, known.st_mtime_ns)


def source_hash(paths: Iterable[Path]) -> str:
    """Return one content hash over files, independent of their order and of where they lie."""
    parts = sorted((path.name, file_hash(path)) for path in paths)
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _numpy_blas() -> list[dict[str, object]]:
    """Return the BLAS libraries that NumPy uses, not those that other packages brought along."""
    loaded = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    beside = str(Path(np.__file__).parent)  # site-packages/numpy, numpy.libs
    own = [lib for lib in loaded if str(lib["filepath"]).startswith(beside)]
    return own or [lib for lib in loaded if "scipy.libs" not in str(lib["filepath"])]


def _blas_identity() -> str:
    """Return name, version, chosen kernels and content hash of every BLAS of NumPy's."""
    texts = []
    for lib in _numpy_blas():
        kernels = lib.get("architecture") or "unknown kernels"
        content = file_hash(Path(str(lib["filepath"])))
        texts.append(f"{lib['internal_api']} {lib['version']} {kernels} {content}")
    return "; ".join(sorted(texts)) or "none found"


def cpu_identity(*, compiler: str, source: str) -> dict[str, str]:
    """Return the identity of this machine as a device.

    Args:
        compiler: First line of what the compiler says of its version.
        source: Content hash of the code that times and of the kernels' sources.
    """
    return {
        "device": "cpu",
        "cpu": cpu_model(),
        "features": " ".join(sorted(cpu_features())),
        "caches": cpu_caches(affinity()[0]),
        "cores": str(len(affinity())),
        "compiler": compiler,
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": _blas_identity(),
        "kernelarc": _own_version(),
        "source": source,
    }


def _own_version() -> str:
    try:
        return metadata.version("kernelarc")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "uninstalled"


def _clocks_mhz(cores: Iterable[int]) -> str:
    """Return the present clocks, lowest to highest, or nothing where they are hidden."""
    texts = (_text(_CPUS / f"cpu{core}" / "cpufreq" / "scaling_cur_freq") for core in cores)
    clocks = [float(text) / 1e3 for text in texts if text]
    if not clocks:
        lines = _text(Path("/proc/cpuinfo")).splitlines()
        clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    return f"{min(clocks):.0f} to {max(clocks):.0f}" if clocks else ""


def _hottest_c() -> str:
    """Return the hottest sensor's reading, or nothing where there is none."""
    zones = [_text(path) for path in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    zones += [_text(path) for path in Path("/sys/class/hwmon").glob("hwmon*/temp*_input")]
    readings = [int(text) / 1e3 for text in zones if text.lstrip("-").isdigit()]
    return f"{max(readings):.0f}" if readings else ""


def cpu_quota() -> str:
    """Return the control group's processor quota: ``"max"`` or ``"quota period"``, if told."""
    own = _text(Path("/proc/self/cgroup")).rpartition("::")[2].splitlines()[:1]
    folders = [Path("/sys/fs/cgroup") / path.lstrip("/") for path in own]
    for folder in [*folders, Path("/sys/fs/cgroup")]:
        if text := _text(folder / "cpu.max"):
            return text
    quota = _text(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
    return quota.replace("-1", "max")


def cpu_observations() -> dict[str, str]:
    """Return what is seen of this machine now; what cannot be read is absent."""
    governor = _CPUS / f"cpu{affinity()[0]}" / "cpufreq" / "scaling_governor"
    seen = {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "load": _text(Path("/proc/loadavg")),
        "core_numbers": ",".join(str(core) for core in affinity()),
        "clock_mhz": _clocks_mhz(affinity()),
        "temperature_c": _hottest_c(),
        "governor": _text(governor),
        "cgroup_quota": cpu_quota(),
        "python_path": sys.executable,
        "blas_path": "; ".join(sorted(str(lib["filepath"]) for lib in _numpy_blas())),
    }
    return {name: value for name, value in seen.items() if value}


def cpu_environment(*, compiler: str, source: str) -> Environment:
    """Return identity and observations of this machine as the device ``cpu``.

    Args:
        compiler: First line of what the compiler says of its version.
        source: Content hash of the code that times and of the kernels' sources
            (``source_hash``).
    """
    return Environment(
        identity=cpu_identity(compiler=compiler, source=source), observations=cpu_observations()
    )
