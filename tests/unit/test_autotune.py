"""The decorator that stands for Triton's: what travels, who searches, what is read."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kernelarc
from kernelarc.bench.kernelfile import kernel_target
from kernelarc.engine.tuning._calls import captured
from kernelarc.engine.tuning._job import TuningJob, TuningSubject
from kernelarc.engine.tuning._known import look_up
from kernelarc.engine.tuning._program import Order, written_buffers
from kernelarc.engine.tuning._searching import SearchFailedError, have_searched
from kernelarc.engine.tuning._settings import Wishes, default_store, mode
from kernelarc.engine.tuning._sharing import SharedTooLongError, one_at_a_time
from kernelarc.engine.tuning._sources import kernel_source
from kernelarc.engine.tuning._tables import tabled
from kernelarc.engine.tuning._travel import CannotTravelError
from kernelarc.engine.tuning._writing import write_file
from kernelarc.genomes import (
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Gene,
    Genome,
    InputError,
    Judged,
    Measurement,
    Operator,
    PowerOfTwo,
    Problem,
    Status,
    TensorSpec,
    Verdict,
    Workload,
)
from kernelarc.genomes.kernels import DeviceLimits, TensorArgument
from kernelarc.genomes.triton import imported, made_inputs
from kernelarc.storage import CampaignSpec, ContestRecord, Event, Round, open_writer

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
HOPPER = DeviceLimits.of_arch("sm_90a")
GENES: list[Gene] = [
    PowerOfTwo(name="BLOCK", low=64, high=256),
    PowerOfTwo(name="W", low=1, high=2),
]


class Tensor:
    """A tensor of a program, over memory of this process: what a launch asks of one."""

    def __init__(self, base: NDArray[Any], dtype: str | None = None) -> None:
        self.base, self.dtype = base, f"torch.{dtype or base.dtype.name}"
        self.shape = base.shape

    def data_ptr(self) -> int:
        return int(self.base.__array_interface__["data"][0])

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.base.itemsize for step in self.base.strides)

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        size = self.base.itemsize
        steps = [step * size for step in strides]
        return Tensor(np.lib.stride_tricks.as_strided(self.base, shape, steps))

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def numpy(self) -> NDArray[Any]:
        return self.base


def aligned(count: int, dtype: str = "float32") -> NDArray[Any]:
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, dtype=np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype)


# Calls


def test_views_of_one_buffer_stay_views_of_one_buffer() -> None:
    packed = aligned(3 * 64).reshape(64, 3 * 1)
    flat = packed.reshape(-1)
    named = {"q": Tensor(flat[0:100]), "k": Tensor(flat[64:160]), "n": 100, "s": 0.5, "mode": "a"}
    call = captured(named)
    (buffer,) = call.buffers
    assert (buffer.name, buffer.elements, buffer.values) == ("q", 160, None)
    assert {name: view.offset for name, view in call.views.items()} == {"q": 0, "k": 64}
    assert dict(call.plain) == {"n": 100, "s": 0.5, "mode": "a"}


def test_strides_decide_how_much_memory_a_tensor_spans() -> None:
    wide = aligned(8 * 16).reshape(8, 16)[:, :4]
    (buffer,) = captured({"x": Tensor(wide)}).buffers
    assert buffer.elements == 7 * 16 + 4


def test_whole_numbers_travel_with_their_values_and_floats_do_not() -> None:
    index = aligned(32, "int32")
    index[:] = np.arange(32)[::-1]
    found = captured({"i": Tensor(index), "x": Tensor(aligned(32))}, zeroed=["x"]).buffers
    assert found[0].values is not None
    assert found[0].values.tolist() == list(range(31, -1, -1))
    assert (found[1].values, found[1].zeroed) == (None, True)


@needs_triton
def test_numbers_of_numpy_and_types_of_triton_travel() -> None:
    import triton.language as tl

    given = {"a": np.float32(0.5), "b": np.int64(7), "c": tl.bfloat16, "d": tl.constexpr(3)}
    call = captured(given)
    assert (call.plain["a"], call.plain["b"], call.plain["d"]) == (0.5, 7, 3)
    assert repr(dict(call.plain)) == "{'a': 0.5, 'b': 7, 'c': tl.dtype('bf16'), 'd': 3}"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"f": print}, "argument 'f' is a builtin_function_or_method"),
        ({"x": Tensor(aligned(8)[1:])}, "argument 'x' is not 16-byte aligned"),
        ({"x": Tensor(aligned(8)[::-1])}, "is empty or runs backwards"),
        ({"x": Tensor(aligned(8), "complex64")}, "has the dtype complex64"),
    ],
)
def test_what_cannot_travel_is_named(named: Mapping[str, Any], message: str) -> None:
    with pytest.raises(CannotTravelError, match=message):
        captured(named)


# Functions as tables


def test_a_grid_is_called_for_the_genes_that_it_looks_at() -> None:
    calls: list[int] = []

    def grid(call: Mapping[str, Any]) -> tuple[int, ...]:
        calls.append(call["BLOCK"])
        return (call["n"] // call["BLOCK"], 2)

    found = tabled("the grid", grid, {"n": 1024}, GENES, {"BLOCK": 64, "W": 1})
    assert found.genes == ("BLOCK",)
    assert found.rows == {(64,): (16, 2), (128,): (8, 2), (256,): (4, 2)}
    assert len(calls) == 4


def test_a_grid_that_looks_further_only_sometimes_is_asked_again() -> None:
    def grid(call: Mapping[str, Any]) -> tuple[int]:
        return (call["W"] if call["BLOCK"] > 64 else 7,)

    found = tabled("the grid", grid, {}, GENES, {"BLOCK": 64, "W": 1})
    assert found.genes == ("BLOCK", "W")
    assert found.rows[64, 2] == (7,)
    assert found.rows[128, 2] == (2,)


def test_a_grid_that_is_no_value_or_looks_at_too_much_cannot_travel() -> None:
    with pytest.raises(CannotTravelError, match="the grid gives a object"):
        tabled("the grid", lambda call: object(), {}, GENES, {"BLOCK": 64, "W": 1})
    with pytest.raises(CannotTravelError, match="raises for every combination"):
        tabled("the grid", lambda call: 1 / 0, {}, GENES, {"BLOCK": 64, "W": 1})
    many: list[Gene] = [PowerOfTwo(name=c, low=1, high=1 << 15) for c in "abcdef"]
    with pytest.raises(CannotTravelError, match="depends on 16,777,216 combinations"):
        tabled("the grid", lambda call: len(dict(call)), {}, many, dict.fromkeys("abcdef", 1))


# Sources

PROGRAM = """
import math
import triton
import triton.language as lang
from triton.language.extra import libdevice

