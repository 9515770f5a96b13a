"""Solutions of packaged CUDA routes: their table says what the plan says, their text compiles."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.unit.test_cuda_routes import HOPPER, MAKERS, needs_nvrtc, route_of

from kernelarc.bench.kernelfile._closure import closure_of
from kernelarc.genomes import (
    InputError,
    MatmulForm,
    Solution,
    checked_solution,
    matmul_operator,
    matmul_problem,
)
from kernelarc.genomes.kernels import Launch, LibraryProduct, TensorMap
from kernelarc.genomes.kernels._code import _sections
from kernelarc.genomes.routes._cuda_gemm import CudaGemmRoute
from kernelarc.genomes.routes._cuda_route import CudaRoute
from kernelarc.storage.exports._sol_cuda import (
    FILE,
    KERNELS,
    LIBRARY,
    REFERENCE,
    cuda_sources,
)
from kernelarc.storage.exports._sol_library import packaged_source


def made(name: str) -> tuple[CudaRoute, Any, dict[str, str]]:
    """Return a route, its first two workloads with a seed each, and the sources."""
    route, problem = route_of(name)
    assert isinstance(route, CudaRoute)
    rows = [(w, route.seeds(w, HOPPER)[0].genome) for w in problem.workloads[:2]]
    return route, rows, cuda_sources(route, rows)


def literal(source: str, name: str) -> Any:
    """Return the value that a module's text gives a name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert node.value is not None
            return ast.literal_eval(node.value)
    raise LookupError(name)


@pytest.mark.parametrize("name", MAKERS)
def test_the_table_says_what_the_plan_says(name: str) -> None:
    route, rows, sources = made(name)
    table, texts = literal(sources[FILE], "TABLE"), literal(sources[KERNELS], "TEXTS")
    assert len(table) == len(rows)
    for (workload, genome), found in zip(rows, table.values(), strict=True):
        ready = route.prepared(workload, genome, "sm_90a")
        assert found["macros"] + texts[found["text"]].removeprefix("\n") == ready.text
        for step, launch in zip(found["steps"], ready.steps, strict=True):
            if isinstance(launch, LibraryProduct):
                assert step["product"][:3] == (launch.rows, launch.columns, launch.depth)
                continue
            assert isinstance(launch, Launch) and step["symbol"] == launch.symbol
            assert (step["grid"], step["block"]) == (launch.grid, launch.block)
            assert step["shared"] == launch.shared_bytes
            kinds = [isinstance(argument, TensorMap) for argument in launch.arguments]
            assert [argument[0] == "map" for argument in step["arguments"]] == kinds
    assert sources[REFERENCE] == route.operator.reference


@pytest.mark.parametrize("name", MAKERS)
def test_a_solution_is_well_formed(name: str) -> None:
    route, _, sources = made(name)
    solution = Solution(
        name="one",
        definition=route.operator.name,
        author="kernelarc",
        languages=("pytorch",),
        entry_point=f"{FILE}::run",
        sources=sources,
        dependencies=("torch",),
    )
    assert checked_solution(solution.text(), "text").sources == sources
    names = [spec.name for spec in (*route.operator.inputs, *route.operator.outputs)]
    (run,) = (n for n in ast.parse(sources[FILE]).body
              if isinstance(n, ast.FunctionDef) and n.name == "run")  # fmt: skip
    assert [argument.arg for argument in run.args.args] == names


def test_a_genome_that_overwrites_an_input_has_no_solution() -> None:
    operator = matmul_operator(MatmulForm(residual=True))
    operator = replace(operator, reference="import torch\n\ndef run(a, weight, residual): pass\n")
    problem = matmul_problem(operator, [{"M": 64, "N": 64, "K": 64}], in_place=True)
    route, (workload,) = CudaGemmRoute(operator), problem.workloads
    space = route.space(workload, HOPPER)
    genome = space.genome({**route.seeds(workload, HOPPER)[0].genome.alleles(), "aliased": True})
    with pytest.raises(InputError, match="overwrites an input"):
        cuda_sources(route, [(workload, genome)])


