"""Files of tensors that workloads name: found, checked, stood in for, or named in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.bench._blob_values import standing_values, stored_values
from kernelarc.genomes import (
    InputError,
    StandIn,
    TensorSpec,
    axis_values,
    load_problem,
    open_blob,
    packaged_problem,
    stand_in,
)

PLACE = "blob/workloads/task/values.safetensors"
DEFINITION: Mapping[str, Any] = {
    "name": "task",
    "axes": {
        "len_indptr": {"type": "var"},
        "num_kv_indices": {"type": "var"},
        "total_q": {"type": "var"},
        "num_pages": {"type": "const", "value": 5},
        "page_size": {"type": "const", "value": 4},
    },
    "inputs": {
        "x": {"shape": ["total_q"], "dtype": "bfloat16"},
        "kv_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "qo_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "kv_indices": {"shape": ["num_kv_indices"], "dtype": "int32"},
        "kv_last_page_len": {"shape": ["total_q"], "dtype": "int32"},
        "routes": {"shape": ["total_q"], "dtype": "int64"},
    },
    "outputs": {"y": {"shape": ["total_q"], "dtype": "bfloat16"}},
    "reference": "def run(x, kv_indptr, qo_indptr, kv_indices, kv_last_page_len, routes): 0",
}
AXES = {"len_indptr": 4, "num_kv_indices": 7, "total_q": 9}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a problem whose inputs of these names come from files; by name the tensor's key."""
    folder.mkdir(exist_ok=True)
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    fills: dict[str, object] = {name: {"type": "random"} for name in DEFINITION["inputs"]}
    for name, key in files.items():
        fills[name] = {"type": "safetensors", "path": PLACE, "tensor_key": key}
    workload = {"uuid": "a", "axes": AXES, "inputs": fills}
    (folder / "workload.jsonl").write_text(json.dumps(workload) + "\n")
    return folder


def stored(path: Path, tensors: Mapping[str, tuple[str, list[int], bytes]], cut: int = 0) -> None:
    header: dict[str, Any] = {"__metadata__": {"made": "by a test"}}
    body = b""
    for name, (dtype, shape, raw) in tensors.items():
        places = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": places}
        body += raw
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = len(text).to_bytes(8, "little") + text + body
    path.write_bytes(whole[: len(whole) - cut])


STARTS = np.array([0, 2, 5, 7], dtype=np.int32)
GOOD = {"i": ("I32", [4], STARTS.tobytes()), "x": ("BF16", [9], bytes(range(18)))}


@pytest.mark.parametrize("root", ["blob/workloads/task", "task", "."])
def test_a_file_is_found_where_the_root_holds_part_of_its_path(tmp_path: Path, root: str) -> None:
    folder = written(tmp_path / "problem", {"kv_indptr": "i", "x": "x"})
    stored(folder / root / "values.safetensors", GOOD)
    (workload,) = load_problem(folder).workloads
    rule = workload.inputs["kv_indptr"]
    assert rule["path"] == PLACE and Path(rule["found_at"]).is_file()
    np.testing.assert_array_equal(stored_values(rule, "int32", (4,)), STARTS)
    raw = stored_values(workload.inputs["x"], "bfloat16", (9,))
    assert raw.dtype == np.uint16 and raw.tobytes() == bytes(range(18))
    with pytest.raises(InputError, match="holds \\(4,\\)"):
        stored_values(rule, "int32", (5,))


def test_the_user_s_trace_folder_is_a_root_and_the_place_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "problem", {"kv_indptr": "i"})
    (missing,) = load_problem(folder).workloads
    assert "found_at" not in missing.inputs["kv_indptr"]
    stored(tmp_path / "traces" / PLACE, GOOD)
    monkeypatch.setenv("FLASHINFER_TRACE_DIR", str(tmp_path / "traces"))
    (found,) = load_problem(folder).workloads
    assert "traces" in found.inputs["kv_indptr"]["found_at"]
    assert found.fingerprint == missing.fingerprint


