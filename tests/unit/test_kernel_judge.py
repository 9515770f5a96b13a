"""The judge of compiled kernels on a stand-in device: the faults that a GPU is given, planted here.

What is tested is the order of checks and what is made of them; the device's own kernels are
tested on a GPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.gpu.test_kernel_guardrails import FAULTS, Fault, Planted, honest
from tests.unit.host_device import L2_BYTES, Clock, Kernels, Memory, Stream, floats

from kernelarc.bench._numerics import NOT_EXACT, PRECISION_LOWERED
from kernelarc.bench._roofline import Floor
from kernelarc.bench.cuda._clock import Call
from kernelarc.bench.cuda._jobbench import Instruments
from kernelarc.bench.cuda._judge import NOT_REPEATABLE
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._bench import OperatorBench, _rulers
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._launchable import Launchable
from kernelarc.bench.kernels._memory import JobMemory, TensorSet
from kernelarc.bench.kernels._oracle import Oracle
from kernelarc.bench.kernels._program import LaunchRefusedError
from kernelarc.bench.kernels._ring import OperatorRing
from kernelarc.bench.kernels._session import _task
from kernelarc.bench.kernels._trial import tried
from kernelarc.genomes import (
    InputError,
    MatmulForm,
    Problem,
    Status,
    builtin_problem,
    matmul_operator,
    matmul_problem,
)


def _product() -> Problem:
    form = MatmulForm(dtype="float32")
    return matmul_problem(matmul_operator(form), [{"M": 24, "N": 96, "K": 72}])


def _norm() -> Problem:
    whole = builtin_problem("add_rmsnorm")
    return Problem(
        operator=whole.operator,
        workloads=(replace(whole.workloads[0], axes={"rows": 12, "hidden": 160}),),
    )


class Honest(Launchable):
    """The job in NumPy's float32."""

    def __init__(self, bench: HostBench) -> None:
        self._on, self.aliases = bench, {}

    def call(self, buffers: TensorSet) -> Call:
        held = {name: floats(tensor) for name, tensor in buffers.tensors.items()}
        shapes = {
            t.name: t.shape for t in (*self._on.bench.job.inputs, *self._on.bench.job.outputs)
        }
        work = self._multiplied if self._on.kind == "product" else self._normed
        shaped = {name: array.reshape(shapes[name]) for name, array in held.items()}
        return lambda: self._on.stream.launch(lambda: work(shaped, buffers))

    @staticmethod
    def _multiplied(held: dict[str, Any], buffers: TensorSet) -> None:
        held["out"][...] = held["a"] @ held["weight"].T

    @staticmethod
    def _normed(held: dict[str, Any], buffers: TensorSet) -> None:
        total = held["x"] + held["residual"]
        epsilon = np.float32(next(iter(buffers.scalars.values()), 1e-5))
        scale = 1.0 / np.sqrt((total**2).mean(-1, keepdims=True, dtype=np.float32) + epsilon)
        held["summed"][...] = total
        held["y"][...] = total * scale * held["norm_weight"]


class HostBench:
    """One job on the stand-in device, with what planted faults ask for."""

    def __init__(self, kind: str, *, deterministic: bool = False) -> None:
        problem = _product() if kind == "product" else _norm()
        task = replace(_task(problem, problem.workloads[0]), deterministic=deterministic)
        self.kind, self.stream = kind, Stream()
        self.cupy = Memory(self.stream)
        kernels: Any = Kernels(self.stream)
        clock: Any = Clock(self.stream)
        tools = Instruments(
            cupy=self.cupy,
            stream=self.stream,
            kernels=kernels,
            clock=clock,
            scratch=0,
            sweep=(0, 0),
        )
        job = BoundJob.of(task)
        memory = JobMemory(self.cupy, kernels, self.stream, job, L2_BYTES)
        oracle = Oracle(self.cupy, kernels, self.stream, job)
        floor = Floor(latency_us=5.0, reason="call")
        self.bench = OperatorBench(tools, memory, oracle, floor=floor, seed=5)
        self.honest = Honest(self)

    def evaluate(self, one: Launchable, limit_us: float | None = None) -> Outcome:
        self.bench.ready()
        return self.bench.evaluate(1, one, limit_us)

    def set_bytes(self, address: int, value: int, nbytes: int) -> None:
        self.cupy.cuda.runtime.memsetAsync(address, value, nbytes, 1)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self.cupy.cuda.runtime.memcpyAsync(to, source, nbytes, 3, 1)

    def capturing(self) -> bool:
        return self.stream.noted is not None


@pytest.fixture(scope="module", params=["product", "norm"])
def bench(request: pytest.FixtureRequest) -> HostBench:
    return HostBench(request.param)


@pytest.fixture(autouse=True)
def renewed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "bench" in request.fixturenames:
        held = request.getfixturevalue("bench")
        held.bench.rulers = _rulers(held.bench.job)
        held.bench.renew()