@needs_nvrtc
@pytest.mark.parametrize("name", ["gqa_paged_prefill", "gemm_residual"])
def test_the_solution_compiles_to_the_same_machine_code(name: str) -> None:
    route, rows, sources = made(name)
    names: dict[str, Any] = {}
    exec(closure_of(sources[FILE], "cubin"), names)
    table, texts = literal(sources[FILE], "TABLE"), literal(sources[KERNELS], "TEXTS")
    for (workload, genome), found in zip(rows, table.values(), strict=True):
        image = names["cubin"](found["macros"] + texts[found["text"]], "sm_90a")
        (binary,) = route.build(workload, genome, "sm_90a").binaries.values()
        assert code_of(image) == code_of(binary) != []


def code_of(cubin: bytes) -> list[tuple[str, bytes]]:
    """Return the sections that hold instructions: the compiler's own notes differ."""
    return [(s.name, s.body) for s in _sections(cubin) if s.name.startswith(".text.")]


ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import reference, solution, torch

shapes = ((3, 2048), (3, 2048), (2048,)) if sys.argv[2] == "fused" else ((3, 2048), (2048,))
inputs = [torch.randn(*shape).bfloat16() for shape in shapes]
inputs += [1e-5] if sys.argv[2] == "fused" else []
wanted = reference.run(*inputs)
found = torch.full_like(wanted, float("nan"))
solution.run(*inputs, found)
assert torch.equal(found, wanted)
print("right")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="solutions are torch's")
@pytest.mark.parametrize(("name", "kind"), [("add_rmsnorm_bf16", "fused"), ("rmsnorm", "alone")])
def test_a_shape_without_a_row_runs_the_reference(tmp_path: Path, name: str, kind: str) -> None:
    _, _, sources = made(name)
    for file, text in sources.items():
        (tmp_path / file).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-2000:]


ORDERED = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import solution, torch

asked = []

class Driver:
    def __getattr__(self, name):
        def answer(*arguments):
            if name == "cuLaunchKernelEx":
                config = arguments[0]._obj
                held = ctypes.cast(config.attributes, ctypes.POINTER(ctypes.c_int))
                asked.append((name, tuple(config.grid), config.shared_bytes, config.stream,
                              config.count, held[0], held[2]))
            else:
                asked.append((name,))
            return 0
        return answer

key, row = next(iter(solution.TABLE.items()))
solution._driver = lambda: Driver()
solution._fits = lambda memory, device, steps: True
solution._functions = lambda key, device: tuple(ctypes.c_void_p(1) for _ in row["steps"])
torch.cuda.current_stream = lambda: type("Stream", (), {"cuda_stream": 77})
(tokens,) = key
shapes = [(tokens, 2048), (tokens, 2048), (768, 2048), (768, 2048), (2048, 768)]
given = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]
made = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes[1:]]
solution.run(*given, *made)
maps = sum(argument[0] == "map" for step in row["steps"] for argument in step["arguments"])
assert maps > 0
assert [each[0] for each in asked[:maps]] == ["cuTensorMapEncodeTiled"] * maps
launched = asked[maps:]
assert len(launched) == len(row["steps"]) > 1
for step, seen in zip(row["steps"], launched):
    count = int(step["overlap"])
    assert seen == ("cuLaunchKernelEx", step["grid"], step["shared"], 77, count, 6, 1)
assert [step["overlap"] for step in row["steps"]] == [False] + [True] * (len(launched) - 1)
print("right")
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="solutions are torch's")
def test_all_arguments_are_made_before_the_first_launch(tmp_path: Path) -> None:
    """What the host does between two launches is time in which the device does nothing."""
    route, problem = route_of("moe_swiglu_backward")
    assert isinstance(route, CudaRoute)
    workload = problem.workloads[0]
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    genome = next(seed for seed in seeds if "library" not in seed.alleles().values())
    alleles = {n: True if n.endswith("_pdl") else a for n, a in genome.items()}
    overlapping = route.space(workload, HOPPER).genome(alleles)
    for file, text in cuda_sources(route, [(workload, overlapping)]).items():
        (tmp_path / file).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", ORDERED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-2000:]


# Products of the library


