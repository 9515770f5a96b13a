"""Who gets which address: products of the library, aliases, scratch memory. No GPU is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelarc.bench.cuda._kernels import Tensor
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._launchable import LtLaunchable
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._messages import KernelTask
from kernelarc.bench.kernels._program import Addresses, Loader, Program, begun_alone
from kernelarc.genomes import Axis, Operator, TensorSpec, Workload
from kernelarc.genomes.kernels import (
    Build,
    Clear,
    KernelReport,
    Launch,
    LaunchAttributes,
    LaunchPlan,
    TensorArgument,
)

ROW = (1, 0, 1, 0, 0, 0, 0, 0, 0, 1 << 20)  # the last of ten is scratch memory; aliasing follows


class Recorder:
    """Takes what the library would be called with."""

    def __init__(self) -> None:
        self.launched: list[Any] = []
        self.sides: list[Any] = []

    def launch(self, algorithm: Any, addresses: Any, workspace: Any, stream: int) -> None:
        self.launched.append((addresses, workspace, stream))

    def point(self, side: Any) -> None:
        self.sides.append(side.bias)


class Scratch:
    """Hands out one place."""

    def place_bytes(self, nbytes: int) -> Any:
        return SimpleNamespace(addresses={"workspace": 7000}, guard=lambda: None, bands=None)


def _job(order: tuple[str, ...], reference: str, *, in_place: bool) -> BoundJob:
    shapes = {"x": ("M", "K"), "w": ("N", "K"), "r": ("M", "N"), "bias": ("N",)}
    operator = Operator(
        name="turned",
        axes={name: Axis(name=name, kind="var") for name in "MNK"},
        inputs=tuple(TensorSpec(name=n, shape=shapes[n], dtype="bfloat16") for n in order),
        outputs=(TensorSpec(name="y", shape=("M", "N"), dtype="bfloat16"),),
        reference=reference,
        op_type="matmul",
    )
    workload = Workload(
        operator=operator.fingerprint,
        axes={"M": 8, "N": 16, "K": 32},
        options={"in_place": in_place},
    )
    return BoundJob.of(KernelTask(operator=operator, workload=workload, in_place=in_place))


def _called(job: BoundJob, *, aliased: bool) -> tuple[Recorder, dict[str, int]]:
    recorder = Recorder()
    algorithm = SimpleNamespace(row=(*ROW, int(aliased)), properties=dict)
    stream = SimpleNamespace(ptr=3)
    one = LtLaunchable(recorder, algorithm, job, stream, Scratch())  # type: ignore[arg-type]
    tensors = {
        t.name: Tensor(1000 * place, t.count, t.nbytes, t.dtype)
        for place, t in enumerate((*job.inputs, *job.outputs), start=1)
    }
    buffers = TensorSet(block=None, tensors=tensors, scalars={})
    one.call(buffers)()
    return recorder, {name: tensor.address for name, tensor in tensors.items()}


ADDED = "def run({}):\n    return x @ w.T + r + bias\n"


@pytest.mark.parametrize("order", [("x", "w", "r", "bias"), ("bias", "w", "r", "x")])
def test_factors_are_found_by_their_role(order: tuple[str, ...]) -> None:
    job = _job(order, ADDED.format(", ".join(order)), in_place=False)
    recorder, at = _called(job, aliased=False)
    ((addresses, workspace, stream),) = recorder.launched
    assert addresses == (at["x"], at["w"], at["r"], at["y"])
    assert workspace == (7000, 1 << 20)
    assert (stream, recorder.sides) == (3, [at["bias"]])


def test_an_aliased_residual_is_read_from_the_output() -> None:
    order = ("x", "w", "r", "bias")
    job = _job(order, ADDED.format(", ".join(order)), in_place=True)
    recorder, at = _called(job, aliased=True)
    assert recorder.launched[0][0] == (at["x"], at["w"], at["y"], at["y"])


# Modules of the driver


class Driver:
    """Loads, unloads and launches by name; refuses a kernel whose module is gone."""

    CUfunction_attribute = SimpleNamespace()
    CUlaunchAttributeID = SimpleNamespace()

    def __init__(self) -> None:
        self.loaded: set[bytes] = set()
        self.launched: list[bytes] = []

    def CUstream(self, ptr: int) -> int:
        return ptr

    def cuModuleLoadData(self, content: bytes) -> tuple[int, bytes]:
        self.loaded.add(content)
        return 0, content

    def cuModuleUnload(self, module: bytes) -> tuple[int]:
        self.loaded.remove(module)
        return (0,)

    def cuModuleGetFunction(self, module: bytes, symbol: bytes) -> tuple[int, bytes]:
        return int(module not in self.loaded), module

    def cuLaunchKernel(self, function: bytes, *rest: Any) -> tuple[int]:
        assert function in self.loaded, "a kernel was launched whose module is unloaded"
        self.launched.append(function)
        return (0,)


def _built(names: list[str]) -> Build:
    steps = tuple(Launch(binary=n, symbol="k", grid=(1, 1, 1), block=(32, 1, 1)) for n in names)
    return Build(
        plan=LaunchPlan(steps=steps),
        binaries={name: name.encode() for name in names},
        kernels=tuple(KernelReport(symbol="k", registers=8) for _ in names),
        arch="sm_90a",
    )


def _bound(loader: Loader, names: list[str]) -> Any:
    program = Program(loader, _built(names), SimpleNamespace(ptr=3))
    return program.bound(Addresses(tensors={}, scratch={}, scalars={}, maps=lambda content: 0))


def test_what_may_still_be_launched_stays_loaded() -> None:
    driver = Driver()
    loader = Loader(driver)
    finalists = [_bound(loader, [f"{i}.{j}" for j in range(12)]) for i in range(9)]
    assert len(driver.loaded) == 108
    for call in finalists:
        call()
    assert len(driver.launched) == 108
    del finalists, call
    _bound(loader, ["one more"])()
    assert len(driver.loaded) <= 64, "what nobody holds makes room"
    assert b"one more" in driver.loaded


def test_a_job_never_overlaps_with_the_call_before_it() -> None:
    """Else what many calls in a row take would be a rate, not the time of one."""
    early = LaunchAttributes(overlap=True, carveout=50)
    first, second = (
        Launch(binary="b", symbol=s, grid=(1, 1, 1), block=(32, 1, 1), attributes=early)
        for s in ("one", "two")
    )
    clear = Clear(target=TensorArgument("y"), nbytes=4)
    made = begun_alone((clear, first, second))
    assert made[0] is clear
    assert made[2] == second
    alone = made[1]
    assert isinstance(alone, Launch)
    assert alone.attributes == LaunchAttributes(overlap=False, carveout=50)
