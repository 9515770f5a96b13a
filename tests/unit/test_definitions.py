"""Definitions, workloads and built-in operators: read, refused, computed."""

from __future__ import annotations

import json
import os
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
        "bias": {"type": "random"},
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


def test_what_is_ignored_is_said_once_however_many_lines_hold_it(tmp_path: Path) -> None:
    misspelt = changed(WORKLOAD, "tolerance", {"required_match_ratio": 0.5})
    more = changed(misspelt, "inputs.z", {"type": "random"})
    folder = written(tmp_path, DEFINITION, misspelt, more, changed(more, "axes.row", 3), WORKLOAD)
    with pytest.warns(UserWarning) as told:
        problem = load_problem(folder)
    said = [str(one.message).removeprefix(f"{folder / 'workload.jsonl'}, ") for one in told]
    assert said == [
        "line 1: 'required_match_ratio' is ignored; the schema's name is 'required_matched_ratio' "
        "(so on 2 more lines)",
        "line 2: inputs.z is no input of 'scaled_sum' (known: bias, scale, table, x): it is "
        "ignored, as in the harness (so on 1 more line)",
        "line 3: axes.row is no axis of 'scaled_sum' (did you mean 'rows'?): it is ignored, as in "
        "the harness",
    ]
    for workload in problem.workloads:
        assert workload.axes == {"rows": 6} and "z" not in workload.inputs


def test_what_is_nothing_may_be_counted_as_none(tmp_path: Path) -> None:
    """A cache is empty at first; a window may reach nowhere; both are numbers of real problems."""
    axes = {
        **DEFINITION["axes"],
        "ahead": {"type": "const", "value": 0},
        "cached": {"type": "var"},
        "all": {"type": "expr", "expression": "cached + rows"},
        "left": {"type": "expr", "expression": "cached * rows"},
    }
    content = changed(DEFINITION, "axes", axes)
    content["inputs"]["bias"]["shape"] = ["cached", "left", "ahead"]
    workload = changed(WORKLOAD, "axes", {"rows": 6, "cached": 0})
    problem = load_problem(written(tmp_path, content, workload))
    bound = axis_values(problem.operator, problem.workloads[0])
    assert {name: bound[name] for name in ("ahead", "cached", "all", "left")} == {
        "ahead": 0,
        "cached": 0,
        "all": 6,
        "left": 0,
    }


def test_whole_numbers_may_be_written_with_a_point(tmp_path: Path) -> None:
    content = changed(DEFINITION, "axes.heads.value", 4.0)
    problem = load_problem(written(tmp_path, content, changed(WORKLOAD, "axes.rows", 6.0)))
    bound = axis_values(problem.operator, problem.workloads[0])
    assert bound == {"rows": 6, "heads": 4, "width": 35}
    assert all(type(value) is int for value in bound.values())


def test_a_workload_may_give_a_const_axis_another_value(tmp_path: Path) -> None:
    other = changed(WORKLOAD, "axes", {"rows": 6, "heads": 5, "width": 7})
    same = changed(WORKLOAD, "axes", {"rows": 6, "heads": 4})
    problem = load_problem(written(tmp_path, DEFINITION, other, same))
    first, second = problem.workloads
    assert axis_values(problem.operator, first) == {"rows": 6, "heads": 5, "width": 43}
    assert axis_values(problem.operator, second) == {"rows": 6, "heads": 4, "width": 35}
    assert second.axes == {"rows": 6}


def test_custom_inputs_may_be_made_by_what_is_no_axis(tmp_path: Path) -> None:
    reference = "def run(x, scale, bias, table): return x\ndef made(axes, device): return {}\n"
    content = changed(DEFINITION, "reference", reference)
    content["custom_inputs_entrypoint"] = "made"
    workload = changed(WORKLOAD, "axes", {"rows": 6, "joint": 0})
    workload["inputs"] = {name: {"type": "custom"} for name in ("x", "scale", "bias", "table")}
    problem = load_problem(written(tmp_path, content, workload, changed(workload, "axes.joint", 1)))
    bound = [axis_values(problem.operator, each) for each in problem.workloads]
    assert [each["joint"] for each in bound] == [0, 1]
    assert len({each.fingerprint for each in problem.workloads}) == 2


