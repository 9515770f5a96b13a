"""Formats ``cublaslt`` and ``npy``, and the table read back: by a runtime over a fake library."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.lt_fake import FakeLt
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.engine import CampaignSettings, _runtime, _targets, run
from kernelarc.engine._runtime_arrays import CupyKind
from kernelarc.engine._runtime_table import read_table
from kernelarc.genomes import LT_ATTRIBUTES, InputError, MissingPartError
from kernelarc.runtime import Table, TableWarning, load
from kernelarc.storage import export, open_reader

SHAPES = (128, 512)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run one campaign over two shapes; the second finds nothing: it is held at the heuristic."""
    path = tmp_path_factory.mktemp("table") / "lt.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_session, "WorkerProcess", FormulaWorker)
        patch.setattr(_targets, "KernelDevice", ScriptedDevice)
        patch.setenv("KERNELARC_LOCK_DIR", str(path.parent))
        settings = CampaignSettings(
            target="matmul",
            axes={"N": 64, "K": 512},
            workloads=tuple({"M": m} for m in SHAPES),
            options={"residual": True, "workspace_mib": 16},
            budget=90,
            seed=3,
            models=False,
            store=str(path),
        )
        run(settings)
    return path


@pytest.fixture
def table(store: Path, tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    with open_reader(str(store)) as reader:
        export(reader, None, "cublaslt", path)
    return path


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


# What is written


def test_the_table_says_all_that_a_call_needs(table: Path) -> None:
    content = json.loads(table.read_text())
    assert content["kernelarc_cublaslt"] == 1
    assert content["library"] == {"name": "cuBLASLt", "version": 990100}
    assert [a["name"] for a in content["attributes"]] == list(LT_ATTRIBUTES)
    assert [a["type"] for a in content["attributes"]][-2:] == ["uint16", "uint16"]
    assert content["fallback"]["rule"] == "heuristic"
    entries = content["entries"]
    assert [e["product"]["m"] for e in entries] == list(SHAPES)
    for entry in entries:
        assert entry["product"]["layout"] == "TN" and entry["product"]["residual"]
        assert entry["call"]["transa"] == "T" and entry["call"]["beta"] == 1.0
        assert (entry["call"]["m"], entry["call"]["n"]) == (64, entry["product"]["m"])
        assert entry["evidence"]["audited"]
        assert entry["evidence"]["against"] == "first heuristic"
        if entry["use"] == "algorithm":
            assert entry["evidence"]["speedup"]["low"] > 1.0
            assert set(entry["algorithm"]["attributes"]) == set(LT_ATTRIBUTES)
            assert len(bytes.fromhex(entry["algorithm"]["blob"])) == 64
    assert "algorithm" in {entry["use"] for entry in entries}


def test_where_nothing_is_faster_the_heuristic_is_exported(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_session, "WorkerProcess", FormulaWorker)
        patch.setattr(_targets, "KernelDevice", ScriptedDevice)
        path = str(tmp_path / "one.db")
        pins = {"algo": "700", "tile_n": "40", "custom": "2", "splitk": "1", "cluster_n": "5"}
        run(
            CampaignSettings(
                target="matmul", axes={"M": 128, "N": 64, "K": 512}, pins=pins, store=path
            )
        )
    out = tmp_path / "table.json"
    with open_reader(path) as reader:
        export(reader, None, "cublaslt", out)
        export(reader, None, "npy", tmp_path / "table.npy")
    (entry,) = json.loads(out.read_text())["entries"]
    assert entry["use"] == "heuristic"
    assert "faster" in entry["why"]
    assert entry["algorithm"]["attributes"]["custom"] == 2
    assert np.load(tmp_path / "table.npy", allow_pickle=False).shape == (1,)


def test_npy_holds_one_struct_a_workload(store: Path, table: Path, tmp_path: Path) -> None:
    with open_reader(str(store)) as reader:
        written = export(reader, None, "npy", tmp_path / "lt.npy")
    entries = json.loads(table.read_text())["entries"]
    assert len(written) == len(entries) == 2
    for path, entry in zip(written, entries, strict=True):
        found = np.load(path, allow_pickle=False)
        assert found.dtype.itemsize == 96 and found.shape == (1,)
        assert found["algo"]["data_"].tobytes().hex() == entry["algorithm"]["blob"]
        assert int(found["workspace_size"][0]) == entry["algorithm"]["needs_bytes"]


def test_a_campaign_of_another_route_has_no_table(small_space: Path, tmp_path: Path) -> None:
    run(CampaignSettings(target=str(small_space), budget=5, store=str(tmp_path / "s.db")))
    with (
        open_reader(str(tmp_path / "s.db")) as reader,
        pytest.raises(InputError, match="searched on cuda:N"),
    ):
        export(reader, None, "cublaslt", tmp_path / "t.json")


def test_an_algorithm_of_a_library_has_no_macros(store: Path, tmp_path: Path) -> None:
    with (
        open_reader(str(store)) as reader,
        pytest.raises(InputError, match="its bests are of route cublaslt"),
    ):
        export(reader, None, "c-header", tmp_path / "t.h")
    assert not (tmp_path / "t.h").exists()


# What is refused


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c.pop("kernelarc_cublaslt"), "no table of cuBLASLt"),
        (lambda c: c.update(kernelarc_cublaslt=2), "schema 2"),
        (lambda c: c.update(entries=[]), "no entries"),
        (lambda c: c.pop("entries"), "entries must be a list"),
        (lambda c: c["entries"].append(c["entries"][0]), "entry 3"),
        (lambda c: c["entries"][0].update(use="best"), "not 'best'"),
        (lambda c: c["entries"][0]["product"].update(m=0), "1 or more"),
        (lambda c: c["entries"][0]["product"].update(m="8"), "m must be a whole number"),
        (lambda c: c["entries"][0]["product"].update(dtype="bf61"), "'bf61'"),
        (lambda c: c["entries"][0]["product"].update(residual=1), "true or false"),
        (lambda c: c["entries"][0]["product"].update(in_place=False), "is aliased"),
        (lambda c: c["entries"][0]["algorithm"].update(workspace_bytes=2**30), "exceeds"),
        (lambda c: c["entries"][0].update(algorithm=None), "algorithm must be a JSON object"),
        (lambda c: c["entries"][0]["algorithm"].update(blob="abcd"), "64 bytes"),
        (lambda c: c["entries"][0]["algorithm"]["attributes"].pop("tile"), "tile"),
        (lambda c: c["entries"][0]["algorithm"]["attributes"].update(tyle=1), "'tyle'"),
        (lambda c: c["entries"][0]["algorithm"]["attributes"].update(tile=-1), "from 0"),
        (lambda c: c["entries"][0]["algorithm"]["attributes"].update(inner=70000), "uint16"),
        (lambda c: c["library"].update(version="13"), "version"),
        (lambda c: c["entries"][0]["product"].update(workspace_bytes=2**33), "at most 4294967296"),
        (lambda c: c["entries"][1]["product"].update(tf32=True), "entries differ in tf32"),
    ],
)
def test_what_no_library_can_take_is_refused_in_one_line(
    table: Path, change: Callable[[dict[str, Any]], object], text: str
) -> None:
    edited(table, change)
    with pytest.raises(InputError) as refused:
        load(table)
    assert str(refused.value).startswith(str(table))
    assert text in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.98])
