"""Solutions: read with every field checked, written, and made from a campaign."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice
from tests.unit.test_definitions import changed, line_of

from kernelarc.bench.cuda import _session
from kernelarc.engine import CampaignSettings, _targets, run
from kernelarc.genomes import (
    Estimate,
    Genome,
    InputError,
    checked_solution,
    load_solution,
    packaged_problem,
    require_definition,
)
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.storage import export, open_reader
from kernelarc.storage.exports._sol import sol_files
from kernelarc.storage.exports._sol_words import about
from kernelarc.storage.exports._subject import Subject

SOLUTION: Mapping[str, Any] = {
    "name": "one",
    "definition": "task",
    "author": "somebody",
    "spec": {
        "languages": ["triton"],
        "target_hardware": ["B200", "LOCAL"],
        "entry_point": "kernel.py::run",
        "dependencies": ["torch", "triton"],
        "destination_passing_style": True,
        "binding": "torch",
        "compile_options": {"cflags": ["-O2"], "cuda_cflags": [], "ld_flags": ["-lcuda"]},
    },
    "sources": [{"path": "kernel.py", "content": "def run(x, y): pass\n"}],
}
ENTRY = "must be 'file::function', the file being one of the sources"
MALFORMED: list[tuple[str, object, str, str]] = [
    ("name", ..., "", "lacks the field 'name'"),
    ("name", "", "name", "must be a text that is not empty"),
    ("definition", 3, "definition", "must be a text that is not empty, not 3"),
    ("author", ..., "", "lacks the field 'author'"),
    ("description", [], "description", "must be a text"),
    ("spec", ..., "", "lacks the field 'spec': an object"),
    ("spec", [], "spec", "must be a JSON object (languages, target_hardware, entry_point)"),
    ("spec.languages", ..., "spec", "lacks the field 'languages': a list out of pytorch, triton"),
    ("spec.languages", [], "spec.languages", "must be a list with at least one of pytorch"),
    ("spec.languages", ["tritn"], "spec.languages[0]", "(did you mean 'triton'?)"),
    ("spec.languages", ["triton", "cublas"], "spec.languages", "all out of pytorch, triton"),
    ("spec.languages", "triton", "spec.languages", "must be a list of names out of pytorch"),
    ("spec.target_hardware", ["H200"], "spec.target_hardware[0]", "must be one of B200, LOCAL"),
    ("spec.target_hardware", ["local"], "spec.target_hardware[0]", "must be one of B200, LOCAL"),
    ("spec.target_hardware", [], "spec.target_hardware", "at least one of B200, LOCAL"),
    ("spec.entry_point", ..., "spec", "lacks the field 'entry_point'"),
    ("spec.entry_point", "kernel.py", "spec.entry_point", ENTRY),
    ("spec.entry_point", "kernel.py::", "spec.entry_point", ENTRY),
    ("spec.entry_point", "other.py::run", "spec.entry_point", ENTRY),
    ("spec.entry_point", "kernel.py::run::x", "spec.entry_point", ENTRY),
    ("spec.languages", ["cuda_cpp"], "spec.entry_point", "in a file that ends in .cu, .cpp"),
    ("spec.dependencies", "torch", "spec.dependencies", "must be a list of names of packages"),
    ("spec.dependencies", None, "spec.dependencies", "must be a list of names of packages, not nu"),
    ("spec.destination_passing_style", None, "spec.destination_passing_style", "true or false"),
    ("spec.compile_options.ld_flags", None, "spec.compile_options.ld_flags", "a list of texts"),
    ("spec.dependencies", [1], "spec.dependencies[0]", "must be a text that is not empty, not 1"),
    ("spec.destination_passing_style", 1, "spec.destination_passing_style", "true or false"),
    ("spec.binding", "pybind", "spec.binding", "must be one of torch"),
    ("spec.compile_options", [], "spec.compile_options", "must be a JSON object (cflags"),
    ("spec.compile_options.cflags", "-O2", "spec.compile_options.cflags", "a list of texts"),
    ("sources", ..., "", "lacks the field 'sources'"),
    ("sources", {}, "sources", "must be a list of sources, each with path and content"),
    ("sources", [], "sources", "must be a list with at least one source"),
]


@pytest.mark.parametrize(("path", "value", "field", "message"), MALFORMED)
def test_malformed_solutions_say_file_line_field_and_what_is_allowed(
    tmp_path: Path, path: str, value: object, field: str, message: str
) -> None:
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(changed(SOLUTION, path, value), indent=1))
    with pytest.raises(InputError) as caught:
        load_solution(file)
    said = str(caught.value)
    assert said.startswith(f"{file}, line {line_of(file, field)}: {field}"), said
    assert message in said and "\n" not in said


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"path": "/kernel.py", "content": "x"}, r"sources\[1\]\.path must be a relative path"),
        ({"path": "../kernel.py", "content": "x"}, r"sources\[1\]\.path must be a relative path"),
        ({"path": "kernel.py", "content": "x"}, r"sources\[1\]\.path names 'kernel.py' again"),
        ({"content": "x"}, r"sources\[1\] lacks the field 'path'"),
        ({"path": "more.py"}, r"sources\[1\] lacks the field 'content', and there is no file"),
        ({"path": "more.py", "content": 5}, r"sources\[1\]\.content must be the source's text"),
        (7, r"sources\[1\] must be a JSON object \(path and content\), not 7"),
    ],
)
def test_malformed_sources(tmp_path: Path, source: object, message: str) -> None:
    content = changed(SOLUTION, "sources", [*SOLUTION["sources"], source])
    (tmp_path / "solution.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_solution(tmp_path / "solution.json")


def test_a_solution_is_read_and_written_back(tmp_path: Path) -> None:
    content = changed(SOLUTION, "sources", [{"path": "kernel.py"}])
    (tmp_path / "solution.json").write_text(json.dumps(content))
    (tmp_path / "kernel.py").write_text("def run(): pass\n")
    solution = load_solution(tmp_path / "solution.json")
    assert solution.sources == {"kernel.py": "def run(): pass\n"}
    # No flags are something else than flags that are not given: the harness has its own then.
    given = {"cflags": ("-O2",), "cuda_cflags": (), "ld_flags": ("-lcuda",)}
    assert solution.compile_options == given
    again = checked_solution(solution.text(), "text")
    assert again.compile_options == given
    assert (again.name, again.sources, again.languages) == ("one", solution.sources, ("triton",))
    require_definition(solution, "task", "x")
    with pytest.raises(InputError, match="is for the definition 'task', not 'other'"):
        require_definition(solution, "other", "solution.json")


# Made from a campaign


def searched(folder: Path, **settings: Any) -> Path:
    """Run a campaign over two shapes of the packaged projection on a scripted device."""
    path = folder / "lt.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_session, "WorkerProcess", FormulaWorker)
        patch.setattr(_targets, "KernelDevice", ScriptedDevice)
        patch.setenv("KERNELARC_LOCK_DIR", str(folder))
        workloads = ({"batch": 1, "seq": 256}, {"batch": 4, "seq": 128})
        chosen = {"target": "gemm_residual", "workloads": workloads, "budget": 60, **settings}
        run(CampaignSettings(seed=3, models=False, store=str(path), **chosen))
    return path


def exported(store: Path, form: str) -> dict[str, Any]:
    out = store.with_suffix(f".{form}.json")
    with open_reader(str(store)) as reader:
        export(reader, None, form, out)
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_a_product_s_solution_holds_the_table_and_stands_alone(tmp_path: Path) -> None:
    store = searched(tmp_path)
    solution = checked_solution(json.dumps(exported(store, "sol")), "exported")
    assert solution.definition == packaged_problem("gemm_residual").operator.name
    assert solution.destination_passing and "not comparable" in solution.description
    tree = ast.parse(solution.sources["solution.py"])
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert imported == {"__future__", "ctypes", "functools", "torch"}
    entry = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
    assert [a.arg for a in entry.args.args] == ["x", "weight", "residual", "out"]
    (table,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and getattr(node.target, "id", "") == "TABLE"
        and node.value
    )
    expected = {
        (1, each["product"]["m"], 2560, 2560): tuple(each["algorithm"]["attributes"].values())
        for each in exported(store, "cublaslt")["entries"]
        if each["use"] == "algorithm"
    }
    assert table == expected and expected
    assert "kernelarc" not in solution.sources["solution.py"]


def test_a_residual_that_may_be_overwritten_is_returned(tmp_path: Path) -> None:
    store = searched(tmp_path, options={"in_place": True}, pins={"aliased": "true"})
    solution = checked_solution(json.dumps(exported(store, "sol")), "exported")
    assert not solution.destination_passing
    tree = ast.parse(solution.sources["solution.py"])
    entry = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
    assert [a.arg for a in entry.args.args] == ["x", "weight", "residual"]


def test_what_is_no_problem_has_no_solution(tmp_path: Path) -> None:
    store = searched(tmp_path, target="matmul", workloads=({"M": 128},), budget=5)
    with pytest.raises(InputError, match="format sol is for problems in SOL-ExecBench's form"):
        exported(store, "sol")
    assert not store.with_suffix(".sol.json").exists()


def test_a_folder_s_own_solution_must_be_well_formed(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    source = Path(str(Path(__file__).parents[2] / "genomes" / "operators" / "gemm_residual"))
    for name in ("definition.json", "workload.jsonl"):
        (folder / name).write_text((source / name).read_text())
    (folder / "solution.json").write_text(json.dumps(changed(SOLUTION, "author", 5)))
    with pytest.raises(InputError, match=r"solution\.json, line 1: author must be a text"):
        _targets.resolve_target(CampaignSettings(target=str(folder)))
    (folder / "solution.json").write_text(json.dumps(SOLUTION))
    with pytest.raises(InputError, match="for the definition 'task', not 'gemm_residual'"):
        _targets.resolve_target(CampaignSettings(target=str(folder)))


needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="a launch of Triton is described by Triton"
)


def won_by(name: str, store: Path, change: Callable[[Genome], Genome], out: Path) -> None:
    """Write the solution of a campaign whose second shape a compiled route won."""
    with open_reader(str(store)) as reader:
        row = reader.campaign(None)
        bests = tuple(replace(best, audited=True) for best in reader.bests(row.id))
        workload = row.spec.problem.workloads[1]
        (route,) = (r for r in kernel_routes(row.spec.problem.operator) if r.name == name)
        space = route.space(workload, DeviceLimits.of_arch("sm_90a"))
        genome = change(space.sample(np.random.default_rng(1)))
        second = next(best for best in bests if best.workload == workload.fingerprint)
        candidate = replace(second.evaluation.candidate, genome=genome)
        evaluation = replace(second.evaluation, candidate=candidate)
        first = next(best for best in bests if best is not second)
        subject = Subject(reader, row, (first, replace(second, evaluation=evaluation)))
        (writer,) = sol_files(subject, out).values()
        writer(out)


@pytest.mark.parametrize("name", [pytest.param("triton", marks=needs_triton), "cuda"])
def test_a_genome_of_another_version_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    def older(genome: Genome) -> Genome:
        """Return it without the first of its genes, as if that had come since."""
        return Genome(genome.route, dict([*genome.items()][1:]))

    out = tmp_path / "solution.json"
    with pytest.raises(InputError, match=f"a best of route {name} is none of them") as caught:
        won_by(name, searched(tmp_path), older, out)
    assert "or of another version" in str(caught.value) and not out.exists()


def test_shapes_that_a_const_axis_tells_apart_are_refused(tmp_path: Path) -> None:
    problem = packaged_problem("gemm_residual")
    operator, first = problem.operator, problem.workloads[0]
    const = next(name for name, axis in operator.axes.items() if axis.kind == "const")
    other = replace(first, axes={**first.axes, const: 64})
    subject: Any = SimpleNamespace(
        operator=operator, workloads=(first, other), campaign=SimpleNamespace(id=3), bests=()
    )
    with pytest.raises(InputError, match=f"gives the const axis '{const}' another value"):
        sol_files(subject, tmp_path / "solution.json")


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        pytest.param("triton", {"triton_gemm.py"}, marks=needs_triton),
        ("cuda", {"kernels.py"}),
    ],
)
def test_two_routes_make_one_solution(name: str, modules: set[str], tmp_path: Path) -> None:
    won_by(name, searched(tmp_path), lambda genome: genome, tmp_path / "solution.json")
    solution = load_solution(tmp_path / "solution.json")
    own = {"solution.py", "library_part.py", f"{name}_part.py", "reference.py"}
    assert set(solution.sources) == own | modules
    assert solution.languages == (("triton",) if name == "triton" else ("pytorch",))
    part = solution.sources[f"{name}_part.py"]
    assert "KEY: tuple[tuple[str, int], ...] = (('x', 0), ('x', 1))" in part
    assert "(4, 128): {" in part and "(1, 256): {" not in part
    assert f"route {name} is faster than the library" in solution.sources["library_part.py"]
    entry = solution.sources["solution.py"]
    assert f"in {name}_part.TABLE:" in entry and entry.rstrip().endswith(
        "return library_part.run(x, weight, residual, out)"
    )
    for text in solution.sources.values():
        ast.parse(text)


def test_a_solution_names_every_baseline_that_its_speed_ups_are_over() -> None:
    def best(against: str | None, *, audited: bool = True) -> SimpleNamespace:
        gain = Estimate(value=1.5, low=1.4, high=1.6, n=9) if against else None
        return SimpleNamespace(against=against, audited=audited, speedup=gain)

    bests = [best("baseline:torch compile"), best("baseline:torch eager"), best(None),
             best("baseline:torch compile"), best("baseline:numpy", audited=False)]  # fmt: skip
    subject: Any = SimpleNamespace(bests=bests, device_label="H200", workloads=bests)
    assert "3 of 5 shapes audited" in about(subject)
    assert "speed-ups over torch compile or torch eager: 1.500, 1.500, 1.500" in about(subject)