SCALE: lang.constexpr = lang.constexpr(3)
SHIFT = lang.constexpr(4)

def make():
    hidden = lang.constexpr(5)

    @triton.jit
    def twice(x):
        return x * 2 + hidden

    @triton.jit(do_not_specialize=["n"])
    def main_kernel(x, n, BLOCK: lang.constexpr):
        at = lang.arange(0, BLOCK)
        value = twice(lang.load(x + at)) + SHIFT
        lang.store(x + at, libdevice.abs(value))

    return main_kernel

kernel = make()

class Odd:
    value = 1

ODD = Odd()

@triton.jit
def uses_odd(x, BLOCK: lang.constexpr):
    lang.store(x, ODD.value)
"""


@needs_triton
def test_a_kernel_is_written_down_with_what_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    module = imported(path, "program_under_test")
    text = kernel_source(module.kernel)
    assert "import triton.language as lang" in text
    assert "hidden = tl.constexpr(5)" in text
    assert "@triton.jit(do_not_specialize=['n'])\ndef main_kernel" in text
    assert text.index("def twice") < text.index("def main_kernel")
    assert "Odd" not in text
    (tmp_path / "again.py").write_text(text)
    again = imported(tmp_path / "again.py", "written_again").main_kernel
    assert [p.name for p in again.params] == ["x", "n", "BLOCK"]
    assert again.params[1].do_not_specialize
    with pytest.raises(CannotTravelError, match="'uses_odd' uses 'ODD', a Odd"):
        kernel_source(module.uses_odd)


@needs_triton
def test_a_kernel_of_a_notebook_s_cell_is_written_down(tmp_path: Path) -> None:
    import linecache

    cell = "SCALE = tl.constexpr(3)\n\n@triton.jit\ndef scaled(x):\n    tl.store(x, SCALE)\n"
    name = "<cell 7>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("import triton, triton.language as tl", space)
    exec(compile(cell, name, "exec"), space)
    (tmp_path / "cell.py").write_text(kernel_source(space["scaled"]))
    assert imported(tmp_path / "cell.py", "written_cell").SCALE.value == 3


# Jobs as kernel files

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def gather_add(x, index, out, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    i = tl.load(index + at, mask=inside, other=0)
    old = tl.load(out + at, mask=inside)
    tl.store(out + at, old + FACTOR * tl.load(x + i, mask=inside), mask=inside)
"""