class ScriptedLibrary:
    """Answers as cuBLASLt does through ctypes; keeps what is multiplied."""

    def __init__(self, *, refuses: bool = False, choices: int = 2) -> None:
        self.refuses, self.choices = refuses, choices
        self.multiplied: list[tuple[Any, ...]] = []
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._answer(name, arguments)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name.endswith("Create"):
            self.made += 1
            arguments[0]._obj.value = self.made
        if name == "cublasLtMatmulAlgoInit":
            arguments[-1][0] = arguments[-2]
        if name == "cublasLtMatmulAlgoCheck":
            arguments[-1]._obj.workspace_bytes = 1 << 20
            return 15 if self.refuses else 0
        if name == "cublasLtMatmulAlgoGetHeuristic":
            arguments[-1]._obj.value = self.choices
            for place in range(self.choices):
                arguments[-2][place].algo[0] = 900 + place
        if name == "cublasLtMatmul":
            self.multiplied.append(arguments)
        return 0


def library_products(monkeypatch: pytest.MonkeyPatch, library: ScriptedLibrary) -> ModuleType:
    """Return the packaged module over a scripted library."""
    cuda = SimpleNamespace(current_blas_handle=lambda: 77, current_device=lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    module = ModuleType("library_products")
    exec(packaged_source(LIBRARY), module.__dict__)
    module.__dict__["library"] = lambda: library
    return module


FORM = (77, 40, 64, "bfloat16", False, False, True, (21, 5, 1, 0, 0, 2, 9, 0, 7), 1, 32 << 20)


@pytest.mark.parametrize(
    ("refuses", "choice", "runs"), [(False, 1, 21), (True, 1, 901), (True, 6, 901)]
)
def test_a_solution_s_product_runs_what_was_recorded_or_what_the_library_chooses(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, choice: int, runs: int
) -> None:
    library = ScriptedLibrary(refuses=refuses)
    module = library_products(monkeypatch, library)
    form = module.Form(*FORM)._replace(choice=choice)
    acts = [module.bound(form, [1000, 2000, 3000, 4000], 5000, 9) for _ in range(2)]
    assert not library.multiplied, "nothing is launched before its turn"
    for act in acts:
        act()
    made = library.made
    (_, _, alpha, b, _, a, _, beta, c, _, d, _, algo, workspace, nbytes, stream) = (
        library.multiplied[-1]
    )
    assert [each.value for each in (a, b, c, d)] == [1000, 2000, 3000, 4000]
    assert (workspace.value, nbytes.value, stream.value) == (5000, 32 << 20, 9)
    assert (alpha._obj.value, beta._obj.value) == (1.0, 1.0)
    assert algo._obj[0] == runs
    module.bound(form._replace(added=False), [1000, 2000, 4000, 4000], 0, 9)()
    assert library.made > made, "another form has descriptors of its own"
    assert library.multiplied[-1][7]._obj.value == 0.0


def test_a_library_that_offers_nothing_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = library_products(monkeypatch, ScriptedLibrary(refuses=True, choices=0))
    with pytest.raises(RuntimeError, match="offers nothing"):
        module.bound(module.Form(*FORM), [1000, 2000, 3000, 4000], 5000, 9)


@pytest.mark.parametrize("name", ["decoder_block", "moe_swiglu_backward"])
def test_what_the_library_ran_goes_into_the_table(name: str) -> None:
    route, problem = route_of(name)
    assert isinstance(route, CudaRoute)
    workload = problem.workloads[-1]
    genome = route.seeds(workload, HOPPER)[0].genome
    steps = route.prepared(workload, genome, "sm_90a").steps
    count = sum(isinstance(step, LibraryProduct) for step in steps)
    ran = tuple((place, 5, 1, 0, 0, 2, 9, 0, 7) for place in range(count))
    sources = cuda_sources(route, [(workload, genome)], {workload.fingerprint: ran})
    (found,) = literal(sources[FILE], "TABLE").values()
    products = [step for step in found["steps"] if "product" in step]
    assert [step["product"][7] for step in products] == list(ran) and count >= 7
    assert all(len(step["arguments"]) == 5 for step in products)
    assert LIBRARY in sources and "kernelarc" not in sources[LIBRARY]
    plain = cuda_sources(route, [(workload, genome)])
    (asked,) = literal(plain[FILE], "TABLE").values()
    assert {s["product"][7] for s in asked["steps"] if "product" in s} == {None}


def test_a_solution_without_products_of_the_library_does_not_call_it() -> None:
    _, _, sources = made("gemm_residual")
    assert set(sources) == {FILE, KERNELS, REFERENCE}