def test_a_truncated_table_says_so(table: Path, part: float) -> None:
    text = table.read_text()
    table.write_text(text[: int(len(text) * part)])
    with pytest.raises(InputError, match=r"truncated|not JSON"):
        load(table)
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        load(table)
    with pytest.raises(InputError, match="cannot be read"):
        load(table.with_name("none.json"))


# What is run


class Memory:
    def __init__(self, address: int) -> None:
        self.ptr, self.device_id = address, 0


class Array:
    """Looks like an array of CuPy."""

    _next = 4096

    def __init__(self, shape: tuple[int, ...], *, strides: Any = None, dtype: str = "f2") -> None:
        self.dtype = np.dtype(dtype)
        like = np.empty(shape, dtype=self.dtype)
        self.shape, self.strides = shape, strides or like.strides
        size, packed = self.dtype.itemsize, like.strides
        across = tuple(size * int(np.prod(shape[:axis])) for axis in range(len(shape)))
        self._c_contiguous = self.strides == packed
        self._f_contiguous = self.strides == across
        Array._next += 1 << 20
        self.data = Memory(Array._next)

    @property
    def T(self) -> Array:
        view = Array(self.shape[::-1], strides=self.strides[::-1], dtype=str(self.dtype))
        view.data = self.data
        return view