def test_descriptions_may_be_empty(tmp_path: Path) -> None:
    content = changed(DEFINITION, "description", "")
    content["axes"]["rows"]["description"] = ""
    content["inputs"]["x"]["description"] = content["outputs"]["y"]["description"] = ""
    operator = load_definition_of(tmp_path, content)
    assert operator.description == operator.axes["rows"].description == ""
    assert operator.fingerprint == load_definition_of(tmp_path, DEFINITION).fingerprint


def test_descriptions_do_not_change_an_operator(tmp_path: Path) -> None:
    told = changed(DEFINITION, "description", "Other words.")
    written(tmp_path, DEFINITION)
    plain = load_definition(tmp_path / "definition.json")
    written(tmp_path, told)
    assert load_definition(tmp_path / "definition.json").fingerprint == plain.fingerprint


NOTHING = """no top-level function 'run'"""
MALFORMED_DEFINITIONS: list[tuple[str, object, str, str]] = [
    # what is changed, to what (... removes it), the field that is named, what is said of it
    ("name", ..., "", "lacks the field 'name': a text"),
    ("name", 5, "name", "must be a text that is not empty, not 5"),
    ("name", " ", "name", "must be a text that is not empty"),
    ("op_type", ["x"], "op_type", "must be a text that is not empty"),
    ("description", 3, "description", "must be a text, not 3"),
    ("hf_id", {}, "hf_id", "must be a text that is not empty"),
    ("axes", ..., "", "lacks the field 'axes': an object of axes by name"),
    ("axes", [], "axes", "must be a JSON object (axes by name), not []"),
    ("axes.rows", 5, "axes.rows", "must be a JSON object (type, and value or expression), not 5"),
    ("axes.rows.type", "variable", "axes.rows.type", "must be one of const, var, expr (did"),
    ("axes.rows.description", 1, "axes.rows.description", "must be a text"),
    ("axes.heads.value", ..., "axes.heads", "lacks the field 'value': a whole number from 0 to"),
    (
        "axes.heads.value",
        -4,
        "axes.heads.value",
        "must be a whole number from 0 to 2147483647, not -4",
    ),
    ("axes.heads.value", 2.5, "axes.heads.value", "not 2.5"),
    ("axes.heads.value", True, "axes.heads.value", "not true"),
    ("axes.heads.value", "4", "axes.heads.value", 'not "4"'),
    ("axes.width.expression", ..., "axes.width", "lacks the field 'expression': arithmetic"),
    ("axes.width.expression", "", "axes.width.expression", "must be arithmetic over other axes"),
    ("axes.width.expression", "rows *", "axes.width.expression", "does not parse"),
    ("axes.width.expression", "rowss", "axes.width.expression", "(did you mean 'rows'?)"),
    ("axes.width.expression", "width + 1", "axes.width.expression", "unknown axis 'width'"),
    ("axes.width.expression", "min(rows, 2)", "axes.width.expression", "calls a function (min)"),
    ("axes.width.expression", "rows > 2", "axes.width.expression", "uses Compare"),
    ("inputs", ..., "", "lacks the field 'inputs': an object of tensors by name"),
    ("inputs", 7, "inputs", "must be a JSON object (tensors by name), not 7"),
    ("inputs.x", None, "inputs.x", "must be a JSON object (shape and dtype), not null"),
    ("inputs.x.dtype", "bfloat17", "inputs.x.dtype", "(did you mean 'bfloat16'?)"),
    ("inputs.x.dtype", 16, "inputs.x.dtype", "must be one of float64, float32"),
    ("inputs.x.dtype", ..., "inputs.x", "lacks the field 'dtype': one of float64, float32"),
    ("inputs.x.shape", ..., "inputs.x", "lacks the field 'shape': a list of axis names"),
    ("inputs.x.shape", "rows", "inputs.x.shape", "must be a list of axis names and digit strings"),
    ("inputs.x.shape", ["rowz"], "inputs.x.shape[0]", "unknown axis 'rowz' (did you mean 'rows'?)"),
    (
        "inputs.x.shape",
        ["rows", 3],
        "inputs.x.shape[1]",
        "an axis name, or digits in quotes",
    ),
    ("inputs.x.shape", ["0"], "inputs.x.shape[0]", "a whole number from 1 to 2147483647 in quotes"),
    ("inputs.x.optional", 1, "inputs.x.optional", "must be true or false, not 1"),
    ("inputs.x.description", 1, "inputs.x.description", "must be a text"),
    ("outputs", ..., "", "lacks the field 'outputs'"),
    ("outputs", {}, "outputs", "must be an object with at least one output"),
    ("outputs.x", {"shape": [], "dtype": "bool"}, "outputs.x", "is the name of an input too"),
    ("reference", ..., "", "lacks the field 'reference': Python source"),
    ("reference", 1, "reference", "must be Python source with a top-level function 'run'"),
    ("reference", "x = 1\ndef run(:", "reference", "is no Python: invalid syntax in line 2"),
    ("reference", "x = 1", "reference", NOTHING),
    ("reference", "class A:\n def run(self): 0", "reference", NOTHING),
    (
        "reference",
        "def run(x, bias): 0",
        "reference",
        "must be the inputs in order: (x, s",
    ),
    ("custom_inputs_entrypoint", 3, "custom_inputs_entrypoint", "name of a function"),
    ("custom_inputs_entrypoint", "rum", "custom_inputs_entrypoint", "(did you mean 'run'?)"),
    ("flops", "rows * wide", "flops", "names the unknown axis 'wide'"),
    ("flops", 5, "flops", "must be a text"),
    ("bytes_moved", "open('x')", "bytes_moved", "calls a function"),
]


