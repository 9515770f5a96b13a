"""The judge of compiled kernels: every fault is planted in a launch, and the honest twin passes."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.bench._numerics import (
    ERROR_ABOVE_CAP,
    MISMATCH,
    NOT_EXACT,
    NOT_FINITE,
    PRECISION_LOWERED,
    ZERO_OUTPUT,
)
from kernelarc.bench.cuda._clock import Call
from kernelarc.bench.cuda._escapes import DEVICE_BUSY
from kernelarc.bench.cuda._judge import (
    ESCAPED_CLOCK,
    INPUT_CHANGED,
    NOT_REPEATABLE,
    OUT_OF_BOUNDS,
    TOO_FAST,
)
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._bench import OperatorBench, _rulers
from kernelarc.bench.kernels._launchable import Launchable, LtLaunchable, PlanLaunchable
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._messages import (
    FIRST_HEURISTIC,
    BaselineContender,
    Contender,
    LtContender,
    PlanContender,
)
from kernelarc.bench.kernels._ring import OperatorRing
from kernelarc.bench.kernels._session import _task
from kernelarc.genomes import (
    MatmulForm,
    Problem,
    Status,
    builtin_problem,
    child_environment,
    matmul_operator,
    matmul_problem,
)
from kernelarc.genomes.routes._cuda_add_rmsnorm import cuda_add_rmsnorm_route

NUMERIC = {MISMATCH, ERROR_ABOVE_CAP, PRECISION_LOWERED, NOT_EXACT}
SPIN = r"""
extern "C" __global__ void spin(long long clocks) {
    long long begun = clock64();
    while (clock64() - begun < clocks) {}
}
"""
SPIN_CLOCKS = 20_000_000  # about ten milliseconds
OTHER_WORK = """
import cupy
left = cupy.random.rand(4096, 4096, dtype=cupy.float32)
print("working", flush=True)
while True:
    for _ in range(20):
        right = left @ left
    cupy.cuda.runtime.deviceSynchronize()
