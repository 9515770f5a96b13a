"""The device ``cpu``: C kernels of ours or yours, compiled by the system's ``cc``, timed here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from kernelarc.bench._environment import cpu_environment, source_hash
from kernelarc.bench._inputs import shape_of
from kernelarc.bench._lock import DeviceLock
from kernelarc.bench._numerics import numpy_dtype
from kernelarc.bench._session import Device
from kernelarc.bench.cpu._compiler import Compiler, find_compiler
from kernelarc.bench.cpu._host import host_shape
from kernelarc.bench.cpu._session import CpuLimits, CpuSession
from kernelarc.genomes import Environment, InputError, Operator, Problem, Workload, axis_values
from kernelarc.genomes.routes import Route, cpu_routes

_LEAST_SETS = 2


class CpuDevice(Device):
    """This machine's processor.

    Args:
        compiler: Command of the C compiler; the variable ``CC``, or ``cc``, by default.
        routes: Routes of one's own, beside the packaged ones; one of the same name replaces.
        limits: Time limits.
    """

    name = "cpu"
    deterministic = False

    def __init__(
        self,
        *,
        compiler: str | None = None,
        routes: Sequence[Route] = (),
        limits: CpuLimits | None = None,
    ) -> None:
        self._command = compiler
        self._own_routes = tuple(routes)
        self._limits = limits or CpuLimits()

    def environment(self) -> Environment:
        """Return what this machine, its compiler and its libraries are."""
        return self._environment(find_compiler(self._command))

    def _environment(self, compiler: Compiler) -> Environment:
        return cpu_environment(compiler=compiler.identity, source=self._source())

    def _source(self) -> str:
        """Return the hash over kernels and over the code that judges them."""
        own = [repr((r.operator, r.name, r.source, r.base_flags)) for r in self._own_routes]
        text = "\n".join((_packaged_source(), *sorted(own)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def routes(self, operator: Operator) -> Mapping[str, Route]:
        """Return the routes of an operator by name, one's own included."""
        own = {r.name: r for r in self._own_routes if r.operator == operator.name}
        return {**cpu_routes(operator), **own}

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> CpuSession:
        """Take the processor and start a worker; see ``Device``."""
        compiler = find_compiler(self._command)
        routes = self.routes(problem.operator)
        self._check(problem, routes)
        lock = DeviceLock(self.name).acquire()
        try:
            return CpuSession(
                problem=problem,
                environment=self._environment(compiler),
                routes=routes,
                host=host_shape(),
                compiler=compiler,
                lock=lock,
                artefacts=artefacts,
                limits=self._limits,
                seed=seed,
            )
        except BaseException:
            lock.release()
            raise

    def _check(self, problem: Problem, routes: Mapping[str, Route]) -> None:
        """Refuse what cannot run here.

        Raises:
            InputError: No route, a type that NumPy has not, or more memory than there is.
        """
        operator = problem.operator
        if not routes:
            raise InputError(
                f"device cpu has no route for operator {operator.name!r}: "
                "give one of your own, or run gemm or add_rmsnorm"
            )
        for route in routes.values():
            route.check_against(operator)
        available = _available_bytes()
        for workload in problem.workloads:
            needed = _LEAST_SETS * _set_bytes(operator, workload)
            if needed > available:
                raise InputError(
                    f"{operator.name} {workload.label} needs {needed / 2**30:.1f} GiB of memory "
                    f"to be timed, and {available / 2**30:.1f} are free"
                )


def _set_bytes(operator: Operator, workload: Workload) -> int:
    """Return the bytes of all tensors of one call."""
    axes, total = axis_values(operator, workload), 0
    for spec in (*operator.inputs, *operator.outputs):
        elements = 1
        for extent in shape_of(spec, axes):
            elements *= extent
        total += elements * numpy_dtype(spec.dtype).itemsize
    return total


def _available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def _packaged_source() -> str:
    """Return one hash over the packaged kernels and the code that judges them."""
    bench = files("kernelarc.bench")
    kernels = files("kernelarc.genomes").joinpath("routes")
    folders = ((bench, ".py"), (bench.joinpath("cpu"), ".py"), (kernels, ".c"), (kernels, ".h"))
    paths = [
        Path(str(file))
        for folder, ending in folders
        for file in folder.iterdir()
        if file.name.endswith(ending)
    ]
    return source_hash(paths)
