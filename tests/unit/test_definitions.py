"""Definitions, workloads and built-in operators: read, refused, computed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.genomes import (
    InputError,
    Operator,
    Workload,
    axis_values,
    builtin_operators,
    builtin_problem,
    builtin_workloads,
    bytes_of,
    flops_of,
    load_definition,
    load_problem,
    load_workloads,
)

DEFINITION: Mapping[str, Any] = {
    "name": "scaled_sum",
    "op_type": "elementwise",
    "hf_id": "ignored/field",
    "axes": {
        "rows": {"type": "var", "description": "Tokens."},
        "heads": {"type": "const", "value": 4},
        "width": {"type": "expr", "expression": "(heads * 8 + rows // 2) ** 1 % 1000"},
    },
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
        "scale": {"shape": None, "dtype": "float32"},
        "bias": {"shape": [], "dtype": "float32"},
        "table": {"shape": ["3", "width"], "dtype": "float4_e2m1fn_x2"},
    },
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "bfloat16"}},
    "reference": "def run(x, scale, bias, table):\n    return x * scale + bias\n",
}
WORKLOAD: Mapping[str, Any] = {
    "uuid": "one",
    "axes": {"rows": 6},
    "inputs": {
        "x": {"type": "random"},
        "scale": {"type": "scalar", "value": 2.0},
        "bias": {"type": "custom"},
        "table": {"type": "safetensors", "path": "t.safetensors", "tensor_key": "t"},
    },
    "tolerance": {"max_atol": 0.5, "required_matched_ratio": 0.9, "max_error_cap": 3},
}


def written(folder: Path, definition: object = DEFINITION, *workloads: object) -> Path:
    (folder / "definition.json").write_text(json.dumps(definition))
    lines = [json.dumps(workload) for workload in workloads or (WORKLOAD,)]
    (folder / "workload.jsonl").write_text("\n".join(lines) + "\n\n")
    return folder


def changed(content: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a deep copy with one field replaced, or removed if the value is ``...``."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    place = copy
    *folders, last = path.split(".")
    for name in folders:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copy


def test_a_problem_folder_is_a_problem(tmp_path: Path) -> None:
    other = changed(WORKLOAD, "axes.rows", 10)
    problem = load_problem(written(tmp_path, DEFINITION, WORKLOAD, other))
    operator = problem.operator
    assert operator.name == "scaled_sum"
    assert [spec.name for spec in operator.inputs] == ["x", "scale", "bias", "table"]
    assert [spec.shape for spec in operator.inputs] == [
        ("rows", "width"),
        None,
        (),
        ("3", "width"),
    ]
    assert [axis.kind for axis in operator.axes.values()] == ["var", "const", "expr"]
    first, second = problem.workloads
    assert (first.uuid, first.axes, second.axes) == ("one", {"rows": 6}, {"rows": 10})
    assert first.operator == operator.fingerprint
    assert first.fingerprint != second.fingerprint
    tolerance = first.tolerance
    assert (tolerance.max_atol, tolerance.max_rtol) == (0.5, 0.01)
    assert (tolerance.required_matched_ratio, tolerance.max_error_cap) == (0.9, 3.0)
    assert axis_values(operator, first) == {"rows": 6, "heads": 4, "width": 35}
    assert flops_of(operator, first) is None
    assert bytes_of(operator, first) is None
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_the_schema_s_defaults_of_a_tolerance(tmp_path: Path) -> None:
    bare = changed(WORKLOAD, "tolerance", ...)
    tolerance = load_problem(written(tmp_path, DEFINITION, bare)).workloads[0].tolerance
    assert (tolerance.max_atol, tolerance.max_rtol) == (1e-2, 1e-2)
    assert tolerance.required_matched_ratio == 0.99
    assert tolerance.max_error_cap is None
    assert not tolerance.allow_negative_inf


def test_the_misspelt_ratio_is_ignored_with_a_warning(tmp_path: Path) -> None:
    misspelt = changed(WORKLOAD, "tolerance", {"required_match_ratio": 0.5})
    folder = written(tmp_path, DEFINITION, misspelt)
    operator = load_definition(folder / "definition.json")
    with pytest.warns(UserWarning, match="line 1: 'required_match_ratio' is ignored"):
        (workload,) = load_workloads(folder / "workload.jsonl", operator)
    assert workload.tolerance.required_matched_ratio == 0.99


def test_descriptions_do_not_change_an_operator(tmp_path: Path) -> None:
    told = changed(DEFINITION, "description", "Other words.")
    written(tmp_path, DEFINITION)
    plain = load_definition(tmp_path / "definition.json")
    written(tmp_path, told)
    assert load_definition(tmp_path / "definition.json").fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", ..., "lacks the field 'name'"),
        ("name", 5, "'name' must be a text"),
        ("axes", ..., "lacks the field 'axes'"),
        ("axes", [], "axes must be a JSON object, not list"),
        ("inputs", ..., "lacks the field 'inputs'"),
        ("outputs", ..., "lacks the field 'outputs'"),
        ("reference", ..., "lacks the field 'reference'"),
        ("reference", "def run(:", "the reference is no Python"),
        ("reference", "x = 1", "no top-level function 'run'"),
        ("axes.rows", 5, "axis 'rows' must be a JSON object, not int"),
        ("axes.rows.type", "variable", "it can be const, var or expr"),
        ("axes.heads.value", 0, "whole number from 1 to 2147483647, not 0"),
        ("axes.heads.value", 2.5, "not 2.5"),
        ("axes.heads.value", True, "not True"),
        ("axes.width.expression", "", "lacks its expression"),
        ("axes.width.expression", "rows *", "does not parse"),
        ("axes.width.expression", "rowss", "unknown axis 'rowss' \\(did you mean 'rows'"),
        ("axes.width.expression", "width + 1", "unknown axis 'width'"),
        ("axes.width.expression", "min(rows, 2)", "calls a function \\(min\\)"),
        ("axes.width.expression", "rows > 2", "uses Compare"),
        ("inputs.x.dtype", "bfloat17", "unknown dtype 'bfloat17' \\(did you mean 'bfloat16'"),
        ("inputs.x.dtype", ..., "lacks the field 'dtype'"),
        ("inputs.x.shape", ..., "lacks the field 'shape'"),
        ("inputs.x.shape", "rows", "must list axis names"),
        ("inputs.x.shape", ["rowz"], "unknown axis 'rowz' \\(did you mean 'rows'"),
        ("inputs.x", None, "inputs 'x' must be a JSON object"),
        ("flops", "rows * wide", "flops 'rows \\* wide' names the unknown axis 'wide'"),
        ("bytes_moved", "open('x')", "calls a function"),
    ],
)
def test_malformed_definitions_are_refused(
    tmp_path: Path, path: str, value: object, message: str
) -> None:
    file = written(tmp_path, changed(DEFINITION, path, value)) / "definition.json"
    with pytest.raises(InputError, match=message) as caught:
        load_definition(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("axes", ..., "lacks the field 'axes'"),
        ("axes.rows", -1, "axis 'rows' must be a whole number from 1"),
        ("axes.rows", 1.5, "not 1.5"),
        ("axes.rows", 2**31, "not 2147483648"),
        ("axes", {}, "does not bind the axis 'rows'"),
        ("axes", {"rows": 1, "row": 2}, "has no axis 'row' \\(did you mean 'rows'"),
        ("inputs.z", {"type": "random"}, "there is no input 'z'"),
        ("inputs.x.type", "ones", "it can be random, scalar, safetensors, custom"),
        ("inputs.x", {"type": "scalar"}, "lacks the field 'value'"),
        ("inputs.x", {"type": "safetensors", "path": "p"}, "lacks the field 'tensor_key'"),
        ("tolerance", 3, "tolerance must be a JSON object"),
        ("tolerance.max_atol", "1", "tolerance 'max_atol' must be a number from 0 on"),
        ("tolerance.max_atol", -1, "tolerance 'max_atol' must be a number from 0 on"),
        ("uuid", 7, "'uuid' must be a text"),
    ],
)
def test_malformed_workloads_are_refused_with_their_line(
    tmp_path: Path, path: str, value: object, message: str
) -> None:
    folder = written(tmp_path, DEFINITION, WORKLOAD, changed(WORKLOAD, path, value))
    operator = load_definition(folder / "definition.json")
    with pytest.raises(InputError, match=message) as caught:
        load_workloads(folder / "workload.jsonl", operator)
    assert "line 2" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    written(tmp_path)
    operator = load_definition(tmp_path / "definition.json")
    cases: list[tuple[str, bytes | None, str]] = [
        ("absent.json", None, "there is no file"),
        ("empty.json", b"  \n", "is empty; JSON is needed"),
        ("text.json", b"{name: 5}", "is not JSON: .* \\(line 1, column 2\\)"),
        ("list.json", b"[1]", "must be a JSON object, not list"),
        ("bytes.json", b"\xff\xfe{}", "is not UTF-8 text"),
        ("deep.json", b"[" * 200_000, "is nested too deeply"),
    ]
    for name, content, message in cases:
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            load_definition(file)
        assert name in str(caught.value)
    with pytest.raises(InputError, match="is a folder; a file is needed"):
        load_definition(tmp_path)
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no workloads"):
        load_workloads(tmp_path / "none.jsonl", operator)
    with pytest.raises(InputError, match="line 1 is not JSON"):
        load_workloads(Path(__file__), operator)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("heads // (rows - 6)", "divides by zero"),
        ("rows - 6", "must be a whole number from 1 to 2147483647, not 0"),
        ("rows / 4", "not 1.5"),
        ("rows ** 40", "must be a whole number"),
        ("rows ** 99999999", "cannot be computed"),
    ],
)
def test_expr_axes_that_give_no_axis(tmp_path: Path, expression: str, message: str) -> None:
    folder = written(tmp_path, changed(DEFINITION, "axes.width.expression", expression))
    with pytest.raises(InputError, match=message):
        load_problem(folder)


def run_of(operator: Operator) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(operator.reference or "", space)
    run: Callable[..., Any] = space["run"]
    return run


def test_gemm_s_reference() -> None:
    rng = np.random.default_rng(0)
    a, b, r = rng.normal(size=(5, 7)), rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    run = run_of(builtin_operators()["gemm"])
    expected = np.einsum("mk,kn->mn", a, b)
    np.testing.assert_allclose(run(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(run(a, b, r), expected + r, rtol=1e-12)
    assert run(a, b).dtype == np.float64
    assert run(a.astype(np.float32), b.astype(np.float32)).dtype == np.float32


def test_add_rmsnorm_s_reference() -> None:
    rng = np.random.default_rng(0)
    x, r, weight = rng.normal(size=(4, 9)), rng.normal(size=(4, 9)), rng.normal(size=9)
    run = run_of(builtin_operators()["add_rmsnorm"])
    y, summed = run(x, r, weight)
    assert (y.dtype, summed.dtype) == (np.float64, np.float64)
    np.testing.assert_array_equal(summed, x + r)
    row: NDArray[np.float64]
    for row, out in zip(summed, y, strict=True):
        root = np.sqrt(sum(v * v for v in row) / 9 + 1e-6)
        np.testing.assert_allclose(out, row / root * weight, rtol=1e-12)


def test_flops_and_bytes_of_the_built_in_operators() -> None:
    plain = builtin_problem("gemm", {"M": 2, "N": 3, "K": 5})
    assert flops_of(plain.operator, plain.workloads[0]) == 2 * 2 * 3 * 5
    assert bytes_of(plain.operator, plain.workloads[0]) == 4 * (10 + 15 + 6)
    with_residual = builtin_problem("gemm", {"M": 2, "N": 3, "K": 5}, {"residual": True})
    assert flops_of(plain.operator, with_residual.workloads[0]) == 2 * 2 * 3 * 5 + 6
    assert bytes_of(plain.operator, with_residual.workloads[0]) == 4 * (10 + 15 + 12)
    norm = builtin_problem("add_rmsnorm", {"rows": 3, "hidden": 8})
    assert flops_of(norm.operator, norm.workloads[0]) == 3 * (6 * 8 + 3)
    assert bytes_of(norm.operator, norm.workloads[0]) == 4 * (4 * 24 + 8)


def test_built_in_problems() -> None:
    assert list(builtin_operators()) == ["gemm", "add_rmsnorm"]
    gemm = builtin_problem("gemm")
    (workload,) = gemm.workloads
    assert workload.axes == {"M": 1024, "N": 1024, "K": 1024}
    assert workload == builtin_workloads("gemm")[0]
    assert builtin_problem("add_rmsnorm").workloads[0].axes == {"rows": 4096, "hidden": 4096}
    assert builtin_problem("gemm", {"M": 1024}, {"residual": False}) == gemm
    residual = builtin_problem("gemm", {"M": 64}, {"residual": True}).workloads[0]
    assert residual.label == "M=64 N=1024 K=1024 residual=True"
    assert list(residual.inputs) == ["a", "b", "residual"]
    assert list(workload.inputs) == ["a", "b"]
    assert residual.fingerprint != workload.fingerprint
    assert pickle.loads(pickle.dumps(residual)) == residual
    for name in builtin_operators():
        workloads = builtin_workloads(name)
        assert len({w.fingerprint for w in workloads}) == len(workloads) >= 3


def test_a_longer_sum_has_a_wider_tolerance() -> None:
    short, long_ = (builtin_problem("gemm", {"K": k}).workloads[0] for k in (64, 4096))
    assert short.tolerance.max_atol < long_.tolerance.max_atol < 0.05


@pytest.mark.parametrize("name", ["gemm", "add_rmsnorm"])
def test_float32_meets_the_tolerance_and_bfloat16_does_not(name: str) -> None:
    """The tolerance tells honest float32 from a product of truncated inputs."""
    small = {"gemm": {"M": 64, "N": 48, "K": 512}, "add_rmsnorm": {"rows": 32, "hidden": 512}}
    problem = builtin_problem(name, small[name])
    operator, workload = problem.operator, problem.workloads[0]
    axes = axis_values(operator, workload)
    rng = np.random.default_rng(3)
    inputs = [
        rng.standard_normal([axes[d] for d in spec.shape or ()], dtype=np.float32)
        for spec in operator.inputs
        if spec.name in workload.inputs
    ]
    truncated = [(v.view(np.uint32) & 0xFFFF0000).view(np.float32) for v in inputs]
    run = run_of(operator)
    exact, honest, coarse = (
        out[0] if isinstance(out, tuple) else out
        for out in (run(*[v.astype(np.float64) for v in inputs]), run(*inputs), run(*truncated))
    )
    bound = workload.tolerance.max_atol + workload.tolerance.max_rtol * np.abs(exact)
    assert float(np.mean(np.abs(honest - exact) <= bound)) >= 0.999
    assert float(np.mean(np.abs(coarse - exact) <= bound)) < 0.9


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: builtin_problem("gem"), "no built-in operator 'gem' \\(did you mean 'gemm'"),
        (lambda: builtin_workloads("rmsnorm"), "did you mean 'add_rmsnorm'"),
        (lambda: builtin_problem("gemm", {"L": 5}), "has no axis 'L'"),
        (lambda: builtin_problem("add_rmsnorm", {"row": 5}), "did you mean 'rows'"),
        (lambda: builtin_problem("gemm", {"M": 0}), "whole number from 1 to 2147483647, not 0"),
        (lambda: builtin_problem("gemm", {"M": -4}), "not -4"),
        (lambda: builtin_problem("gemm", {"M": 10**12}), "not 1000000000000"),
        (lambda: builtin_problem("gemm", {"M": 1.5}), "not 1.5"),  # type: ignore[dict-item]
        (lambda: builtin_problem("gemm", {}, {"residul": True}), "did you mean 'residual'"),
        (lambda: builtin_problem("gemm", {}, {"residual": 1}), "true or false, not 1"),
        (lambda: builtin_problem("add_rmsnorm", {}, {"x": True}), "has no option 'x'"),
    ],
)
def test_problems_that_cannot_be(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()


def test_a_workload_of_another_operator_is_refused() -> None:
    gemm = builtin_operators()["gemm"]
    with pytest.raises(InputError, match="has no axis 'rows'"):
        axis_values(gemm, Workload(operator=gemm.fingerprint, axes={"rows": 4}))