def line_of(file: Path, field: str) -> int:
    """Return the line of a field in a file with one field a line; of ``""`` the first."""
    *folders, last = field.replace("[", ".").replace("]", "").split(".")
    lines, at = file.read_text().split("\n"), 0
    for depth, name in enumerate(folders, start=1):  # json.dumps indents by one a level
        at = next(
            n for n in range(at, len(lines)) if lines[n].startswith(" " * depth + f'"{name}":')
        )
    if last.isdigit():
        return at + 2 + int(last)
    start = " " * (len(folders) + 1) + f'"{last}":'
    return 1 + next((n for n in range(at, len(lines)) if lines[n].startswith(start)), 0)


@pytest.mark.parametrize(("path", "value", "field", "message"), MALFORMED_DEFINITIONS)
def test_malformed_definitions_say_file_line_field_and_what_is_allowed(
    tmp_path: Path, path: str, value: object, field: str, message: str
) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(changed(DEFINITION, path, value), indent=1))
    with pytest.raises(InputError) as caught:
        load_definition(file)
    said = str(caught.value)
    assert said.startswith(f"{file}, line {line_of(file, field)}: {field}"), said
    assert message in said and "\n" not in said


def test_an_input_must_not_be_called_like_an_axis(tmp_path: Path) -> None:
    content = changed(DEFINITION, "inputs.rows", {"shape": [], "dtype": "bool"})
    content["reference"] = "def run(x, scale, bias, table, rows): return x"
    with pytest.raises(InputError, match=r"line 1: inputs\.rows is the name of an axis too"):
        load_definition(written(tmp_path, content) / "definition.json")


