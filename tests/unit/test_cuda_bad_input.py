"""Bad input to the device ``cuda:N``, without a GPU: one line, its exit code, nothing written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.unit.lt_fake import FakeLt
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.bench.cuda._arena import Needs
from kernelarc.bench.cuda._workbench import _cupy
from kernelarc.cli import exit_code
from kernelarc.engine import _targets
from kernelarc.genomes import (
    InputError,
    MissingPartError,
    axis_values,
    matmul_job,
    matmul_target,
)

GIB = 1 << 30
PRODUCT = ["run", "matmul", "--device", "cuda:0", "--budget", "20", "--store", "s.db"]


class SmallWorker(FormulaWorker):
    """Has a GPU with a quarter of a gibibyte free."""

    def open(self, tasks: Sequence[Any], seed: int) -> None:
        for task in tasks:
            Needs.of(task.job, 50 << 20).demand(task.job, GIB // 4)
        super().open(tasks, seed)


def refusing(ordinal: int, *_: Any) -> FormulaWorker:
    """Return a worker whose library takes nothing."""
    return FormulaWorker(ordinal, lt=FakeLt(rule=lambda values: False))


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that runs the command and returns its one line on standard error."""
    monkeypatch.setattr(_targets, "KernelDevice", ScriptedDevice)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, worker: Callable[..., FormulaWorker] = FormulaWorker) -> str:
        monkeypatch.setattr(_session, "WorkerProcess", lambda ordinal, *_: worker(ordinal))
        code = exit_code([*PRODUCT, *words])
        line = capsys.readouterr().err.strip()
        assert code == 2, line
        assert "\n" not in line and not list(tmp_path.iterdir())
        return line

    return run


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--option", "dtype=fp8", "--set", "K=24"), ("multiples of 16", "K=24")),
        (("--option", "dtype=fp8", "--option", "layout=NN"), ("contiguous along",)),
        (("--option", "layout=TT"), ("option layout", "TN")),
        (("--option", "dtype=bf61"), ("'bf61'", "bf16")),
        (("--option", "workspace_mib=5000"), ("workspace_mib", "0 to 4096", "5000")),
    ],
)
def test_products_that_cannot_be(
    refused: Callable[..., str], words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    line = refused(*words)
    assert all(part in line for part in parts), line


def test_a_product_that_the_library_refuses(refused: Callable[..., str]) -> None:
    line = refused("--set", "M=96", "--set", "N=64", "--set", "K=512", worker=refusing)
    assert "offers nothing for bfloat16 TN M=96 N=64 K=512" in line


def test_too_little_memory_says_need_and_have(refused: Callable[..., str]) -> None:
    sizes = [word for axis in "MNK" for word in ("--set", f"{axis}=8192")]
    line = refused(*sizes, worker=SmallWorker)
    assert "M=8192 N=8192 K=8192 needs" in line and "0.2 are free" in line


def test_scratch_memory_is_part_of_the_need() -> None:
    found = matmul_target([{"M": 64, "N": 64, "K": 64}], {"workspace_mib": 4096})
    (workload,) = found.workloads
    job = matmul_job(found.operator, workload, axis_values(found.operator, workload))
    assert job is not None
    needs = Needs.of(job, 50 << 20)
    needs.demand(job, 5 * GIB)
    with pytest.raises(InputError, match=r"needs 4\.\d GiB of device memory, 3\.0 are free"):
        needs.demand(job, 3 * GIB)


def cupy_that(count: Callable[[], int]) -> ModuleType:
    found = ModuleType("cupy")
    runtime = SimpleNamespace(getDeviceCount=count, free=lambda address: None)
    device = SimpleNamespace(use=lambda: None)
    found.cuda = SimpleNamespace(runtime=runtime, Device=lambda ordinal: device)  # type: ignore[attr-defined]
    return found


def no_driver() -> int:
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient\nmore")


@pytest.mark.parametrize(
    ("cupy", "text"),
    [
        (None, r"needs CuPy: install kernelarc\[cuda\]"),
        (cupy_that(no_driver), r"no NVIDIA GPU can be used: .* driver .*insufficient\)$"),
        (cupy_that(lambda: 1), "there is no cuda:2: this machine has 1 GPUs"),
    ],
)
def test_what_is_missing_is_named(
    cupy: ModuleType | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(MissingPartError, match=text) as missing:
        _cupy(2)
    assert "\n" not in str(missing.value) and missing.value.exit_code == 4