def job(source: str) -> TuningJob:
    index = aligned(1000, "int32")
    index[:] = np.arange(1000)[::-1]
    named = {"x": Tensor(aligned(1000)), "index": Tensor(index), "out": Tensor(aligned(1000))}
    genes = (
        PowerOfTwo(name="BLOCK", low=64, high=256),
        PowerOfTwo(name="num_warps", low=1, high=4),
    )
    first = {"BLOCK": 128, "num_warps": 4}
    subject = TuningSubject(
        kernel="gather_add",
        source=source,
        key={"n": 1000, "x.dtype": "torch.float32"},
        genes=genes,
        seeds=(first,),
        arch="sm_90a",
        device="cuda:0",
        device_model="Some GPU",
    )
    return TuningJob(
        subject=subject,
        call=captured({**named, "n": 1000, "FACTOR": 2}),
        grid=tabled("the grid", lambda c: (-(-1000 // c["BLOCK"]),), {}, genes, first),
        computed={"EVEN": tabled("EVEN", lambda c: 1000 % c["BLOCK"] == 0, {}, genes, first)},
        pruned=None,
    )


@needs_triton
def test_a_job_becomes_a_kernel_file_whose_genomes_compile(tmp_path: Path) -> None:
    order = pickle.loads(pickle.dumps(job(KERNEL)))
    path = tmp_path / "kernels" / "gather_add.py"
    written = written_buffers(order, path)
    assert written == {"out"}
    write_file(order, written, path)
    target = kernel_target(str(path))
    (workload,) = target.problem.workloads
    assert dict(workload.axes) == {"n": 1000}
    assert [spec.name for spec in target.problem.operator.outputs] == ["out"]
    space = target.route.space(workload, HOPPER)
    assert space.size().legal == 9
    build = target.route.build(workload, space.genome({"BLOCK": 256, "num_warps": 2}), "sm_90a")
    (launch,) = build.plan.launches
    assert launch.grid == (4, 1, 1)
    assert launch.arguments[:3] == tuple(TensorArgument(n) for n in ("x", "index", "out"))
    assert dict(build.plan.aliases) == {"out": "out_before"}
    made = made_inputs(str(path), "KERNEL", {"n": 1000})
    assert made["index"][:3].tolist() == [999, 998, 997]
    assert made["x"].std() > 0.5


def test_a_subject_is_known_by_its_key_and_code() -> None:
    one = job("def gather_add(): ...").subject
    assert one.identity == job("def gather_add(): ...").subject.identity
    assert one.axes == {"n": 1000}
    for changed in (
        replace(one, source="def gather_add(): pass"),
        replace(one, key={"n": 1001}),
        replace(one, device_model="Another GPU"),
        replace(one, genes=one.genes[:1]),
        replace(one, seeds=()),
    ):
        assert changed.identity != one.identity
    assert replace(one, device="cuda:3").identity == one.identity


# Settings


def test_wishes_are_checked_when_the_program_starts() -> None:
    assert Wishes().evaluations == 200
    assert (Wishes(budget="30s").seconds, Wishes(budget="30s").evaluations) == (30.0, None)
    for wrong in ({"budget": 0}, {"budget": "30"}, {"budget": "xs"}, {"space": "all"}):
        with pytest.raises(InputError, match="autotune: "):
            Wishes(**wrong)


def test_a_space_is_held_against_the_kernel_when_the_program_starts() -> None:
    seeds = [{"BLOCK": 128, "SHAPE": object(), "num_warps": 4, "maxnreg": 0}]
    for right in (None, "configs", {"BLOCK": [64, 128]}, {"SPLIT": [1, 2]}, {"num_stages": [2]}):
        Wishes(space=right).demand_space("k", ("x", "BLOCK", "SHAPE", "SPLIT"), seeds)
    wrong: Any
    for wrong, message in (
        ({"BLOK": [128]}, r"space names 'BLOK', .* kernel 'k' .*\(did you mean 'BLOCK'\?\)"),
        ({"BLOCK": [64]}, "gene 'BLOCK' has not the value 128 of a configuration"),
        ({"BLOCK": 128}, "'BLOCK' needs a gene or a list of its values, not 128"),
        ({"num_warps": []}, "num_warps"),
    ):
        with pytest.raises(InputError, match=message):
            Wishes(space=wrong).demand_space("k", ("x", "BLOCK", "SHAPE", "SPLIT"), seeds)


def test_where_a_store_stands_and_what_may_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("KERNELARC_AUTOTUNE_STORE", raising=False)
    assert default_store() == "/cache/kernelarc/autotune.db"
    monkeypatch.setenv("KERNELARC_AUTOTUNE_STORE", "/elsewhere/a.db")
    assert default_store() == "/elsewhere/a.db"
    assert Wishes(store="b.db").place() == str(Path("b.db").absolute())
    assert mode() == "search"
    monkeypatch.setenv("KERNELARC_AUTOTUNE", "READ")
    assert mode() == "read"
    monkeypatch.setenv("KERNELARC_AUTOTUNE", "nonsense")
    assert mode() == "search"


def test_a_store_that_is_not_there_knows_nothing(tmp_path: Path) -> None:
    assert look_up(str(tmp_path / "absent.db"), "abc", "Some GPU") is None
    (tmp_path / "broken.db").write_text("no database")
    assert look_up(str(tmp_path / "broken.db"), "abc", "Some GPU") is None


# Finding


def search_in_the_store(order: Any, *, valid: bool = True) -> int:
    """Do what a searching process does, as far as a store shows it: one audited best, or none."""
    best = Genome("triton", {"BLOCK": 256, "num_warps": 8, "num_stages": 3, "maxnreg": 0})
    operator = Operator(
        name="k", axes={}, inputs=(),
        outputs=(TensorSpec(name="x", shape=("8",), dtype="float32"),),
    )  # fmt: skip
    workload = Workload(operator=operator.fingerprint)
    candidate = Candidate(
        number=0, round=0, workload=workload.fingerprint, island="memory", mutation="step",
        genome=best,
    )  # fmt: skip
    timed = Measurement(samples=(5.0,), objective=5.0)
    evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=timed)
    audit = ContestRecord(
        purpose="audit", workload=workload.fingerprint, subject=best.fingerprint, against="",
        contest=Contest(names=(best.fingerprint,), samples=((5.0,),)), speedup=None, upheld=valid,
    )  # fmt: skip
    spec = CampaignSpec(
        target=str(order.file), device="cuda:0", seed=0, settings={},
        problem=Problem(operator=operator, workloads=(workload,)),
    )  # fmt: skip
    environment = Environment(identity={"device": order.job.subject.device_model})
    with open_writer(order.store, create=True) as writer:
        campaign = writer.begin(spec, environment)
        judged = Judged(evaluation=evaluation, verdict=Verdict.KEEP)
        finished = Event(kind="finished", payload={"reason": "budget"}, unix_s=0.0)
        writer.append(campaign, [Round(number=0, counts={}), candidate, judged, audit, finished])
    return campaign


@needs_triton
@pytest.mark.parametrize("valid", [True, False])
def test_a_key_is_searched_once_and_read_ever_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid: bool
) -> None:
    import triton

    from kernelarc.engine.tuning import _finding

    searched: list[Any] = []

    def have(order: Any, *, limit_s: float) -> int:
        searched.append(order)
        return search_in_the_store(order, valid=valid)

    monkeypatch.setattr(_finding, "have_searched", have)
    monkeypatch.setattr(_finding, "ready_device", lambda: None)
    monkeypatch.setattr(_finding, "current_device", lambda: ("cuda:1", "Some GPU", "sm_90a"))
    path = tmp_path / "found.py"
    path.write_text(
        "import triton, triton.language as tl\n\n@triton.jit\n"
        "def k(x, n, BLOCK: tl.constexpr):\n    tl.store(x, n)\n"
    )
    configurations = [triton.Config({"BLOCK": 64}, num_warps=2)]
    kernel = kernelarc.autotune(configs=configurations, key=["n"])(
        imported(path, f"found{valid}").k
    )
    wishes = Wishes(store=tmp_path / "s.db", budget=9)
    tensor = Tensor(aligned(64))

    def ask(n: int) -> Any:
        grid = lambda call: (64 // call["BLOCK"] + 1,)  # noqa: E731
        named = {"x": tensor, "n": n}
        call = _finding.Call(tuner=kernel, named=named, key={"n": n}, grid=grid)
        return _finding.found_configuration(call, wishes)

    for _ in range(2):
        if valid:
            found = ask(5)
            assert (found.kwargs, found.num_warps) == ({"BLOCK": 256}, 8)
        else:
            with pytest.raises(SearchFailedError, match="campaign 1 found nothing valid"):
                ask(5)
    (order,) = searched
    assert (order.budget, order.store) == (9, str(tmp_path / "s.db"))
    assert order.job.grid.genes == ("BLOCK",)
    assert pickle.loads(pickle.dumps(order)).job.subject.identity in order.file.name
    monkeypatch.setenv("KERNELARC_AUTOTUNE", "read")
    with pytest.raises(SearchFailedError, match="searching is switched off"):
        ask(6)
    monkeypatch.setattr(_finding, "current_device", lambda: ("cuda:0", "Other GPU", "sm_90a"))
    with pytest.raises(SearchFailedError, match="searching is switched off"):
        ask(5)
    assert len(searched) == 1


# Sharing


def _hold(path: str, seconds: float) -> None:
    with one_at_a_time(Path(path), wait_s=5.0):
        (Path(path).parent / "held").touch()
        time.sleep(seconds)


def test_one_process_searches_and_the_others_wait(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "key.lock"
    with one_at_a_time(path, wait_s=1.0) as waited:
        assert not waited
    holder = multiprocessing.get_context("spawn").Process(target=_hold, args=(str(path), 1.5))
    holder.start()
    while not (tmp_path / "locks" / "held").exists():
        time.sleep(0.05)
    with pytest.raises(SharedTooLongError), one_at_a_time(path, wait_s=0.3):
        pass
    with one_at_a_time(path, wait_s=20.0) as waited:
        assert waited
    holder.join()


def test_a_search_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SearchFailedError, match=r"AttributeError|the searching process died"):
        have_searched({"no": "order"}, limit_s=60.0)


@needs_triton
@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_a_searching_process_comes_as_far_as_the_device(tmp_path: Path) -> None:
    path = tmp_path / "a store" / "kernels" / "gather_add.py"
    order = Order(
        job=job(KERNEL), file=path, store=str(tmp_path / "s.db"), budget=3, seconds=None, wait_s=1.0
    )
    with pytest.raises(SearchFailedError, match=r"the cuda device needs .*kernelarc\[cuda\]"):
        have_searched(order, limit_s=110.0)
    target = kernel_target(str(path))  # what it wrote, with the outputs it found
    assert [spec.name for spec in target.problem.operator.outputs] == ["out"]


# The decorator


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_the_decorator_says_what_to_install() -> None:
    with pytest.raises(kernelarc.MissingPartError, match=r"install kernelarc\[triton\]"):
        kernelarc.autotune(configs=[], key=[])


class Launcher:
    """Stands where the jitted function does and notes what it is launched with."""

    def __init__(self, kernel: Any) -> None:
        self.fn, self.arg_names, self.launched = kernel.fn, kernel.arg_names, list[Any]()

    def run(self, *args: Any, **kwargs: Any) -> None:
        self.launched.append((args, kwargs["BLOCK"], kwargs["num_warps"]))


def decorated(tmp_path: Path, name: str) -> tuple[Any, Launcher]:
    """Return a kernel with two configurations of which Triton's own tuning takes the second."""
    import triton

    path = tmp_path / "decorated.py"
    path.write_text(
        "import triton, triton.language as tl\n\n@triton.jit\n"
        "def k(x, n, BLOCK: tl.constexpr):\n    tl.store(x, n)\n"
    )
    times = iter([(9.0, 9.0, 9.0), (2.0, 2.0, 2.0)] * 3)

    def bench(call: Any, quantiles: Any) -> tuple[float, float, float]:
        call()
        return next(times)

    configurations = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 2), (128, 4))]
    kernel = kernelarc.autotune(
        configs=configurations, key=["n"], store=tmp_path / "s.db", do_bench=bench
    )(imported(path, name).k)
    kernel.fn = Launcher(kernel.fn)
    return kernel, kernel.fn