MALFORMED_WORKLOADS: list[tuple[str, object, str, str]] = [
    ("uuid", ..., "", "lacks the field 'uuid'"),
    ("uuid", 7, "uuid", "must be a text that is not empty, not 7"),
    ("uuid", "", "uuid", "must be a text that is not empty"),
    ("axes", ..., "", "lacks the field 'axes': an object with a value for each var axis"),
    ("axes", [6], "axes", "must be a JSON object"),
    ("axes", {}, "axes", "does not bind the axis 'rows': a whole number from 0"),
    (
        "axes",
        {"row": 2},
        "axes.row",
        "is no axis of 'scaled_sum' (did you mean 'rows'?), and nothing binds 'rows'",
    ),
    ("axes.rows", -1, "axes.rows", "must be a whole number from 0 to 2147483647, not -1"),
    ("axes.rows", 0, "axes", "axis 'rows' is 0, which leaves the output 'y' empty; a whole number"),
    ("axes.heads", -1, "axes.heads", "must be a whole number from 0"),
    ("axes.row", 1.5, "axes.row", "must be a whole number from 0"),
    ("axes.rows", 1.5, "axes.rows", "not 1.5"),
    ("axes.rows", "6", "axes.rows", 'not "6"'),
    ("axes.rows", 2**31, "axes.rows", "not 2147483648"),
    ("inputs", ..., "", "lacks the field 'inputs'"),
    ("inputs", None, "inputs", "must be a JSON object (how each input is filled, by name)"),
    ("inputs.z", {"type": "zeros"}, "inputs.z.type", "one of random, scalar, safetensors, custom"),
    (
        "inputs.z",
        {"type": "safetensors", "path": "p", "tensor_key": "k"},
        "inputs.z",
        "is no input of 'scaled_sum'",
    ),
    ("inputs.x", "random", "inputs.x", "must be a JSON object (type, and what it needs)"),
    ("inputs.x.type", "ones", "inputs.x.type", "one of random, scalar, safetensors, custom"),
    ("inputs.x", {"type": "scalar"}, "inputs.x", "lacks the field 'value': a number or a boolean"),
    ("inputs.scale.value", "2", "inputs.scale.value", "must be a number or a boolean"),
    ("inputs.scale.value", float("nan"), "inputs.scale.value", "or a boolean, not NaN"),
    ("inputs.scale.value", float("-inf"), "inputs.scale.value", "or a boolean, not -Infinity"),
    ("axes.rows", float("inf"), "axes.rows", "a whole number from 0 to 2147483647, not Infinity"),
    ("tolerance", None, "tolerance", "must be a JSON object (max_atol"),
    ("tolerance.max_rtol", float("inf"), "tolerance.max_rtol", "from 0 on, not Infinity"),
    ("inputs.scale.value", None, "inputs.scale.value", "must be a number or a boolean"),
    ("inputs.x", {"type": "safetensors", "path": "p"}, "inputs.x", "lacks the field 'tensor_key'"),
    ("inputs.table.path", ..., "inputs.table", "lacks the field 'path'"),
    ("inputs.table.path", 3, "inputs.table.path", "must be a text that is not empty"),
    ("inputs.table.tensor_key", "", "inputs.table.tensor_key", "must be a text that is not empty"),
    (
        "inputs.x",
        {"type": "custom"},
        "inputs.x",
        "names no custom_inputs_entrypoint",
    ),
    ("tolerance", 3, "tolerance", "must be a JSON object (max_atol"),
    ("tolerance.max_atol", "1", "tolerance.max_atol", "must be a number from 0 on"),
    ("tolerance.max_atol", -1, "tolerance.max_atol", "must be a number from 0 on, not -1"),
    ("tolerance.max_atol", None, "tolerance.max_atol", "must be a number from 0 on, not null"),
    ("tolerance.max_rtol", True, "tolerance.max_rtol", "must be a number from 0 on, not true"),
    ("tolerance.required_matched_ratio", 1.5, "tolerance.required_matched_ratio", "from 0 to 1"),
    ("tolerance.max_error_cap", [], "tolerance.max_error_cap", "must be a number from 0 on"),
    ("tolerance.allow_negative_inf", 1, "tolerance.allow_negative_inf", "must be true or false"),
]


@pytest.mark.parametrize(("path", "value", "field", "message"), MALFORMED_WORKLOADS)
def test_malformed_workloads_say_file_line_field_and_what_is_allowed(
    tmp_path: Path, path: str, value: object, field: str, message: str
) -> None:
    folder = written(tmp_path, DEFINITION, WORKLOAD, changed(WORKLOAD, path, value))
    operator = load_definition(folder / "definition.json")
    file = folder / "workload.jsonl"
    with pytest.raises(InputError) as caught:
        load_workloads(file, operator)
    said = str(caught.value)
    assert said.startswith(f"{file}, line 2: {field}"), said
    assert message in said and "\n" not in said


