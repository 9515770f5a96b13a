"""The worker's side for compiled kernels: one context, one bench per workload, no compiler."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernelarc.bench._environment import source_hash
from kernelarc.bench._roofline import floor_of
from kernelarc.bench.cuda._library import Matmul, Side
from kernelarc.bench.cuda._peaks import cuda_peak
from kernelarc.bench.cuda._protocol import ContestReply, Outcome
from kernelarc.bench.cuda._workbench import Workbench
from kernelarc.bench.kernels._bench import OperatorBench
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._launchable import (
    REFUSED,
    Launchable,
    LtLaunchable,
    PlanLaunchable,
)
from kernelarc.bench.kernels._library_steps import LibrarySteps, NoSuchChoiceError
from kernelarc.bench.kernels._memory import JobMemory, Needs
from kernelarc.bench.kernels._messages import (
    FIRST_HEURISTIC,
    BaselineContender,
    Contender,
    DeviceReply,
    KernelTask,
    LtContender,
    PlanContender,
    TriedBaseline,
)
from kernelarc.bench.kernels._oracle import Oracle, needs_torch
from kernelarc.bench.kernels._program import LaunchRefusedError, Loader
from kernelarc.bench.kernels._repeats import Repeats
from kernelarc.bench.kernels._ring import OperatorRing
from kernelarc.bench.kernels._scratch import ScratchMemory
from kernelarc.bench.kernels._tensor_map import TensorMapError
from kernelarc.bench.kernels._torch_calls import is_torch, torch_names
from kernelarc.bench.kernels._torch_launchable import TorchLaunchable
from kernelarc.bench.kernels._trial import tried
from kernelarc.genomes import Environment, InputError, Status
from kernelarc.genomes.kernels import DeviceLimits

_MOST_BENCHES = 24
_LEAST_SCRATCH = 1 << 20
NO_SUCH_CHOICE = "the library has no such choice"
_REFUSALS = (LaunchRefusedError, TensorMapError)


class KernelWorkbench(Workbench):
    """Holds context, memory and benches of one device.

    Args:
        ordinal: The device's number.
    """

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        self._jobs: tuple[BoundJob, ...] = ()
        self._operators: OrderedDict[int, OperatorBench] = OrderedDict()
        self._products: dict[int, Matmul] = {}
        self._loader: Loader | None = None
        self._memory: ScratchMemory | None = None
        self._library = LibrarySteps(self._lt, self._handle)
        self._repeats = Repeats()

    # What it is

    def environment(self) -> Environment:
        """Return identity and observations; the code that judges is this package's as well."""
        found = super().environment()
        own = source_hash(Path(__file__).parent.glob("*.py"))
        identity = {**found.identity, "source": f"{found.identity['source']} {own}"}
        return Environment(identity=identity, observations=found.observations)

    def describe(self) -> DeviceReply:
        """Return the device's limits and what can be run as a baseline."""
        found = self._properties
        name = found["name"]
        limits = DeviceLimits(
            name=name.decode() if isinstance(name, bytes) else str(name),
            compute_capability=(int(found["major"]), int(found["minor"])),
            multiprocessors=int(found["multiProcessorCount"]),
            shared_bytes=int(found["sharedMemPerBlockOptin"]),
            shared_bytes_multiprocessor=int(found["sharedMemPerMultiprocessor"]),
            registers_multiprocessor=int(found["regsPerMultiprocessor"]),
            threads_block=int(found["maxThreadsPerBlock"]),
            threads_multiprocessor=int(found["maxThreadsPerMultiProcessor"]),
            l2_bytes=int(found["l2CacheSize"]),
            memory_bytes=int(found["totalGlobalMem"]),
        )
        baselines = {i: _baselines(job) for i, job in enumerate(self._jobs)}
        return DeviceReply(limits=limits, baselines=baselines)

    # Problem

    def open(self, tasks: Sequence[KernelTask], seed: int) -> None:  # type: ignore[override]
        """Take a problem.

        Raises:
            InputError: A workload cannot be bound, or does not fit into the free memory.
        """
        from cuda.bindings import driver  # noqa: PLC0415

        self._seed = seed
        self._jobs = tuple(BoundJob.of(task) for task in tasks)
        for job in self._jobs:
            self._layout(job).demand(job, self._free_bytes())
        products = [job.product.workspace_bytes for job in self._jobs if job.product is not None]
        self._tools = self._instruments(max([*products, _LEAST_SCRATCH]))
        self._loader = Loader(driver)
        self._memory = ScratchMemory(self._cp, self._tools.stream)
        self._warm_up()

    def _layout(self, job: BoundJob) -> Needs:
        return Needs.of(job, int(self._properties["l2CacheSize"]))

    def _matmul(self, workload: int) -> Matmul:
        """Return a product's descriptors."""
        if workload not in self._products:
            job = self._jobs[workload].product
            if job is None:
                raise InputError("this workload is no matrix product for the library")
            placeholder = self._ready().scratch
            side = Side(bias=placeholder, scale_a=placeholder, scale_b=placeholder)
            self._products[workload] = Matmul(self._lt, self._handle, job, side)
        return self._products[workload]

    # Benches

    def _bench_of(self, workload: int) -> OperatorBench:
        """Return a workload's bench; the ones not used for longest make room."""
        if workload not in self._operators:
            wanted = self._layout(self._jobs[workload]).total_bytes
            for bench in self._operators.values():  # torch keeps what references needed
                bench.oracle.give_back()
            while self._operators and (
                len(self._operators) >= _MOST_BENCHES or wanted > self._free_bytes()
            ):
                self._operators.popitem(last=False)
                self._cp.get_default_memory_pool().free_all_blocks()
            self._operators[workload] = self._made(workload)
        self._operators.move_to_end(workload)
        return self._operators[workload]

    def _made(self, workload: int) -> OperatorBench:
        tools, job = self._ready(), self._jobs[workload]
        l2_bytes = int(self._properties["l2CacheSize"])
        memory = JobMemory(self._cp, tools.kernels, tools.stream, job, l2_bytes)
        oracle = Oracle(self._cp, tools.kernels, tools.stream, job)
        clocks = self._nvml.highest_clocks_mhz()
        tf32 = job.product is not None and job.product.tf32
        peak = cuda_peak(self._properties, clocks, dtype=job.arithmetic, tf32=tf32)
        flops, nbytes = job.work
        floor = floor_of(peak, flops=flops, bytes_moved=nbytes, cache=job.task.cache)
        seed = self._seed * 4099 + workload
        return OperatorBench(tools, memory, oracle, floor=floor, seed=seed)

    def _launchable(self, workload: int, contender: Contender) -> Launchable | str:
        """Return a contender ready for launching, or the class of its failure.

        Raises:
            LaunchRefusedError: The driver refuses a binary.
        """
        bench, tools = self._bench_of(workload), self._ready()
        assert self._loader is not None
        assert self._memory is not None
        if isinstance(contender, PlanContender):
            plan = contender.build.plan
            fault = _alias_fault(plan.aliases, bench.job)
            if fault is not None:
                return fault
            try:
                return PlanLaunchable(
                    contender.build, self._loader, tools.stream, self._memory, self._library
                )
            except NoSuchChoiceError:
                return NO_SUCH_CHOICE
        if isinstance(contender, BaselineContender) and is_torch(contender.name):
            return TorchLaunchable(bench.oracle, tools.stream, contender.name)
        matmul = self._matmul(workload)
        row = contender.row if isinstance(contender, LtContender) else self._first_row(matmul)
        algorithm = matmul.algorithm(row) if row is not None else None
        if algorithm is None:
            return "illegal algorithm"
        return LtLaunchable(matmul, algorithm, bench.job, tools.stream, self._memory)

    @staticmethod
    def _first_row(matmul: Matmul) -> Any:
        rows = matmul.heuristics(matmul.job.workspace_bytes)
        return next((row for row in rows if matmul.algorithm(row) is not None), None)

    # Judging

    def prepare(self, workload: int) -> None:
        """Make a workload's bench ready: memory, inputs, references.

        Raises:
            InputError: Its reference fails, or its inputs cannot be made.
            MissingPartError: Its reference needs what is not installed.
        """
        self._bench_of(workload).ready()

    def evaluate(  # type: ignore[override]
        self, workload: int, number: int, contender: Contender, limit_us: float | None
    ) -> Outcome:
        """Check and time one candidate, unless its launches are those of one that was judged."""
        try:
            one = self._launchable(workload, contender)
            if isinstance(one, str):
                return Outcome(number=number, status=Status.REJECTED, failure=one, message=one)
            content = one.content if isinstance(one, PlanLaunchable) else ""
            anew = isinstance(contender, PlanContender) and contender.anew
            judge = partial(self._bench_of(workload).evaluate, number, one, limit_us)
            return self._repeats.outcome(workload, content, number, judge, anew=anew)
        except _REFUSALS as error:
            self._ready().stream.synchronize()  # what was launched before may yet fault
            self._bench_of(workload).forget()
            return Outcome(
                number=number,
                status=Status.LAUNCH_ERROR,
                failure=REFUSED,
                message=str(error)[:500],
            )

    def try_baseline(self, workload: int, name: str) -> TriedBaseline:
        """Run a baseline alone, and hold its result against the reference."""
        try:
            one = self._launchable(workload, BaselineContender(name))
        except _REFUSALS as error:
            return TriedBaseline(cause=str(error)[:300])
        if isinstance(one, str):
            return TriedBaseline(cause=one)
        return tried(self._bench_of(workload), one)

    def contest(  # type: ignore[override]
        self, workload: int, contenders: Sequence[Contender], rounds: int, cache: str, seed: int
    ) -> ContestReply:
        """Time contenders interleaved."""
        made: dict[int, Launchable | str] = {}
        for i, contender in enumerate(contenders):
            try:
                made[i] = self._launchable(workload, contender)
            except _REFUSALS:
                made[i] = REFUSED
        return OperatorRing(self._bench_of(workload)).run(made, rounds, cache, seed)


def _alias_fault(aliases: Any, job: BoundJob) -> str | None:
    """Say that a plan writes into an input's buffer where the workload does not let it."""
    for output, source in aliases.items():
        if source not in job.aliases.get(output, ()):
            return "aliasing not allowed"
    return None


def _baselines(job: BoundJob) -> tuple[str, ...]:
    """Return what a user would run, each of which may be the fastest."""
    library = () if job.product is None else (FIRST_HEURISTIC,)
    if not needs_torch(job.task.operator.reference) or not importlib.util.find_spec("torch"):
        return library
    compiles = importlib.util.find_spec("triton") is not None  # as torch.compile does for GPUs
    return (*library, *torch_names(job.task.operator, compiles=compiles))