@needs_triton
def test_what_a_search_finds_is_launched_and_found_once_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    from kernelarc.engine.tuning import _decorator

    asked: list[Any] = []

    def found(call: Any, wishes: Wishes) -> Any:
        asked.append((dict(call.key), dict(call.named), call.grid))
        return triton.Config({"BLOCK": 512}, num_warps=8)

    monkeypatch.setattr(_decorator, "found_configuration", found)
    kernel, launcher = decorated(tmp_path, "decorated_found")
    for n in (5, 5, 6):
        kernel[(3,)]("x", n)
    assert launcher.launched == [(("x", n), 512, 8) for n in (5, 5, 6)]
    assert asked == [({"n": n}, {"x": "x", "n": n}, (3,)) for n in (5, 6)]
    assert kernel.fallback is None
    assert kernel.best_config.num_warps == 8


@needs_triton
def test_a_search_that_fails_leaves_the_kernel_to_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kernelarc.engine.tuning import _decorator

    asked: list[int] = []

    def failing(call: Any, wishes: Wishes) -> Any:
        asked.append(1)
        raise CannotTravelError("argument 'f' is a function")

    monkeypatch.setattr(_decorator, "found_configuration", failing)
    kernel, launcher = decorated(tmp_path, "decorated_failing")
    for _ in range(2):
        kernel[(3,)]("x", 5)
    timed, calls = launcher.launched[:2], launcher.launched[2:]
    assert timed == [(("x", 5), 64, 2), (("x", 5), 128, 4)]
    assert calls == [(("x", 5), 128, 4)] * 2
    assert (asked, kernel.fallback) == ([1], "argument 'f' is a function")
    assert "tuned in this process over 2 configurations: argument 'f'" in caplog.text