def test_custom_inputs_are_all_or_none(tmp_path: Path) -> None:
    reference = "def run(x, scale, bias, table): return x\ndef made(axes, device): return {}\n"
    content = changed(DEFINITION, "reference", reference)
    content["custom_inputs_entrypoint"] = "made"
    mixed = changed(WORKLOAD, "inputs.x", {"type": "custom"})
    with pytest.raises(InputError, match=r"line 1: inputs\.scale is scalar while other inputs are"):
        load_problem(written(tmp_path, content, mixed))
    fills = {name: {"type": "custom"} for name in ("x", "scale", "bias", "table")}
    problem = load_problem(written(tmp_path, content, changed(WORKLOAD, "inputs", fills)))
    assert problem.operator.custom_inputs == "made"
    assert problem.operator.fingerprint != load_definition_of(tmp_path, DEFINITION).fingerprint


def load_definition_of(folder: Path, content: Mapping[str, Any]) -> Operator:
    return load_definition(written(folder, content) / "definition.json")


def test_absent_kinds_are_read_from_the_other_fields(tmp_path: Path) -> None:
    content = changed(DEFINITION, "axes.heads.type", ...)
    content["axes"]["width"].pop("type")
    content["axes"]["rows"].pop("type")
    workload = changed(WORKLOAD, "inputs", {"x": {}, "scale": {"value": 2.0}})
    problem = load_problem(written(tmp_path, content, workload))
    assert [axis.kind for axis in problem.operator.axes.values()] == ["var", "const", "expr"]
    kinds = {name: fill["type"] for name, fill in problem.workloads[0].inputs.items()}
    assert kinds == {"x": "random", "scale": "scalar"}


def test_an_expression_may_stand_before_the_axes_it_names(tmp_path: Path) -> None:
    axes = {"half": {"type": "expr", "expression": "rows // heads"}, **DEFINITION["axes"]}
    problem = load_problem(written(tmp_path, changed(DEFINITION, "axes", axes)))
    bound = axis_values(problem.operator, problem.workloads[0])
    assert bound == {"half": 1, "rows": 6, "heads": 4, "width": 35} and [*bound][:1] == ["half"]


def test_files_that_are_none(tmp_path: Path) -> None:
    written(tmp_path)
    operator = load_definition(tmp_path / "definition.json")
    cases: list[tuple[str, bytes | None, str]] = [
        ("absent.json", None, "there is no file"),
        ("empty.json", b"  \n", "is empty; JSON is needed"),
        ("text.json", b"{name: 5}", r"line 1: no JSON: .* \(column 2\)"),
        ("torn.json", b'{\n "name": "x",\n "axes": {', r"line 3: no JSON"),
        ("constant.json", b'{"axes": {}, "inputs":\n NaN}', "line 2: inputs must .*, not NaN"),
        ("unnamed.json", b'{"": 1}', "has a field without a name"),
        ("list.json", b"[1]", r"line 1: must be a JSON object .*, not \[1\]"),
        ("bytes.json", b"{}\n\xff\xfe{}", "line 2: not UTF-8 text"),
        ("deep.json", b"[" * 200_000, "nested too deeply"),
        ("digits.json", b'{"name":\n ' + b"1" * 5_000 + b"}", "line 2: a number has too many dig"),
    ]
    for name, content, message in cases:
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            load_definition(file)
        assert name in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match="is a folder; a file is needed"):
        load_definition(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")  # which nobody writes to: it is not waited for
    with pytest.raises(InputError, match=r"pipe\.jsonl is no regular file; one is needed"):
        load_workloads(tmp_path / "pipe.jsonl", operator)
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no workloads"):
        load_workloads(tmp_path / "none.jsonl", operator)
    with pytest.raises(InputError, match="line 1: no JSON"):
        load_workloads(Path(__file__), operator)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("heads // (rows - 6)", "divides by zero"),
        ("rows - 6", "axis 'width' is 0, which leaves the output 'y' empty"),
        ("rows - 7", "a whole number from 0 to 2147483647, not -1"),
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