def planted(bench: HostBench, fault: Fault) -> Planted:
    return Planted(bench, fault)  # type: ignore[arg-type]


def test_the_honest_twin_passes(bench: HostBench) -> None:
    outcome = bench.evaluate(planted(bench, honest))
    assert (outcome.status, outcome.failure) == (Status.OK, None), outcome.message
    assert outcome.properties["repeatable"] is True
    assert set(outcome.samples) == {10.0}
    assert outcome.launches > 1


@pytest.mark.parametrize(("fault", "classes"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_a_planted_fault_is_caught(bench: HostBench, fault: Fault, classes: set[str]) -> None:
    outcome = bench.evaluate(planted(bench, fault))
    assert outcome.status is Status.WRONG_RESULT, fault.__doc__
    assert outcome.failure in classes, outcome.message
    assert bench.evaluate(planted(bench, honest)).status is Status.OK


@pytest.mark.parametrize("deterministic", [False, True])
def test_differing_runs_are_a_property_or_a_failure(deterministic: bool) -> None:
    bench = HostBench("norm", deterministic=deterministic)

    def flickers(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        if one.calls % 3 == 1:  # the last bit of one element
            address = one.out(buffers)[0]
            bench.stream.do(lambda: _flip(address))

    outcome = bench.evaluate(planted(bench, flickers))
    if deterministic:
        assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_REPEATABLE)
    else:
        assert outcome.status is Status.OK, outcome.message
        assert outcome.properties["repeatable"] is False


def _flip(address: int) -> None:
    ctypes.c_uint32.from_address(address).value ^= 1


def test_an_indexing_error_within_the_tolerance_is_seen_by_the_canary() -> None:
    bench = HostBench("product")

    def shifted(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        address, _ = one.out(buffers)
        one.on.copy(address, address + 4, 4 * 64)

    assert bench.bench.exact
    bench.bench.rulers = {
        name: replace(
            ruler,
            tolerance=replace(ruler.tolerance, max_atol=100.0, max_rtol=100.0),
            allowed_rms=1e6,
        )
        for name, ruler in bench.bench.rulers.items()
    }
    outcome = bench.evaluate(planted(bench, shifted))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_EXACT), outcome.message


def test_results_kept_in_fewer_bits_are_caught() -> None:
    bench = HostBench("norm")

    def narrowed(one: Planted, buffers: TensorSet, call: Call) -> None:
        call()
        for spec in bench.bench.job.outputs:
            words = floats(buffers.tensors[spec.name]).view(np.uint32)
            bench.stream.do(partial(np.bitwise_and, words, np.uint32(0xFFFF0000), out=words))

    bench.bench.rulers = {
        name: replace(ruler, tolerance=replace(ruler.tolerance, max_atol=0.05, max_rtol=0.05))
        for name, ruler in bench.bench.rulers.items()
    }
    outcome = bench.evaluate(planted(bench, narrowed))
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, PRECISION_LOWERED)


def test_the_canary_stays_where_its_guard_bands_are_checked(bench: HostBench) -> None:
    memory: Any = bench.bench.memory
    with pytest.raises(AttributeError):
        memory.canary = None
    assert memory.bands.size == 2 * len(memory.canary.tensors) * (memory.count + 1)


def test_what_is_clearly_slower_is_stopped_early(bench: HostBench) -> None:
    outcome = bench.evaluate(planted(bench, honest), 4.0)
    assert outcome.status is Status.OK and outcome.censored
    assert not bench.evaluate(planted(bench, honest), 9.0).censored


def test_a_contest_catches_who_remembers_values(bench: HostBench) -> None:
    def recalls(one: Planted, buffers: TensorSet, call: Call) -> None:
        address, nbytes = one.out(buffers)
        if one.calls == 1:
            call()
            one.kept = one.on.cupy.cuda.alloc(nbytes)
            one.on.copy(int(one.kept.ptr), address, nbytes)
        one.on.copy(address, int(one.kept.ptr), nbytes)

    twins = [planted(bench, honest), planted(bench, honest), planted(bench, recalls)]
    reply = OperatorRing(bench.bench).run(dict(enumerate(twins)), 5, "cold", 3)
    assert set(reply.failures) == {2}
    samples = np.array(reply.samples)
    assert np.isnan(samples[:, 2]).all()
    assert np.array_equal(samples[:, :2], np.full((5, 2), 10.0))


def test_a_slow_reference_is_ready_before_any_candidate_needs_it(bench: HostBench) -> None:
    answered = []
    answer = bench.bench.oracle.answer

    def counted(*arguments: Any) -> None:
        answered.append(1)
        answer(*arguments)

    oracle: Any = bench.bench.oracle
    oracle.answer = counted
    try:
        bench.bench.forget()
        for _ in range(30):
            bench.bench.ready()
            before = len(answered)
            assert bench.bench.evaluate(1, planted(bench, honest), None).status is Status.OK
            assert len(answered) == before, "no reference is computed on a candidate's time"
    finally:
        oracle.answer = answer


class Plain(Launchable):
    """A baseline that cannot be captured: it knows so, or the capture says so."""

    checked = False

    def __init__(self, bench: HostBench, *, knows: bool) -> None:
        self.aliases: dict[str, str] = {}
        self._bench, self._knows = bench, knows
        self.sets: set[int] = set()

    def captures(self, buffers: TensorSet) -> bool:
        return not self._knows

    def call(self, buffers: TensorSet) -> Call:
        honest = self._bench.honest.call(buffers)

        def launch() -> None:
            if self._bench.capturing():
                self._bench.stream.noted = None
                raise RuntimeError("operation not permitted when stream is capturing")
            self.sets.add(id(buffers))
            honest()

        return launch


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("knows", [True, False])
def test_a_baseline_that_no_graph_takes_is_timed_all_the_same(
    bench: HostBench, knows: bool, cache: str
) -> None:
    plain = Plain(bench, knows=knows)
    reply = OperatorRing(bench.bench).run({0: planted(bench, honest), 1: plain}, 6, cache, 3)
    assert not reply.failures
    assert np.array_equal(np.array(reply.samples), np.full((6, 2), 10.0))
    used = len(bench.bench.memory.sets) if cache == "cold" else 1
    assert len(plain.sets) == min(used, 8)  # two replays warm it


def test_a_candidate_that_no_graph_takes_is_not_excused(bench: HostBench) -> None:
    plain = Plain(bench, knows=False)
    plain.checked = True
    with pytest.raises(RuntimeError, match="capturing"):
        OperatorRing(bench.bench).run({0: plain}, 3, "cold", 3)


class Rival(Plain):
    """A baseline whose results land when they are asked for."""

    def __init__(self, bench: HostBench, spoil: Callable[[HostBench, TensorSet], None]) -> None:
        super().__init__(bench, knows=False)
        self._spoil = spoil

    def land(self, buffers: TensorSet) -> None:
        self._bench.honest.call(buffers)()
        self._spoil(self._bench, buffers)


def _nothing(bench: HostBench, buffers: TensorSet) -> None:
    """Leave all as it is."""


def _shifts(bench: HostBench, buffers: TensorSet) -> None:
    out = floats(buffers.tensors[bench.bench.job.outputs[-1].name])
    out[:] = np.roll(out, 1)


def _rounds(bench: HostBench, buffers: TensorSet) -> None:
    """Be less exact than a candidate may, within the tolerance."""
    out = floats(buffers.tensors[bench.bench.job.outputs[-1].name])
    out[:] = out * (1 + 2.0**-18)


def _other_outputs(bench: HostBench, buffers: TensorSet) -> None:
    raise InputError("the output 'out' has the shape (3,), not (4,)")


def _refuses(bench: HostBench, buffers: TensorSet) -> None:
    raise LaunchRefusedError("RuntimeError: no such kernel")


@pytest.mark.parametrize(
    ("spoil", "wrong", "cause"),
    [
        (_nothing, "", ""),
        (_rounds, "", ""),
        (_shifts, "error above the cap|mismatch|match", ""),
        (_other_outputs, "has the shape", ""),
        (_refuses, "", "RuntimeError: no such kernel"),
    ],
)
def test_a_baseline_is_held_to_the_tolerance_and_to_nothing_else(
    bench: HostBench, spoil: Callable[[HostBench, TensorSet], None], wrong: str, cause: str
) -> None:
    found = tried(bench.bench, Rival(bench, spoil))
    assert (found.latency_us is None) is bool(cause)
    assert found.cause == cause
    assert bool(found.wrong) is bool(wrong)
    assert re.search(wrong, found.wrong)
    assert found.latency_us in {None, 10.0}
    own = tried(bench.bench, planted(bench, honest))
    assert (own.latency_us, own.cause, own.wrong) == (10.0, "", "")
    assert bench.evaluate(planted(bench, honest)).status is Status.OK


class Slow(Plain):
    """A baseline of a fifth of a second."""

    def call(self, buffers: TensorSet) -> Call:
        stream, call = self._bench.stream, super().call(buffers)

        def launch() -> None:
            call()
            stream.launched += 19_999

        return launch


def test_a_slow_baseline_is_timed_in_some_rounds_only(bench: HostBench) -> None:
    slow = Slow(bench, knows=True)
    reply = OperatorRing(bench.bench).run({0: planted(bench, honest), 1: slow}, 40, "cold", 3)
    own, theirs = np.array(reply.samples).T
    assert np.array_equal(own, np.full(40, 10.0))
    assert np.flatnonzero(~np.isnan(theirs)).tolist() == list(range(0, 40, 5))
    assert set(theirs[::5]) == {200_000.0}
    few = OperatorRing(bench.bench).run({0: planted(bench, honest), 1: slow}, 6, "cold", 3)
    assert not np.isnan(np.array(few.samples)).any()