"""
NARROW = r"""
extern "C" __global__ void narrow(unsigned* values, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL)
        values[i] &= 0xffff0000u;
}
"""


class Bench:
    """One job in this process: a product (by the library), or a norm (by NVRTC's kernel)."""

    def __init__(self, kind: str, *, deterministic: bool = False, shape: Any = None) -> None:
        from kernelarc.bench.kernels._workbench import KernelWorkbench

        problem = _product(shape) if kind == "product" else _norm()
        self.work: Any = KernelWorkbench(0)
        task = replace(_task(problem, problem.workloads[0]), deterministic=deterministic)
        self.work.open([task], 7)
        self.bench: OperatorBench = self.work._bench_of(0)
        made = self.work._launchable(0, _contender(self.work, kind, problem))
        assert isinstance(made, Launchable)
        self.honest: Launchable = made
        self.cupy, self.stream = self.work._cp, self.bench.tools.stream
        self.narrow = self.cupy.RawModule(code=NARROW).get_function("narrow")
        self.spin = self.cupy.RawModule(code=SPIN).get_function("spin")
        self.side = self.cupy.cuda.Stream(non_blocking=True)
        self.spinning(self.side, 1)  # loads it: not while a graph is captured
        self.side.synchronize()

    def evaluate(self, one: Launchable, limit_us: float | None = None) -> Outcome:
        self.bench.ready()
        return self.bench.evaluate(1, one, limit_us)

    def set_bytes(self, address: int, value: int, nbytes: int) -> None:
        self.cupy.cuda.runtime.memsetAsync(address, value, nbytes, self.stream.ptr)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self.cupy.cuda.runtime.memcpyAsync(to, source, nbytes, 3, self.stream.ptr)

    def elsewhere(self) -> Launchable:
        """Return the honest contender once more, launched on another stream."""
        if isinstance(self.honest, PlanLaunchable):
            work = self.work
            return PlanLaunchable(self.honest.build, work._loader, self.side, work._memory)
        twin: Any = copy.copy(self.honest)
        twin._stream = self.side
        return twin  # type: ignore[no-any-return]

    def spinning(self, stream: Any, clocks: int = SPIN_CLOCKS) -> None:
        self.spin((1,), (1,), (np.int64(clocks),), stream=stream)

    def capturing(self) -> bool:
        return bool(self.cupy.cuda.runtime.streamIsCapturing(self.stream.ptr))


def _product(shape: Any) -> Problem:
    m, n, k = shape or (320, 512, 1000)
    return matmul_problem(matmul_operator(MatmulForm()), [{"M": m, "N": n, "K": k}])


def _norm() -> Problem:
    whole = builtin_problem("add_rmsnorm")
    workload = replace(whole.workloads[0], axes={"rows": 777, "hidden": 1536})
    return Problem(operator=whole.operator, workloads=(workload,))


def _contender(work: Any, kind: str, problem: Problem) -> Contender:
    if kind == "product":
        return BaselineContender(FIRST_HEURISTIC)
    route, (workload,) = cuda_add_rmsnorm_route(problem.operator), problem.workloads
    assert route is not None
    limits = work.describe().limits
    genome = route.seeds(workload, limits)[0].genome
    return PlanContender(route.on(limits).build(workload, genome, limits.arch))


Fault = Callable[["Planted", TensorSet, Call], None]


class Planted(Launchable):
    """An honest contender with a fault."""

    kept: Any = None

    def __init__(self, bench: Bench, fault: Fault) -> None:
        self.on, self.aliases, self._fault = bench, bench.honest.aliases, fault
        self.calls = 0
        self.seen: set[int] = set()

    def call(self, buffers: TensorSet) -> Call:
        honest = self.on.honest.call(buffers)

        def launch() -> None:
            self.calls += 1
            self._fault(self, buffers, honest)

        return launch

    def guard(self) -> None:
        self.on.honest.guard()

    def bands(self) -> Any:
        return self.on.honest.bands()

    def out(self, buffers: TensorSet) -> tuple[int, int]:
        """Return address and bytes of the first output."""
        tensor = buffers.tensors[self.on.bench.job.outputs[0].name]
        return tensor.address, tensor.nbytes


@pytest.fixture(scope="module", params=["product", "norm"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


@pytest.fixture(autouse=True)
def renewed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "bench" in request.fixturenames:
        held = request.getfixturevalue("bench")
        held.bench.rulers = _rulers(held.bench.job)
        held.bench.renew()


def honest(one: Planted, buffers: TensorSet, call: Call) -> None:
    call()


def nothing(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 1: the output is never written."""


def zeros(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 2: zeros."""
    for tensor in one.on.bench.job.outputs:
        out = buffers.tensors[tensor.name]
        one.on.set_bytes(out.address, 0, out.nbytes)


def one_nan(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 3: one element is not finite."""
    call()
    one.on.set_bytes(one.out(buffers)[0] + 4096, 0xFF, 4)


def one_wrong(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 4: all but a few elements match."""
    call()
    one.on.set_bytes(one.out(buffers)[0] + 4096, 0x42, 4)  # about 48.5, in 16 bits and in 32


def beside(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 11: sixteen bytes behind the output."""
    call()
    address, nbytes = one.out(buffers)
    one.on.set_bytes(address + nbytes, 0, 16)


def into_input(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 12: an input is written to after it was read."""
    call()
    first = buffers.tensors[one.on.bench.job.inputs[0].name]
    one.on.set_bytes(first.address, 0, 64)


def elsewhere(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Rows 18, 20, 22: nothing runs while a graph is captured, so nothing is timed."""
    if not one.on.capturing():
        call()


def tires(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 7: right before and while it is timed only."""
    if one.calls <= 3 or one.on.capturing():
        call()


def remembers(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 21: a buffer that was written once is taken to be right for ever."""
    if one.out(buffers)[0] not in one.seen:
        call()
    one.seen.add(one.out(buffers)[0])


def rests(one: Planted, buffers: TensorSet, call: Call) -> None:
    """Row 20: what is launched differs from call to call; every other buffer set is left out."""
    left_out = any(buffers is held for held in one.on.bench.memory.sets[1::2])
    if not (left_out and one.on.capturing()):
        call()


FAULTS: list[tuple[Fault, set[str]]] = [
    (nothing, {NOT_FINITE}),
    (zeros, NUMERIC | {ZERO_OUTPUT}),
    (one_nan, {NOT_FINITE}),
    (one_wrong, {ERROR_ABOVE_CAP}),
    (beside, {OUT_OF_BOUNDS}),
    (into_input, {INPUT_CHANGED}),
    (elsewhere, {TOO_FAST}),
    (tires, {NOT_FINITE}),
    (remembers, {NOT_FINITE, TOO_FAST}),
    (rests, {NOT_FINITE, TOO_FAST}),
]


def test_the_honest_twin_passes(bench: Bench) -> None:
    outcome = bench.evaluate(Planted(bench, honest))
    assert (outcome.status, outcome.failure) == (Status.OK, None), outcome.message
    assert outcome.properties["repeatable"] is True
    assert len(outcome.samples) >= 4
    assert outcome.launches > 1, "row 19: a short kernel is launched many times in a span"


@pytest.mark.parametrize(("fault", "classes"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_a_planted_fault_is_caught(bench: Bench, fault: Fault, classes: set[str]) -> None:
    outcome = bench.evaluate(Planted(bench, fault))
    assert outcome.status is Status.WRONG_RESULT, fault.__doc__
    assert outcome.failure in classes, outcome.message
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK, "the next one is honest"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kind", ["product", "norm"])
def test_differing_runs_are_a_property_or_a_failure(kind: str, deterministic: bool) -> None:
    """Row 8: two equal bytes of the output depend on how often it ran."""
    bench = Bench(kind, deterministic=deterministic)

    def flickers(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        address, _ = one.out(buffers)
        width = 2 if kind == "product" else 4
        if (
            one.calls % 3 == 1
        ):  # one element takes its neighbour's place: far within the match ratio
            one.on.copy(address, address + width, width)

    # The cap would see the difference first.
    loose = {
        name: replace(ruler, tolerance=replace(ruler.tolerance, max_error_cap=1e6), allowed_rms=1e6)
        for name, ruler in bench.bench.rulers.items()
    }
    bench.bench.rulers = loose
    bench.bench.exact = False  # and so would the canary
    outcome = bench.evaluate(Planted(bench, flickers))
    if deterministic:
        assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_REPEATABLE)
    else:
        assert outcome.status is Status.OK, outcome.message
        assert outcome.properties["repeatable"] is False


def test_an_indexing_error_within_the_tolerance_is_seen_by_the_canary() -> None:
    """Row 5: 64 neighbours are shifted by one; the tolerance would let it pass."""
    bench = Bench("product")

    def shifted(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        address, _ = one.out(buffers)
        for i in range(64):
            one.on.copy(address + 2 * i, address + 2 * (i + 1), 2)

    assert bench.bench.exact
    bench.bench.rulers = {
        name: replace(
            ruler,
            tolerance=replace(ruler.tolerance, max_atol=100.0, max_rtol=100.0),
            allowed_rms=1e6,
        )
        for name, ruler in bench.bench.rulers.items()
    }
    outcome = bench.evaluate(Planted(bench, shifted))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_EXACT), outcome.message


def test_results_kept_in_fewer_bits_are_caught() -> None:
    """Rows 10 and 13: float32 results that went through 16 bits, within the tolerance."""
    bench = Bench("norm")

    def narrowed(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        for tensor in one.on.bench.job.outputs:
            held = buffers.tensors[tensor.name]
            arguments = (np.uint64(held.address), np.int64(held.count))
            one.on.narrow((132,), (256,), arguments, stream=one.on.stream)

    wide = {
        name: replace(ruler, tolerance=replace(ruler.tolerance, max_atol=0.05, max_rtol=0.05))
        for name, ruler in bench.bench.rulers.items()
    }
    bench.bench.rulers = wide
    outcome = bench.evaluate(Planted(bench, narrowed))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, PRECISION_LOWERED), (
        outcome.message
    )


def test_inputs_are_cold_and_random() -> None:
    """Rows 14 and 15: 34 MB of weights fit into the cache, and still come from memory."""
    bench = Bench("product", shape=(64, 4096, 4096))
    assert bench.evaluate(bench.honest).status is Status.OK  # and its kernels are loaded
    memory, cupy = bench.bench.memory, bench.cupy
    touched = memory.count * bench.bench.job.touched_bytes
    assert memory.swept or touched > 2 * int(bench.work._properties["l2CacheSize"])
    times = {}
    for cache in ("warm", "cold"):
        graph = bench.bench.graph(bench.honest, 20.0, cache)
        times[cache] = float(np.median([graph.replay().call_us for _ in range(12)]))
    assert times["cold"] > 1.2 * times["warm"], times
    for buffers in memory.sets:
        for tensor in bench.bench.job.inputs:
            raw = bench.bench.oracle.raw(tensor, buffers.tensors[tensor.name])
            assert float(cupy.count_nonzero(raw)) > 0.9 * tensor.count


def test_a_contest_catches_who_remembers_values(bench: Bench) -> None:
    """Rows 16, 17 and 21: honest twins are equal in pairs; who answers from memory fails."""

    def recalls(one: Planted, buffers: TensorSet, call: Call) -> None:
        address, nbytes = one.out(buffers)
        if one.calls == 1:
            call()
            one.kept = one.on.cupy.cuda.alloc(nbytes)
            one.on.copy(int(one.kept.ptr), address, nbytes)
        one.on.copy(address, int(one.kept.ptr), nbytes)

    twins = [Planted(bench, honest), Planted(bench, honest), Planted(bench, recalls)]
    reply = OperatorRing(bench.bench).run(dict(enumerate(twins)), 15, "cold", 3)
    assert set(reply.failures) == {2}
    samples = np.array(reply.samples)
    assert np.isnan(samples[:, 2]).all()
    assert 0.9 < float(np.median(samples[:, 0] / samples[:, 1])) < 1.1


def test_work_on_another_stream_is_not_timed_as_nothing(bench: Bench) -> None:
    """Row 18: the job is done, right and in time, where the clock does not look."""
    aside = bench.elsewhere()

    def moves(one: Planted, buffers: TensorSet, call: Call) -> None:
        if not one.on.capturing():
            one.on.stream.synchronize()
        aside.call(buffers)()
        if not one.on.capturing():
            one.on.side.synchronize()

    outcome = bench.evaluate(Planted(bench, moves))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, TOO_FAST), outcome.message
    bench.side.synchronize()
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK, "the next one is honest"


def test_work_that_leaves_the_stream_and_never_comes_back_is_refused(bench: Bench) -> None:
    """Row 18: a branch of the graph that nothing waits for."""

    def branches(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        if one.on.capturing():
            one.on.side.wait_event(one.on.stream.record())
            one.on.spinning(one.on.side)

    with pytest.raises(Exception, match=r"(?i)capture|unjoined"):
        bench.evaluate(Planted(bench, branches))
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK, "the next one is honest"


def test_work_beside_the_clock_is_seen_on_the_wall() -> None:
    """Row 18: nodes of the graph for which the last event does not wait; spans of a millisecond."""
    from cuda.bindings import driver

    bench = Bench("product", shape=(4096, 8192, 8192))
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK
    handle = driver.CUstream(bench.stream.ptr)

    def beside_the_clock(one: Planted, buffers: TensorSet, call: Call) -> None:
        if one.on.capturing():
            status, _, _, _, waited_for, *_ = driver.cuStreamGetCaptureInfo(handle)
            assert int(status) == 0
            one.on.spinning(one.on.stream)
            answer = driver.cuStreamUpdateCaptureDependencies(
                handle, waited_for, None, len(waited_for), 1
            )  # 1: they replace those that there are
            assert int(answer[0]) == 0
        call()

    outcome = bench.evaluate(Planted(bench, beside_the_clock))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, ESCAPED_CLOCK), outcome
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK, "the next one is honest"


def test_a_device_that_another_process_uses_condemns_nobody() -> None:
    """Row 18: everything waits for its turn on the wall, the honest as well."""
    bench = Bench("product", shape=(4096, 8192, 8192))
    with subprocess.Popen([sys.executable, "-c", OTHER_WORK], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"working\n"
            found = [bench.evaluate(Planted(bench, honest)) for _ in range(5)]
        finally:
            other.kill()
    for outcome in found:
        assert (outcome.status, outcome.failure) in {
            (Status.OK, None),
            (Status.INTERRUPTED, DEVICE_BUSY),
        }, outcome.message
    assert bench.evaluate(Planted(bench, honest)).status is Status.OK, "it is free again"


def test_a_slow_first_call_is_not_in_the_time(bench: Bench) -> None:
    """Row 20: what compiles, tunes and allocates in its first calls, and while it is recorded."""

    def settles(one: Planted, buffers: TensorSet, call: Call) -> None:
        if one.calls == 1 or one.on.capturing():
            time.sleep(0.002)
            one.kept = one.on.cupy.cuda.alloc(1 << 20)
        call()

    settling = bench.evaluate(Planted(bench, settles))
    twin = bench.evaluate(Planted(bench, honest))
    assert (settling.status, twin.status) == (Status.OK, Status.OK), settling.message
    assert 0.8 < float(np.median(settling.samples) / np.median(twin.samples)) < 1.25


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_the_baseline_has_what_a_candidate_has(cache: str) -> None:
    """Row 24: one algorithm as baseline and as candidate; a handicapped one is seen to be so."""
    bench = Bench("product", shape=(256, 1024, 4096))
    baseline = bench.honest
    assert isinstance(baseline, LtLaunchable)
    row = baseline._algorithm.row
    candidate = bench.work._launchable(0, LtContender(row))
    product = bench.bench.job.product
    assert product is not None
    assert {baseline._granted, candidate._granted} == {product.workspace_bytes}
    assert baseline._placed.addresses == candidate._placed.addresses
    assert baseline._matmul is candidate._matmul

    def twice(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        call()

    made = {0: baseline, 1: candidate, 2: Planted(bench, twice)}
    reply = OperatorRing(bench.bench).run(made, 15, cache, 5)
    assert not reply.failures
    samples = np.array(reply.samples)
    assert 0.9 < float(np.median(samples[:, 1] / samples[:, 0])) < 1.1
    assert float(np.median(samples[:, 2] / samples[:, 0])) > 1.3


_IDENTITY = """
import ctypes, json, sys
if len(sys.argv) > 1:
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from kernelarc.bench.kernels._workbench import KernelWorkbench
found = KernelWorkbench(0).environment()
print(json.dumps([dict(found.identity), found.observations["cublaslt_path"]]))
"""


def _identity(*arguments: str) -> tuple[dict[str, str], str]:
    command = [sys.executable, "-c", _IDENTITY, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=child_environment()
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    identity, path = json.loads(done.stdout.splitlines()[-1])
    return identity, path


def test_a_library_that_was_loaded_before_is_the_one_that_is_named(tmp_path: Path) -> None:
    """Row 25: another file of the same name and version is in the process already."""
    usual, path = _identity()
    assert _identity()[0] == usual
    other = tmp_path / Path(path).name
    shutil.copyfile(path, other)
    with other.open("ab") as file:
        file.write(b"changed")
    found, used = _identity(str(other))
    assert used == str(other)
    differing = {name for name in usual if usual[name] != found[name]}
    assert differing == {"cublaslt_content"}
