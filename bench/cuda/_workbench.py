"""Everything that lives in the worker: context, library, memory, one bench per job."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import time
from collections import OrderedDict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._environment import source_hash
from kernelarc.bench._roofline import floor_of
from kernelarc.bench.cuda._arena import BAND_BYTES, Arena, Needs
from kernelarc.bench.cuda._binding import Lt, load_lt, numbering
from kernelarc.bench.cuda._clock import Clock
from kernelarc.bench.cuda._contest import ContestRing
from kernelarc.bench.cuda._jobbench import Instruments, JobBench
from kernelarc.bench.cuda._kernels import JudgeModule, Kernels
from kernelarc.bench.cuda._library import WORKSPACE_ALIGNMENT, Matmul, Side
from kernelarc.bench.cuda._nvml import Nvml
from kernelarc.bench.cuda._offer import library_domain
from kernelarc.bench.cuda._peaks import cuda_peak, measured_copy_bytes_per_s
from kernelarc.bench.cuda._protocol import ContestReply, DomainReply, Outcome, Task
from kernelarc.genomes import (
    Environment,
    InputError,
    LtRow,
    MatmulJob,
    MissingPartError,
)

_MOST_BENCHES = 24
_LIBRARY_EDGE_BYTES = 1 << 20
_WARM_UP_S = 0.05
_LEAST_SCRATCH = 1 << 20


class Workbench:
    """The worker's side of a device.

    Args:
        ordinal: The device's number.

    Raises:
        MissingPartError: No driver, no device of that number, no library.
    """

    def __init__(self, ordinal: int) -> None:
        self._cp = _cupy(ordinal)
        self._ordinal = ordinal
        self._judge = JudgeModule(self._cp, ordinal)
        runtime = self._cp.cuda.runtime
        self._properties: dict[str, Any] = runtime.getDeviceProperties(ordinal)
        self._nvml = Nvml(runtime.deviceGetPCIBusId(ordinal))
        self._lt: Lt = load_lt()
        self._handle = int(self._lt.create())
        self._numbers = numbering(self._lt)
        self._tasks: tuple[Task, ...] = ()
        self._matmuls: dict[int, Matmul] = {}
        self._benches: OrderedDict[int, JobBench] = OrderedDict()
        self._seed = 0
        self._tools: Instruments | None = None
        self._held: list[Any] = []

    # Environment

    def environment(self) -> Environment:
        """Return identity and observations."""
        properties = self._properties
        path = _mapped("libcublasLt")
        name = properties["name"]
        return Environment(
            identity={
                "device": name.decode() if isinstance(name, bytes) else str(name),
                "compute_capability": f"{properties['major']}.{properties['minor']}",
                "multiprocessors": str(properties["multiProcessorCount"]),
                "memory_gib": str(round(properties["totalGlobalMem"] / 2**30)),
                "driver": self._nvml.driver() or str(self._cp.cuda.runtime.driverGetVersion()),
                "cublaslt": str(self._lt.get_version()),
                "cublaslt_content": _edges_hash(path),
                "nvmath": metadata.version("nvmath-python"),
                "source": source_hash(Path(__file__).parent.glob("*.*")),
            },
            observations={
                "host": socket.gethostname(),
                "kernel": platform.release(),
                "cublaslt_path": path,
                "cupy": self._cp.__version__,
                "python": platform.python_version(),
                "sm_clock_limit_mhz": str(self._nvml.highest_clocks_mhz()[0]),
                **self._nvml.readings(),
            },
        )

    def observe(self) -> dict[str, str]:
        """Return clocks, power, temperature, foreign processes, free memory."""
        free, total = self._cp.cuda.runtime.memGetInfo()
        memory = f"{free / 2**30:.1f} of {total / 2**30:.1f}"
        return {**self._nvml.readings(), "free_memory_gib": memory}

    def roofline(self) -> dict[str, float]:
        """Measure copy bandwidth and the matrix units' rate on random bfloat16 data."""
        tools = self._ready()
        copied = measured_copy_bytes_per_s(self._cp, tools.stream, tools.clock.once)
        job = MatmulJob(m=8192, n=8192, k=8192, dtype="bfloat16", out_dtype="bfloat16")
        if self._cp.cuda.runtime.memGetInfo()[0] < 6 << 30:
            job = MatmulJob(m=2048, n=2048, k=2048, dtype="bfloat16", out_dtype="bfloat16")
        matmul = Matmul(self._lt, self._handle, job, Side())
        arena = Arena(self._cp, tools.kernels, tools.stream, job, 0)
        algorithm = matmul.algorithm(matmul.heuristics(_LEAST_SCRATCH)[0])
        if algorithm is None:
            raise InputError("the library refuses its own first heuristic")
        arena.fill(arena.sets[0], self._seed)
        addresses = arena.sets[0].addresses(False)
        scratch = (tools.scratch, _LEAST_SCRATCH)

        def product() -> None:
            matmul.launch(algorithm, addresses, scratch, tools.stream.ptr)

        times = sorted(tools.clock.once(product) for _ in range(9))
        matmul.close()
        return {"copy_bytes_per_s": copied, "matrix_flops_per_s": job.flops / (times[4] * 1e-6)}

    # Problem

    def open(self, tasks: Sequence[Task], seed: int) -> None:
        """Take a problem.

        Raises:
            InputError: A workload does not fit into the free memory.
        """
        self._tasks, self._seed = tuple(tasks), seed
        for task in tasks:
            self._needs(task).demand(task.job, self._free_bytes())
        ceilings = [task.job.workspace_bytes for task in tasks]
        self._tools = self._instruments(max(*ceilings, _LEAST_SCRATCH))
        self._warm_up()

    def _instruments(self, ceiling: int) -> Instruments:
        from cuda.bindings import driver  # noqa: PLC0415

        cp = self._cp
        stream = cp.cuda.Stream(non_blocking=True)
        scratch = cp.cuda.alloc(ceiling + BAND_BYTES + WORKSPACE_ALIGNMENT)
        l2_bytes = int(self._properties["l2CacheSize"])
        sweep = cp.cuda.alloc(max(2 * l2_bytes, 1 << 20))
        cp.cuda.runtime.memset(int(sweep.ptr), 1, sweep.mem.size)
        self._held += [scratch, sweep]
        address = int(scratch.ptr)
        return Instruments(
            cupy=cp,
            stream=stream,
            kernels=Kernels(cp, stream, self._judge.get()),
            clock=Clock(driver, stream),
            scratch=address + (-address) % WORKSPACE_ALIGNMENT,
            sweep=(int(sweep.ptr), 2 * l2_bytes),
        )

    def _warm_up(self) -> None:
        """Work until the clocks have risen."""
        tools = self._ready()
        until = time.perf_counter() + _WARM_UP_S
        address, nbytes = tools.sweep
        while time.perf_counter() < until:
            tools.clock.once(lambda: tools.kernels.sweep(address, nbytes))

    def _ready(self) -> Instruments:
        if self._tools is None:
            self._tools = self._instruments(_LEAST_SCRATCH)
        return self._tools

    def _matmul(self, workload: int) -> Matmul:
        """Return the descriptors for asking; the ones that launch belong to a bench."""
        if workload not in self._matmuls:
            job = self._tasks[workload].job
            placeholder = self._ready().scratch
            side = Side(bias=placeholder, scale_a=placeholder, scale_b=placeholder)
            self._matmuls[workload] = Matmul(self._lt, self._handle, job, side)
        return self._matmuls[workload]

    # Legality

    def domain(self, workload: int) -> DomainReply:
        """Ask the library what it offers for a workload, sift it, and ask its heuristics."""
        rng = np.random.default_rng([self._seed, workload])
        return library_domain(self._matmul(workload), self._numbers, rng)

    def check(
        self, workload: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ask the library about many rows: status and scratch bytes each."""
        return self._matmul(workload).check(rows)

    # Judging

    def _needs(self, task: Task) -> Needs:
        return Needs.of(task.job, int(self._properties["l2CacheSize"]))

    def _free_bytes(self) -> int:
        free, _ = self._cp.cuda.runtime.memGetInfo()
        return int(free) + int(self._cp.get_default_memory_pool().free_bytes())

    def _bench(self, workload: int) -> JobBench:
        """Return a workload's bench; the ones not used for longest make room."""
        if workload not in self._benches:
            wanted = self._needs(self._tasks[workload]).total_bytes
            while self._benches and (
                len(self._benches) >= _MOST_BENCHES or wanted > self._free_bytes()
            ):
                self._drop_oldest()
            self._benches[workload] = self._new_bench(workload)
        self._benches.move_to_end(workload)
        return self._benches[workload]

    def _drop_oldest(self) -> None:
        _, bench = self._benches.popitem(last=False)
        bench.matmul.close()
        del bench
        self._cp.get_default_memory_pool().free_all_blocks()

    def _new_bench(self, workload: int) -> JobBench:
        tools, task = self._ready(), self._tasks[workload]
        l2_bytes = int(self._properties["l2CacheSize"])
        arena = Arena(self._cp, tools.kernels, tools.stream, task.job, l2_bytes)
        scale_a, scale_b = arena.scale_addresses
        side = Side(bias=int(arena.bias.ptr), scale_a=scale_a, scale_b=scale_b)
        peak = cuda_peak(
            self._properties,
            self._nvml.highest_clocks_mhz(),
            dtype=task.job.dtype,
            tf32=task.job.tf32,
        )
        floor = floor_of(
            peak, flops=task.job.flops, bytes_moved=task.job.bytes_moved, cache=task.cache
        )
        matmul = Matmul(self._lt, self._handle, task.job, side)
        seed = self._seed * 4099 + workload
        return JobBench(tools, task, matmul, arena, floor=floor, seed=seed)

    def evaluate(self, workload: int, number: int, row: LtRow, limit_us: float | None) -> Outcome:
        """Check and time one candidate."""
        return self._bench(workload).evaluate(number, row, limit_us)

    def contest(
        self, workload: int, rows: Sequence[LtRow], rounds: int, cache: str, seed: int
    ) -> ContestReply:
        """Time contenders interleaved."""
        return ContestRing(self._bench(workload)).run(rows, rounds, cache, seed)

    def broken(self) -> bool:
        """Tell whether the context is lost: every call after an illegal access fails."""
        try:
            self._cp.cuda.runtime.deviceSynchronize()
            self._cp.cuda.alloc(1 << 10)
        except Exception:
            return True
        return False


def _cupy(ordinal: int) -> Any:
    """Import CuPy and make the context.

    Raises:
        MissingPartError: The message says what is missing.
    """
    try:
        import cupy  # noqa: PLC0415
    except ImportError as error:
        raise MissingPartError(
            f"the cuda device needs CuPy: install kernelarc[cuda] ({error})"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        line = str(error).splitlines()[0]
        raise MissingPartError(
            f"no NVIDIA GPU can be used: install a driver that fits CUDA 13 ({line})"
        ) from None
    if ordinal >= count:
        raise MissingPartError(f"there is no cuda:{ordinal}: this machine has {count} GPUs")
    cupy.cuda.Device(ordinal).use()
    cupy.cuda.runtime.free(0)
    return cupy


def _mapped(library: str) -> str:
    """Return the path of a library that this process has mapped, empty where it has not."""
    with Path(f"/proc/{os.getpid()}/maps").open() as maps:
        for line in maps:
            path = line.rpartition(" ")[2].strip()
            if Path(path).name.startswith(library):
                return path
    return ""


def _edges_hash(path: str) -> str:
    """Return a content hash of a large library: its size, first and last mebibyte."""
    if not path:
        return "not mapped"
    state = hashlib.blake2b(digest_size=8)
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        state.update(str(size).encode())
        for start in (0, max(size - _LIBRARY_EDGE_BYTES, 0)):
            file.seek(start)
            state.update(file.read(_LIBRARY_EDGE_BYTES))
    return state.hexdigest()
