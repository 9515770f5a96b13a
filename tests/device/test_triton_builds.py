"""Triton builds without a GPU: what is passed is what the machine code takes."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench.kernels import BuildReply, BuildShelf, CompilePool, Order
from kernelarc.engine import CampaignSettings, resolve_target
from kernelarc.genomes import Genome, Problem
from kernelarc.genomes.kernels import (
    SCALAR_TYPES,
    Argument,
    Build,
    BuildError,
    DeviceLimits,
    InputArgument,
    KernelRoute,
    ScalarArgument,
    TensorMap,
    kernel_routes,
)
from kernelarc.genomes.triton import FOLDER_VARIABLE, rehearsal

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

ARCH = "sm_90a"
LIMITS = DeviceLimits.of_arch(ARCH)
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)")
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64, "e": 16, "f": 32, "d": 64}


def _problem(target: str, **options: bool | str) -> Problem:
    axes = {"M": 512, "N": 768, "K": 1024} if target == "matmul" else {}
    settings = CampaignSettings(target=target, device="cuda:0", axes=axes, options=options)
    return resolve_target(settings).problem


def _route(problem: Problem) -> KernelRoute:
    (found,) = (route for route in kernel_routes(problem.operator) if route.name == "triton")
    return found


def _bits(argument: Argument) -> int:
    if isinstance(argument, TensorMap):
        return 1024
    if isinstance(argument, ScalarArgument | InputArgument):
        return _BITS[SCALAR_TYPES[argument.kind][1].lower()]
    return 64


def _taken(source: str) -> list[list[int]]:
    """Return the sizes in bits of every kernel's parameters, in order."""
    found = []
    for _, inside in _ENTRY.findall(source):
        lines = [line.strip() for line in inside.strip().splitlines()]
        sizes = []
        for line in lines:
            width = int(re.search(r"\.[usbf](\d+)", line)[1])  # type: ignore[index]
            array = re.search(r"\[(\d+)\]", line)
            sizes.append(width * int(array[1]) if array else width)
        found.append(sizes)
    return found


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("matmul", {"residual": True}),
        ("matmul", {"dtype": "float16", "bias": True, "layout": "NN", "epilogue": "gelu"}),
        ("add_rmsnorm", {}),
    ],
)
def test_arguments_are_those_that_the_code_takes(
    target: str, options: dict[str, bool | str]
) -> None:
    problem = _problem(target, **options)
    route, (workload, *_) = _route(problem), problem.workloads
    space, rng, built = route.space(workload, LIMITS), np.random.default_rng(3), 0
    for _ in range(10):
        try:
            build = route.build(workload, space.sample(rng), ARCH)
        except BuildError:
            continue
        built += 1
        passed = [[_bits(a) for a in launch.arguments] for launch in build.plan.launches]
        assert passed == _taken(build.source)
        names = {t.name for t in (*problem.operator.inputs, *problem.operator.outputs)}
        scratch = {buffer.name for buffer in build.plan.scratch}
        for launch in build.plan.launches:
            for argument in launch.arguments:
                source = argument.source if isinstance(argument, TensorMap) else argument
                if not isinstance(source, ScalarArgument):
                    assert source.name in names | scratch
    assert built >= 7


def _ordered(pool: CompilePool, problem: Problem, place: int, genome: Genome) -> BuildReply:
    workload = problem.workloads[place]
    pool.submit(Order(ticket=place, route="triton", workload=workload, genome=genome))
    until = time.monotonic() + 90
    while not (found := pool.harvest()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found[0]


def test_a_rehearsal_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "compiled"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    rehearsal()
    assert not folder.exists()
    assert os.environ[FOLDER_VARIABLE] == str(folder)


def test_workloads_that_differ_in_size_only_share_machine_code(tmp_path: Path) -> None:
    axes = ({"M": 512, "N": 512, "K": 512}, {"M": 1024, "N": 512, "K": 512})
    settings = CampaignSettings(target="matmul", device="cuda:0", workloads=axes)
    problem = resolve_target(settings).problem
    route = _route(problem)
    space = route.space(problem.workloads[0], LIMITS)
    genome = space.repair(
        {"load": "pointer", "split_k": 1, "persistent": False, "block_m": 64, "num_ctas": 1},
        np.random.default_rng(0),
    )
    assert genome is not None
    pool = CompilePool([route], ARCH, BuildShelf(tmp_path), processes=1)
    try:
        first, second = (_ordered(pool, problem, place, genome) for place in (0, 1))
    finally:
        pool.close()
    assert isinstance(first.build, Build)
    assert isinstance(second.build, Build)
    assert first.build.binaries == second.build.binaries
    assert first.build.content != second.build.content
    assert second.seconds < first.seconds / 3
    assert len(list(tmp_path.rglob("*.triton"))) == 1