@needs_triton
def test_switched_off_it_is_triton_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELARC_AUTOTUNE", "off")
    kernel, launcher = decorated(tmp_path, "decorated_off")
    kernel[(3,)]("x", 5)
    assert launcher.launched[-1] == (("x", 5), 128, 4)
    assert kernel.fallback is None


@needs_triton
def test_the_decorated_kernel_is_triton_s_own_kind_and_bad_wishes_show_at_once(
    tmp_path: Path,
) -> None:
    program = textwrap.dedent(
        """
        import triton
        import triton.language as tl
        from triton.runtime.autotuner import Autotuner
        import kernelarc

        try:
            kernelarc.autotune(configs=[], key=[], budget=0)
        except kernelarc.InputError as error:
            print(error)
        open("kernels.py", "w").write('''
        import kernelarc, triton, triton.language as tl
        @kernelarc.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
        @triton.jit
        def k(x, n, BLOCK: tl.constexpr):
            tl.store(x, n)
        '''.replace("\\n        ", "\\n"))
        import kernels
        print(isinstance(kernels.k, Autotuner), kernels.k.keys, kernels.k.wishes.evaluations)
        try:
            kernelarc.autotune(configs=[], key=[], space={"BLOK": [1]})(kernels.k.fn)
        except kernelarc.InputError as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "budget is 0" in done.stdout, done.stderr
    assert "space names 'BLOK', which is no parameter of kernel 'k'" in done.stdout
    assert "True ['n'] 200" in done.stdout