@pytest.mark.parametrize(
    ("tensors", "cut", "message"),
    [
        ({"j": GOOD["i"]}, 0, r"tensor_key is refused: .* holds no tensor 'i' \(known: j"),
        ({"i": ("I32", [2, 2], STARTS.tobytes())}, 0, r"path is refused: .*shape \(2, 2\)"),
        ({"i": ("I64", [4], bytes(32))}, 0, "holds int64, the definition says int32"),
        ({"i": ("X1", [4], bytes(16))}, 0, "holds an unknown type, the definition says int32"),
        ({"i": ("I32", [4], bytes(12))}, 0, r"12 bytes are not what \(4,\) needs"),
        (GOOD, 20, "is shorter than its tensor 'i': it was cut off"),
        ({"i": ("I32", ["four"], bytes(16))}, 0, "the entry of 'i' is malformed"),
        ({"i": ("I32", [float("inf")], bytes(16))}, 0, "the entry of 'i' is malformed"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_line_and_field(
    tmp_path: Path, tensors: Any, cut: int, message: str
) -> None:
    folder = written(tmp_path / "problem", {"kv_indptr": "i"})
    stored(folder / PLACE, tensors, cut)
    with pytest.raises(InputError, match=message) as caught:
        load_problem(folder)
    assert "workload.jsonl, line 1: inputs.kv_indptr." in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        (10**12).to_bytes(8, "little"),
        b"\x02" + bytes(7) + b"[]",
        (10**5).to_bytes(8, "little") + b"[" * 10**5,
    ],
)
def test_what_is_no_such_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no safetensors file"):
        open_blob(path, "i")


def test_a_missing_file_that_nothing_can_stand_in_for_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "problem", {"routes": "r"})
    with pytest.raises(InputError) as caught:
        load_problem(folder)
    said = str(caught.value)
    assert f"line 1: inputs.routes.path names {PLACE!r}, which is not there" in said
    assert str(folder) in said and "FLASHINFER_TRACE_DIR" in said and "\n" not in said


def test_stand_ins_fit_the_axes(tmp_path: Path) -> None:
    names = ["kv_indptr", "qo_indptr", "kv_indices", "kv_last_page_len", "x"]
    problem = load_problem(written(tmp_path / "problem", dict.fromkeys(names, "k")))
    axes = axis_values(problem.operator, problem.workloads[0])
    rng = np.random.default_rng(0)
    specs = {spec.name: spec for spec in problem.operator.inputs}
    made = {name: stand_in(problem.operator, specs[name], axes) for name in names}
    assert made["x"] == StandIn(kind="random")
    starts = made["kv_indptr"]
    assert starts is not None
    values = standing_values(starts, "int32", (4,), rng)
    assert values.dtype == np.int32 and values[0] == 0 and values[-1] == 7
    assert bool(np.all(np.diff(values) >= 0))
    assert made["qo_indptr"] == StandIn(kind="starts", bound=9)
    places = made["kv_indices"]
    assert places is not None
    pages = standing_values(places, "int32", (7,), rng)
    assert set(pages[:5]) == set(range(5)) and pages.max() < 5
    last = made["kv_last_page_len"]
    assert last is not None and standing_values(last, "int32", (9,), rng).tolist() == [4] * 9
    with pytest.raises(InputError, match="they are drawn"):
        standing_values(StandIn(kind="random"), "int32", (9,), rng)


def test_one_sequence_is_determined_whole() -> None:
    problem = packaged_problem("gqa_paged_prefill")
    axes = axis_values(problem.operator, problem.workloads[0])
    spec = TensorSpec(name="kv_indptr", shape=("len_indptr",), dtype="int32")
    made = stand_in(problem.operator, spec, axes)
    assert made is not None
    values = standing_values(made, "int32", (2,), np.random.default_rng(0))
    assert values.tolist() == [0, axes["num_kv_indices"]]