class FakeCupy:
    ndarray = Array

    class cuda:
        class runtime:
            getDevice = staticmethod(lambda: 0)

        stream = 7
        alloc = staticmethod(lambda size: Memory(1000))

        @staticmethod
        def get_current_stream(device: int) -> Any:
            return Memory(FakeCupy.cuda.stream)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        return Array(shape, dtype=str(np.dtype(dtype)))


class Launching(FakeLt):
    """Records launches."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.launches: list[tuple[Any, ...]] = []

    def create(self) -> int:
        return 1

    def matmul(self, *arguments: Any) -> None:
        self.launches.append(arguments)


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Launching:
    made = Launching()
    monkeypatch.setattr(_runtime, "load_lt", lambda: made)
    monkeypatch.setattr(_runtime, "demand_parts", lambda: None)
    monkeypatch.setattr("kernelarc.engine._runtime_arrays.cupy", lambda: FakeCupy)
    return made


@pytest.fixture
def half(table: Path) -> Path:
    """Return the table with float16 entries, which NumPy can name."""

    def change(content: dict[str, Any]) -> None:
        for entry in content["entries"]:
            entry["product"].update(dtype="float16", out_dtype="float16")

    return edited(table, change)


def arrays(m: int) -> tuple[Array, Array, Array]:
    return Array((m, 512)), Array((64, 512)).T, Array((m, 64))


def of_use(path: Path, use: str) -> int:
    return next(
        int(e["product"]["m"]) for e in json.loads(path.read_text())["entries"] if e["use"] == use
    )


def test_a_call_runs_the_entry_s_algorithm_in_place(half: Path, lt: Launching) -> None:
    found, m = load(half), of_use(half, "algorithm")
    a, b, y = arrays(m)
    assert found.matmul(a, b, out=y, residual=y) is y
    (launch,) = lt.launches
    # the library's A is our B; C and D are the residual's buffer; the current stream
    assert (launch[3], launch[5]) == (b.data.ptr, a.data.ptr)
    assert launch[8] == launch[10] == y.data.ptr and launch[-1] == 7
    assert found.source(a, b, out=y, residual=y).startswith("entry M=")


def test_the_second_call_asks_the_library_nothing(half: Path, lt: Launching) -> None:
    found = load(half)
    a, b, y = arrays(128)
    found.matmul(a, b, out=y, residual=y)
    asked = lt.checks
    for _ in range(3):
        found.matmul(a, b, out=y, residual=y)
    FakeCupy.cuda.stream = 9
    found.matmul(*arrays(128)[:2], out=y, residual=y)
    FakeCupy.cuda.stream = 7
    assert lt.checks == asked and len(lt.launches) == 5
    assert lt.launches[-1][-1] == 9


def test_what_the_table_does_not_name_runs_the_heuristic_without_a_warning(
    half: Path, lt: Launching
) -> None:
    found = load(half)
    a, b, _ = arrays(200)
    made = found.matmul(a, b)
    assert made.shape == (200, 64) and len(lt.launches) == 1
    assert found.source(a, b) == "heuristic (no entry)"
    # apart from the residual is another call than in place: nothing was measured for it
    a, b, y = arrays(128)
    assert "heuristic" in found.source(a, b, residual=Array((128, 64)), out=y)


def test_another_version_of_the_library_warns_once(
    half: Path, lt: Launching, recwarn: pytest.WarningsRecorder
) -> None:
    lt.version = 1
    found = load(half)
    for m in SHAPES:
        a, b, y = arrays(m)
        found.matmul(a, b, out=y, residual=y)
    (warned,) = [w for w in recwarn if issubclass(w.category, TableWarning)]
    assert "990100" in str(warned.message) and "heuristic" in str(warned.message)
    assert Path(warned.filename) == Path(__file__)
    a, b, y = arrays(of_use(half, "algorithm"))
    assert found.source(a, b, out=y, residual=y).startswith("heuristic (tuned for cuBLASLt 990100,")


def test_each_table_that_cannot_be_used_warns_where_it_is_called(
    half: Path, lt: Launching, tmp_path: Path
) -> None:
    lt.version = 1
    other = tmp_path / "other.json"
    other.write_bytes(half.read_bytes())
    m = of_use(half, "algorithm")
    a, b, y = arrays(m)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")  # as a user's program has it
        for path in (half, other):
            found = load(path)
            for _ in range(2):
                found.source(a, b, out=y, residual=y)
                found.matmul(a, b, out=y, residual=y)
    said = [w for w in seen if issubclass(w.category, TableWarning)]
    assert [str(w.message).partition(":")[0] for w in said] == [str(half), str(other)]
    assert {Path(w.filename) for w in said} == {Path(__file__)}


def test_an_algorithm_that_the_library_refuses_warns_and_falls_back(
    half: Path, lt: Launching
) -> None:
    def change(content: dict[str, Any]) -> None:
        for entry in content["entries"]:
            if entry["use"] == "algorithm":
                entry["algorithm"]["attributes"]["tile"] = 3

    m = of_use(half, "algorithm")
    found = load(edited(half, change))
    a, b, y = arrays(m)
    with pytest.warns(TableWarning, match="refuses the algorithm of entry"):
        found.matmul(a, b, out=y, residual=y)
    assert len(lt.launches) == 1


def test_attributes_that_are_not_the_blob_s_warn(half: Path, lt: Launching) -> None:
    def change(content: dict[str, Any]) -> None:
        for entry in content["entries"]:
            if entry["use"] == "algorithm":
                entry["algorithm"]["blob"] = "00" * 64

    m = of_use(half, "algorithm")
    found = load(edited(half, change))
    a, b, y = arrays(m)
    with pytest.warns(TableWarning, match="are not one algorithm"):
        found.matmul(a, b, out=y, residual=y)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t, a, b, y: t.matmul(a, a), "do not fit"),
        (lambda t, a, b, y: t.matmul(a, b, out=Array((3, 64))), "out must have shape (128, 64)"),
        (lambda t, a, b, y: t.matmul(a, b, out=Array((128, 64), dtype="f4")), "type float16"),
        (lambda t, a, b, y: t.matmul(a, b, residual=y.T), "residual must have shape"),
        (lambda t, a, b, y: t.matmul(a, b, bias=y), "bias must have shape (64,)"),
        (lambda t, a, b, y: t.matmul(a, b, activation="tanh"), "'tanh'"),
        (lambda t, a, b, y: t.matmul(Array((128, 512), strides=(2048, 2)), b), "without gaps"),
        (lambda t, a, b, y: t.matmul(a, Array((512, 64), dtype="f4")), "one type"),
        (lambda t, a, b, y: t.matmul(np.ones((4, 4)), b), "array on a GPU"),
        (lambda t, a, b, y: t.matmul(a, np.ones((512, 64))), "one library"),
        (lambda t, a, b, y: t.matmul(Array((0, 512)), b), "nothing to multiply"),
        (lambda t, a, b, y: t.matmul(Array((512,)), b), "no matrices"),
        (lambda t, a, b, y: t.matmul(a, None), "neither may be None"),
        (lambda t, a, b, y: t.matmul(None, b), "neither may be None"),
        (lambda t, a, b, y: t.source(a, None), "neither may be None"),
    ],
)
def test_arrays_that_do_not_fit(
    half: Path, lt: Launching, call: Callable[..., object], text: str
) -> None:
    found = load(half)
    with pytest.raises(InputError) as refused:
        call(found, *arrays(128))
    assert text in str(refused.value) and "\n" not in str(refused.value)
    assert not lt.launches


def test_leading_axes_are_rows_and_a_bias_is_pointed_at(half: Path, lt: Launching) -> None:
    found = load(half)
    b = Array((64, 512)).T
    made = found.matmul(Array((4, 32, 512)), b)
    assert made.shape == (4, 32, 64)
    for _ in range(2):
        bias = Array((64,))
        found.matmul(Array((4, 512)), b, bias=bias)
        assert bias.data.ptr in lt.attributes.values()


def test_a_table_can_be_read_without_a_gpu_and_says_what_is_missing(half: Path) -> None:
    assert len(load(half)) == 2 and load(half).version == 990100
    assert read_table(half).workspace_bytes == 16 << 20
    try:
        CupyKind()
    except MissingPartError:
        with pytest.raises(MissingPartError, match=r"kernelarc\[cuda\]"):
            Table(read_table(half)).matmul(*arrays(128)[:2])
