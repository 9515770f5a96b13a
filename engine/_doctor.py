"""What is installed here, what each missing part would enable, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import threadpoolctl

from kernelarc.bench import DeviceLock, lock_path
from kernelarc.bench.cuda import CudaDevice
from kernelarc.engine._devices import gpu_count
from kernelarc.genomes import Environment, KernelarcError

_PROBE_TIMEOUT_S = 10.0
_NEEDED_DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that kernelarc can use.

    Attributes:
        name: What it is.
        found: What is there (a version, a count), or None when it is missing.
        enables: What it is for.
        get: How to get it, or what to do about it.
        needed: Whether the CPU device, and so the main job, depends on it.
    """

    name: str
    found: str | None
    enables: str
    get: str
    needed: bool = False

    def to_json(self) -> dict[str, str | bool | None]:
        """Return the part as JSON values."""
        return {
            "name": self.name,
            "found": self.found,
            "enables": self.enables,
            "get": self.get,
            "needed": self.needed,
        }


def doctor(folder: Path | None = None) -> list[Part]:
    """Look at this machine. Nothing is installed, compiled, measured or locked for long.

    Args:
        folder: Where a store would be kept; the current folder by default.
    """
    return [*_machine(folder or Path.cwd()), *_libraries(), *_gpu(), *_optional_packages()]


def _machine(folder: Path) -> list[Part]:
    return [
        Part(
            name="Linux",
            found=platform.release() if sys.platform == "linux" else None,
            enables="everything: locks, process groups and CPU affinity are Linux's",
            get="run kernelarc on Linux, a virtual machine or a container included",
            needed=True,
        ),
        Part(
            name="Python",
            found=platform.python_version(),
            enables="everything",
            get="3.11 or newer",
            needed=True,
        ),
        Part(
            name="C compiler",
            found=_first_line([os.environ.get("CC") or "cc", "--version"]),
            enables="the cpu device: kernels are compiled on this machine by 'cc'",
            get="apt-get install gcc libc6-dev, or name yours in CC",
            needed=True,
        ),
        Part(
            name="CPU",
            found=f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores usable",
            enables="the cpu device",
            get="taskset and cgroups decide how many cores are usable",
            needed=True,
        ),
        _disk(folder),
        _lock("cpu"),
    ]


def _disk(folder: Path) -> Part:
    free = shutil.disk_usage(folder).free
    enough = free >= _NEEDED_DISK_BYTES and os.access(folder, os.W_OK)
    return Part(
        name="disk",
        found=f"{free / 2**30:.1f} GiB free in {folder}" if enough else None,
        enables="the store and the build cache beside it",
        get=f"{folder} is read-only or nearly full: free 1 GiB, or give --store another folder",
        needed=True,
    )


def _lock(device: str) -> Part:
    path = lock_path(device)
    return Part(
        name=f"lock of device {device}",
        found=_lock_state(device),
        enables="one job a device: a second one is refused, so that neither disturbs the other",
        get=f"wait for the job that holds {path}, or end it",
        needed=True,
    )


def _lock_state(device: str) -> str | None:
    lock = DeviceLock(device, command="kernelarc doctor")
    try:
        lock.acquire()
    except KernelarcError:
        return None
    lock.release()
    return "free"


def _libraries() -> list[Part]:
    purposes = {
        "numpy": "references, statistics, the cpu device's baseline",
        "deap": "the islands' toolbox",
        "optuna": "studies that propose tile genes",
        "sqlalchemy": "the store",
        "click": "the command line",
        "rich": "the live display",
        "threadpoolctl": "holding the BLAS to the threads that candidates get",
    }
    parts = [
        Part(
            name=name,
            found=_version(name),
            enables=purpose,
            get=f"pip install {name}",
            needed=True,
        )
        for name, purpose in purposes.items()
    ]
    blas = Part(
        name="BLAS",
        found=_blas(),
        enables="the baseline of gemm on cpu: what NumPy would run",
        get="install NumPy's own wheel, which brings one",
    )
    return [*parts, blas]


def _gpu() -> list[Part]:
    """Say what of the cuda devices is there, each part after those that it needs."""
    environment, why = _first_gpu()
    found = None if environment is None else _cublaslt(environment)
    return [
        Part(
            name="NVIDIA GPU",
            found=_first_line(
                ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
            ),
            enables="the cuda:N devices",
            get="a machine with an NVIDIA GPU and its driver; the cpu and replay devices need none",
        ),
        *(_package(name, enables, "kernelarc[cuda]") for name, enables in _CUDA.items()),
        Part(
            name="cuBLASLt",
            found=found,
            enables="the route cublaslt on cuda:N: targets matmul and gemm, and kernelarc.runtime",
            get=why,
        ),
        *(_gpu_lock(number) for number in range(gpu_count())),
    ]


_CUDA = {
    "cuda-bindings": "timing on GPUs: the driver's events and graphs",
    "cupy-cuda13x": "arrays and kernels of our own on GPUs",
    "nvmath-python": "the library's own interface, cuBLASLt",
}


def _first_gpu() -> tuple[Environment | None, str]:
    """Ask the first GPU's worker, as a campaign would; return its environment, or why not."""
    try:
        return CudaDevice().environment(), ""
    except KernelarcError as error:
        return None, str(error)


def _cublaslt(environment: Environment) -> str:
    path = environment.observations.get("cublaslt_path", "")
    return f"{environment.identity['cublaslt']}, {path or 'path unknown'}"


def _gpu_lock(number: int) -> Part:
    return replace(_lock(f"cuda:{number}"), needed=False)


def _optional_packages() -> list[Part]:
    return [
        _package("triton", "routes and kernel files in Triton", "kernelarc[triton]"),
        _package("psycopg", "a PostgreSQL store, for several hosts", "kernelarc[distributed]"),
    ]


def _package(name: str, enables: str, extra: str) -> Part:
    return Part(name=name, found=_version(name), enables=enables, get=f"pip install '{extra}'")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(command: Sequence[str]) -> str | None:
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _blas() -> str | None:
    np.dot(np.ones((2, 2)), np.ones((2, 2)))  # threadpoolctl names libraries that are loaded
    found = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    if not found:
        return None
    first = found[0]
    return f"{first['internal_api']} {first['version']}, {first['num_threads']} threads"
