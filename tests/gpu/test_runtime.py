"""The runtime on a GPU: right on CuPy and torch, on the current stream, from a table of its own."""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.engine import CampaignSettings, run
from kernelarc.runtime import Table, TableWarning, load
from kernelarc.storage import export, open_reader

ROOT = Path(__file__).resolve().parent.parent.parent
SHAPES = (256, 512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run one short campaign and export its table and its structs."""
    found = tmp_path_factory.mktemp("runtime")
    store = str(found / "lt.db")
    run(
        CampaignSettings(
            target="matmul",
            axes={"N": 1024, "K": 1024},
            workloads=tuple({"M": m} for m in SHAPES),
            options={"dtype": "fp16", "residual": True},
            budget=120,
            models=False,
            store=store,
        )
    )
    with open_reader(store) as reader:
        export(reader, None, "cublaslt", found / "table.json")
        export(reader, None, "npy", found / "lt.npy")
    return found


@pytest.fixture
def table(folder: Path) -> Table:
    return load(folder / "table.json")


def cupy_arrays(m: int) -> tuple[Any, Any, Any]:
    import cupy

    rng = cupy.random.default_rng(m)
    x = rng.standard_normal((m, 1024), dtype=cupy.float32).astype(cupy.float16)
    weight = (rng.standard_normal((1024, 1024), dtype=cupy.float32) / 32).astype(cupy.float16)
    y = rng.standard_normal((m, 1024), dtype=cupy.float32).astype(cupy.float16)
    return x, weight, y


def wide(array: Any) -> Any:
    return array.astype("f4")


def forced(folder: Path) -> dict[str, Any]:
    """Return the table with every algorithm in use, however little the campaign gained by it."""
    content: dict[str, Any] = json.loads((folder / "table.json").read_text())
    for entry in content["entries"]:
        entry["use"] = "algorithm"
    return content


def out_of(entry: dict[str, Any], y: Any) -> Any:
    """Return where the result of the call goes that an entry is for: in place, or apart."""
    return y if entry["algorithm"]["aliased"] else None


@pytest.mark.parametrize("m", [*SHAPES, 300])
def test_cupy_in_place_and_apart(table: Table, m: int) -> None:
    x, weight, y = cupy_arrays(m)
    wanted = wide(x) @ wide(weight).T
    before = y.copy()
    assert table.matmul(x, weight.T, residual=y, out=y) is y
    assert float(abs(wide(y) - wanted - wide(before)).max()) < 0.03
    assert float(abs(wide(table.matmul(x, weight.T)) - wanted).max()) < 0.02
    apart = table.matmul(x, weight.T, residual=before)
    assert float(abs(wide(apart) - wanted - wide(before)).max()) < 0.03


def test_entries_are_used_and_others_run_the_heuristic(table: Table, folder: Path) -> None:
    entries = json.loads((folder / "table.json").read_text())["entries"]
    for entry in entries:
        x, weight, y = cupy_arrays(entry["product"]["m"])
        # What falls back to the heuristic stands for the product as it was asked for, in place.
        target = out_of(entry, y) if entry["use"] == "algorithm" else y
        source = table.source(x, weight.T, residual=y, out=target)
        start = "entry M=" if entry["use"] == "algorithm" else "heuristic (entry"
        assert source.startswith(start)
    assert table.source(*cupy_arrays(300)[:2]) == "heuristic (no entry)"


def test_the_current_stream_is_used(table: Table) -> None:
    import cupy

    x, weight, y = cupy_arrays(256)
    table.matmul(x, weight.T, residual=y, out=y)
    cupy.cuda.Device().synchronize()
    stream, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()  # what went to any other stream would not be in the graph
        table.matmul(x, weight.T, residual=y, out=y)
        graph = stream.end_capture()
    before = wide(y)
    cupy.cuda.Device().synchronize()
    graph.launch(other)
    other.synchronize()
    wanted = before + wide(x) @ wide(weight).T
    assert float(abs(wide(y) - wanted).max()) < 0.06


def test_bias_and_activation(table: Table) -> None:
    import cupy

    x, weight, _ = cupy_arrays(256)
    for seed in (1, 2):  # the second bias lies elsewhere: the plan is the first one's
        drawn = cupy.random.default_rng(seed).standard_normal(1024, dtype=cupy.float32)
        bias = drawn.astype(cupy.float16)
        made = table.matmul(x, weight.T, bias=bias, activation="relu")
        wanted = cupy.maximum(wide(x) @ wide(weight).T + wide(bias), 0)
        assert float(abs(wide(made) - wanted).max()) < 0.03


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_torch(table: Table, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x = torch.randn(4, 64, 1024, device="cuda").to(kind)
    weight = (torch.randn(1024, 1024, device="cuda") / 32).to(kind)
    y = torch.randn(4, 64, 1024, device="cuda").to(kind)
    wanted = x.double() @ weight.double().T + y.double()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        table.matmul(x, weight.T, residual=y, out=y)
        torch.cuda.current_stream().synchronize()
    assert float((y.double() - wanted).abs().max()) < 0.1
    made = table.matmul(x, weight.T)
    assert made.dtype is kind and made.shape == (4, 64, 1024)


def test_anything_with_dlpack(table: Table) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self._array = array
            self.__dlpack_device__ = array.__dlpack_device__

        def __dlpack__(self, **more: Any) -> Any:
            return self._array.__dlpack__(**more)

    x, weight, y = cupy_arrays(256)
    wanted = wide(y) + wide(x) @ wide(weight).T
    out = Foreign(y)
    table.matmul(Foreign(x), Foreign(weight.T), residual=out, out=out)
    assert float(abs(wide(y) - wanted).max()) < 0.03


def test_an_edited_algorithm_warns_and_the_heuristic_runs(folder: Path, tmp_path: Path) -> None:
    content = forced(folder)
    for entry in content["entries"]:
        entry["algorithm"]["attributes"]["tile"] = 4_000_000
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(content))
    x, weight, y = cupy_arrays(256)
    wanted = wide(y) + wide(x) @ wide(weight).T
    found = load(path)
    with pytest.warns(TableWarning, match="refuses"):
        made = found.matmul(x, weight.T, residual=y, out=out_of(content["entries"][0], y))
    assert float(abs(wide(made) - wanted).max()) < 0.03


def test_another_library_s_table_warns_once_and_the_heuristic_runs(
    folder: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    content = forced(folder)
    content["library"]["version"] = 1
    path = tmp_path / "older.json"
    path.write_text(json.dumps(content))
    found = load(path)
    for entry in content["entries"]:
        x, weight, y = cupy_arrays(entry["product"]["m"])
        wanted = wide(y) + wide(x) @ wide(weight).T
        target = out_of(entry, y)
        made = found.matmul(x, weight.T, residual=y, out=target)
        assert float(abs(wide(made) - wanted).max()) < 0.03
        assert found.source(x, weight.T, residual=y, out=target).startswith("heuristic (tuned")
    assert len([w for w in recwarn if issubclass(w.category, TableWarning)]) == 1


def test_the_planner_of_nvmath_takes_the_structs(folder: Path) -> None:
    advanced = pytest.importorskip("nvmath.linalg.advanced")
    entries = json.loads((folder / "table.json").read_text())["entries"]
    for entry, path in zip(entries, sorted(folder.glob("lt.*.npy")), strict=True):
        algorithm = advanced.Algorithm.from_numpy(np.load(path, allow_pickle=False))
        assert algorithm.algorithm_id == entry["algorithm"]["attributes"]["algo"]


def test_the_example_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = str(ROOT / "examples" / "run_a_table.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [example, str(folder / "table.json")])
        runpy.run_path(example, run_name="__main__")
    printed = capsys.readouterr().out
    assert float(printed.split()[-1]) < 0.05


def per_call_us(call: Callable[[], object], drain: Callable[[], object]) -> float:
    """Return the host's time for one call: bursts too short to fill the launch queue."""
    times = []
    for _ in range(30):
        drain()
        begun = time.perf_counter()
        for _ in range(100):
            call()
        times.append((time.perf_counter() - begun) / 100)
    return 1e6 * sorted(times)[len(times) // 2]


def test_a_later_call_costs_little_more_than_the_binding(table: Table) -> None:
    import cupy

    x, weight, y = cupy_arrays(256)
    b = weight.T
    table.matmul(x, b, residual=y, out=y)
    plan = next(iter(table._plans.values()))
    current = cupy.cuda.get_current_stream
    scratch = table._scratch_for(plan, current().ptr)

    def direct() -> None:
        target = y.data.ptr
        plan.launch(x.data.ptr, b.data.ptr, target, target, scratch, current().ptr)

    drain = cupy.cuda.Device().synchronize
    bare = per_call_us(direct, drain)
    ours = per_call_us(lambda: table.matmul(x, b, residual=y, out=y), drain)
    assert ours < bare + 3.0
