"""Products that a composite route leaves to the library: genes, plans, what the worker makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.emulated import COMPILER, bits, numbers, run_parts
from tests.unit.interpreted import small_operator
from tests.unit.lt_fake import HEURISTIC, FakeLt

from kernelarc.bench._gene_json import gene_from_json, gene_to_json
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._launchable import PlanLaunchable
from kernelarc.bench.kernels._library_steps import LibrarySteps, NoSuchChoiceError, content_of
from kernelarc.bench.kernels._messages import PlanContender
from kernelarc.bench.kernels._program import (
    Addresses,
    LaunchRefusedError,
    Loader,
    Program,
    begun_alone,
)
from kernelarc.bench.kernels._repeats import Repeats
from kernelarc.bench.kernels._shelf import BuildShelf
from kernelarc.bench.kernels._workbench import NO_SUCH_CHOICE, KernelWorkbench
from kernelarc.genomes import Allele, Genome, Problem, Status, packaged_problem
from kernelarc.genomes.kernels import (
    Build,
    DeviceLimits,
    KernelReport,
    Launch,
    LaunchAttributes,
    LaunchPlan,
    LibraryProduct,
    Scratch,
    ScratchArgument,
    Step,
    TensorArgument,
    TensorMap,
    code_hash,
)
from kernelarc.genomes.routes._cuda_block import CudaBlock, cuda_block_route
from kernelarc.genomes.routes._cuda_moe import CudaExpert, cuda_expert_route
from kernelarc.genomes.routes._cuda_parts import PartedCudaRoute
from kernelarc.genomes.routes._library_part import FILE, FIRST_CHOICE

HOPPER = DeviceLimits.of_arch("sm_90a")
KINDS = {
    "decoder_block": ("q", "kv", "o", "wide", "down"),
    "moe_swiglu_backward": ("inner", "hidden", "token", "weight"),
}
SHAPES: dict[str, dict[str, int]] = {
    "decoder_block": {"batch": 2, "seq": 77},
    "moe_swiglu_backward": {"tokens": 77},
}


def route_of(name: str, shape: dict[str, int]) -> tuple[PartedCudaRoute, Problem]:
    problem = packaged_problem(name, [shape])
    make = cuda_block_route if name == "decoder_block" else cuda_expert_route
    route = make(problem.operator)
    assert isinstance(route, CudaBlock | CudaExpert)
    return route, problem


def left(route: PartedCudaRoute, problem: Problem, kinds: Sequence[str], **more: Allele) -> Genome:
    """Return the genome that leaves these kinds of product to the library."""
    (workload,) = problem.workloads
    own = (s.genome.alleles() for s in route.seeds(workload, HOPPER))
    start = next(found for found in own if "library" not in found.values())
    library = {f"{kind}_{gene}": a for kind in kinds for gene, a in FIRST_CHOICE.items()}
    genome = route.space(workload, HOPPER).repair(
        {**start, **library, **more}, np.random.default_rng(0)
    )
    assert genome is not None
    assert all(genome[f"{kind}_by"] == "library" for kind in kinds)
    return genome


# Genes


@pytest.mark.parametrize("name", KINDS)
def test_a_product_has_the_genes_of_the_one_that_makes_it(name: str) -> None:
    route, problem = route_of(name, SHAPES[name])
    for kind in KINDS[name]:
        genome = left(route, problem, [kind], product_adds=True)
        genes = {gene for gene in genome if gene.startswith(f"{kind}_")}
        wanted = {f"{kind}_{gene}" for gene in ("by", "heuristic", "workspace_mib")}
        if kind in {"wide", "hidden"}:
            wanted |= {f"{kind}_gate_{gene}" for gene in ("warps", "vectors", "pdl")}
        # A gene has one condition: this one follows who adds, and has one value by the library.
        assert genes - {"o_residual"} == wanted
        assert genome.get("o_residual", "last") == "last" or kind != "o"
        for other in set(KINDS[name]) - {kind}:
            assert f"{other}_tile_n" in genome and f"{other}_heuristic" not in genome


@pytest.mark.parametrize("name", KINDS)
def test_a_search_begins_with_the_library_where_there_are_many_tokens(name: str) -> None:
    many = {"batch": 1, "seq": 1024} if name == "decoder_block" else {"tokens": 4096}
    few = {"batch": 3, "seq": 11} if name == "decoder_block" else {"tokens": 512}
    for shape, first in ((few, False), (many, True)):
        route, problem = route_of(name, shape)
        (workload,) = problem.workloads
        seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
        whole = [all(s[f"{kind}_by"] == "library" for kind in KINDS[name]) for s in seeds]
        none = [all(s[f"{kind}_by"] == "kernel" for kind in KINDS[name]) for s in seeds]
        assert sum(whole) == 1 and whole[0] is first
        assert sum(none) >= 4 and none[0] is not first
        assert not all(w or n for w, n in zip(whole, none, strict=True)), "some share out"


@pytest.mark.parametrize("name", KINDS)
def test_each_maker_of_a_product_is_drawn_about_equally(name: str) -> None:
    route, problem = route_of(name, SHAPES[name])
    space, rng = route.space(problem.workloads[0], HOPPER), np.random.default_rng(11)
    drawn = [space.sample(rng) for _ in range(100)]
    for kind in KINDS[name]:
        assert 30 <= sum(genome[f"{kind}_by"] == "library" for genome in drawn) <= 70
    assert len({genome.fingerprint for genome in drawn}) == 100


@pytest.mark.parametrize("name", KINDS)
def test_a_step_to_the_other_maker_begins_where_that_one_is_good(name: str) -> None:
    """A step holds what a seed has: from its first alleles no product would ever be given over."""
    route, problem = route_of(name, SHAPES[name])
    (workload,) = problem.workloads
    space = route.space(workload, HOPPER)
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    makers = {by: [s for s in seeds if all(s[f"{k}_by"] == by for k in KINDS[name])]
              for by in ("kernel", "library")}  # fmt: skip
    for kind in KINDS[name]:
        for here, there in (("kernel", "library"), ("library", "kernel")):
            start = makers[here][0]
            steps = [s for s in space.neighbours(start) if s[f"{kind}_by"] == there]
            assert len(steps) == 1 and space.contains(steps[0])
            own = {n: a for n, a in steps[0].items() if n.startswith(f"{kind}_")}
            wanted = [{n: s.get(n) for n in own} for s in makers[there]]
            assert own in wanted, own
            apart = {change.gene for change in space.diff(start, steps[0])}
            assert all(gene.startswith(f"{kind}_") for gene in apart)
            woken = [space.gene(n) for n in own if n not in start]
            assert all(gene.usual is not None for gene in woken), "islands draw what is not said"


def test_how_a_gene_is_drawn_is_kept_in_its_json() -> None:
    route, problem = route_of("decoder_block", SHAPES["decoder_block"])
    space = route.space(problem.workloads[0], HOPPER)
    genes = [gene_from_json(gene_to_json(gene)) for gene in space.genes]
    assert [g.name for g in genes if g.fair] == [
        f"{k}_by" for k in ("q", "kv", "o", "wide", "down")
    ]
    assert genes == list(space.genes)


# Plans


def read_and_written(step: Step) -> tuple[set[str], set[str]]:
    """Return what a step names first, as inputs, and what it surely writes."""
    assert isinstance(step, LibraryProduct)
    given = {step.left.name, step.right.name}
    return given | ({step.added.name} if step.added is not None else set()), {step.out.name}


@pytest.mark.parametrize("adds", [True, False])
def test_a_block_of_the_library_reads_what_was_written(adds: bool) -> None:
    route, problem = route_of("decoder_block", SHAPES["decoder_block"])
    genome = left(route, problem, KINDS["decoder_block"], product_adds=adds)
    (workload,) = problem.workloads
    ready = route.prepared(workload, genome, "sm_90a")
    known = {spec.name for spec in problem.operator.inputs}
    for step in ready.steps:
        if isinstance(step, Launch):
            places = (a.source if isinstance(a, TensorMap) else a for a in step.arguments)
            known |= {p.name for p in places if isinstance(p, TensorArgument | ScratchArgument)}
        else:
            given, made = read_and_written(step)
            assert given <= known, (step, known)
            known |= made
    products = [step for step in ready.steps if isinstance(step, LibraryProduct)]
    assert [(p.out.name, None if p.added is None else p.added.name) for p in products] == [
        ("q", None), ("k", None), ("v", None),
        ("middle", "hidden_states") if adds else ("projected", None),
        ("gated", None), ("raised", None), ("out", "middle"),
    ]  # fmt: skip
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert [p.right.name for p in products] == names
    assert [p.rows for p in products] == [154] * 7
    scratch = {each.name: each.nbytes for each in ready.scratch}
    assert scratch["library workspace"] == 32 << 20
    assert all(p.workspace == ScratchArgument("library workspace") for p in products)
    assert ("projected" in scratch) is not adds


def test_the_workspace_is_what_the_largest_product_may_use() -> None:
    route, problem = route_of("decoder_block", SHAPES["decoder_block"])
    genome = left(route, problem, ["q", "down"], q_workspace_mib=0)
    ready = route.prepared(problem.workloads[0], genome, "sm_90a")
    sizes = [s.workspace_bytes for s in ready.steps if isinstance(s, LibraryProduct)]
    assert sizes == [0, 32 << 20]
    assert sum(each.name == "library workspace" for each in ready.scratch) == 1
    bare = left(route, problem, ["q"], q_workspace_mib=0)
    ready = route.prepared(problem.workloads[0], bare, "sm_90a")
    assert not any(each.name == "library workspace" for each in ready.scratch)


def test_a_choice_of_the_library_is_content() -> None:
    first = LaunchPlan(steps=(_launch("a"), _product()))
    assert first.products == (_product(),) and len(first.launches) == 1
    other = LaunchPlan(steps=(_launch("a"), replace(_product(), heuristic=1)))
    assert first.fingerprint != other.fingerprint


def expert_gradients(given: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Return one expert's gradients in float64, of the inputs in the operator's order."""
    grad, x, gate, up, down = given.values()
    by_gate, raised, inner = x @ gate.T, x @ up.T, grad @ down
    sigmoid = 1.0 / (1.0 + np.exp(-by_gate))
    silu = by_gate * sigmoid
    d_gate = inner * raised * sigmoid * (1.0 + by_gate * (1.0 - sigmoid))
    d_up = inner * silu
    return [d_gate @ gate + d_up @ up, d_gate.T @ x, d_up.T @ x, grad.T @ (silu * raised)]


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_an_expert_of_the_library_is_right_on_the_cpu(tmp_path: Path) -> None:
    sizes = {"tokens": 37, "hidden": 136, "intermediate": 72}
    operator, workload = small_operator("moe_swiglu_backward", sizes, "bfloat16")
    route = cuda_expert_route(operator)
    assert isinstance(route, CudaExpert)
    problem = Problem(operator=operator, workloads=(workload,))
    genes = {"hidden_gate_warps": 4, "hidden_gate_vectors": 2, "hidden_gate_pdl": False}
    genome = left(route, problem, KINDS["moe_swiglu_backward"], **genes)
    rng = np.random.default_rng(3)
    drawn = {
        spec.name: bits(rng.standard_normal([sizes[a] for a in spec.shape or ()]) / 4)
        for spec in operator.inputs
    }
    outputs = {
        spec.name: np.full([sizes[a] for a in spec.shape or ()], 0x7FFF, np.uint16)
        for spec in operator.outputs
    }
    parts = [(FILE, part) for part in route.parts(workload, genome, "sm_90a")]
    run_parts(parts, {**drawn, **outputs}, tmp_path)
    right = expert_gradients({name: numbers(held) for name, held in drawn.items()})
    for found, wanted in zip(outputs.values(), right, strict=True):
        gap = np.linalg.norm(numbers(found) - wanted) / np.linalg.norm(wanted)
        assert gap < 1.5e-2, gap


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_gating_is_right_on_the_cpu(tmp_path: Path) -> None:
    sizes = {"hidden": 264, "query_heads": 6, "kv_heads": 2, "head": 64, "intermediate": 1112}
    operator, workload = small_operator(
        "decoder_block", {"batch": 1, "seq": 77, **sizes}, "bfloat16"
    )
    route = cuda_block_route(operator)
    assert isinstance(route, CudaBlock)
    problem = Problem(operator=operator, workloads=(workload,))
    genome = left(route, problem, ["wide"], wide_gate_pdl=False, wide_gate_vectors=4)
    (gating,) = (
        part
        for part in route.parts(workload, genome, "sm_90a")
        if [launch.symbol for launch in part.launches] == ["gate_rows"]
    )
    rng = np.random.default_rng(4)
    gate, raised = (bits(2.0 * rng.standard_normal((77, 1112))) for _ in range(2))
    silu = numbers(gate) / (1.0 + np.exp(-numbers(gate)))
    wanted = silu * numbers(raised)
    run_parts([(FILE, replace(gating, scratch=()))], {"gated": gate, "raised": raised}, tmp_path)
    assert np.abs(numbers(gate) - wanted).max() < 2.0**-8 * np.abs(wanted).max()
    assert np.linalg.norm(numbers(gate) - wanted) < 4e-3 * np.linalg.norm(wanted)


# In the worker


def _product(**more: Any) -> LibraryProduct:
    form: dict[str, Any] = {
        "rows": 77, "columns": 40, "depth": 64, "dtype": "bfloat16", "left": TensorArgument("x"),
        "right": TensorArgument("w"), "out": ScratchArgument("y"), "workspace_bytes": 1 << 20,
        "workspace": ScratchArgument("library workspace"),
    }  # fmt: skip
    return LibraryProduct(**{**form, **more})


def _launch(binary: str, *, overlap: bool = True) -> Launch:
    attributes = LaunchAttributes(overlap=overlap)
    return Launch(
        binary=binary, symbol="k", grid=(1, 1, 1), block=(32, 1, 1), attributes=attributes
    )


class CallingLt(FakeLt):
    """Keeps what it is launched with; fails where it is told to."""

    def __init__(self, log: list[Any], *, fails: bool = False) -> None:
        super().__init__()
        self.log, self.fails = log, fails

    def matmul(self, handle: int, desc: int, *rest: Any) -> None:
        if self.fails:
            raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED (13)")
        _, first, _, second, _, _, third, _, out, _, _, workspace, nbytes, stream = rest
        self.log.append((second, first, third, out, workspace, nbytes, stream))


class Driver:
    """Loads and launches by name."""

    CUfunction_attribute = SimpleNamespace()
    CUlaunchAttributeID = SimpleNamespace()

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def CUstream(self, ptr: int) -> int:
        return ptr

    def cuModuleLoadData(self, content: bytes) -> tuple[int, bytes]:
        return 0, content

    def cuModuleGetFunction(self, module: bytes, symbol: bytes) -> tuple[int, bytes]:
        return 0, module

    def cuLaunchKernel(self, function: bytes, *rest: Any) -> tuple[int]:
        self.log.append(function)
        return (0,)


def program(steps: Sequence[Step], lt: CallingLt) -> Program:
    names = [step.binary for step in steps if isinstance(step, Launch)]
    build = Build(
        plan=LaunchPlan(steps=tuple(steps)),
        binaries={name: name.encode() for name in names},
        kernels=tuple(KernelReport(symbol="k", registers=8) for _ in names),
        arch="sm_90a",
    )
    loader = Loader(Driver(lt.log))
    return Program(loader, build, SimpleNamespace(ptr=3), LibrarySteps(lt, 1))


PLACES = Addresses(
    tensors={"x": 1000, "w": 2000}, scratch={"y": 3000, "library workspace": 4000},
    scalars={}, maps=lambda content: 0,
)  # fmt: skip


def test_products_of_the_library_run_between_kernels() -> None:
    log: list[Any] = []
    plain = _launch("a", overlap=False)
    added = _product(added=TensorArgument("x"), workspace=None, workspace_bytes=0)
    made = program([plain, _product(), replace(plain, binary="b"), added], CallingLt(log))
    made.bound(PLACES)()
    one = (1000, 2000, 3000, 3000, 4000, 1 << 20, 3)
    assert log == [b"a", one, b"b", (1000, 2000, 1000, 3000, 0, 0, 3)]
    assert [product.attributes for product in made.products] == [HEURISTIC] * 2


def test_a_choice_that_the_library_does_not_have_is_refused() -> None:
    lt = CallingLt([])
    with pytest.raises(NoSuchChoiceError, match="has 1 choices for 77 x 40 x 64 with 1 MiB"):
        program([_launch("a", overlap=False), _product(heuristic=1)], lt)


def test_a_product_that_the_library_does_not_launch_is_refused() -> None:
    made = program([_launch("a", overlap=False), _product()], CallingLt([], fails=True))
    with pytest.raises(LaunchRefusedError, match="cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED"):
        made.bound(PLACES)()


def test_descriptors_and_choices_are_made_once_for_a_form() -> None:
    lt = CallingLt([])
    steps = LibrarySteps(lt, 1)
    first = steps.ready(_product())
    made, asked = lt._next, lt.checks
    again = steps.ready(_product(left=TensorArgument("z")))
    assert (lt._next, lt.checks) == (made, asked)
    assert again.algorithm is first.algorithm
    steps.ready(_product(added=TensorArgument("x")))
    assert lt._next > made, "another form has descriptors of its own"


def test_a_kernel_behind_a_product_may_overlap_and_a_first_one_may_not() -> None:
    plans: list[list[Step]] = [
        [_launch("a"), _launch("b")],
        [_product(), _launch("a"), _launch("b")],
    ]
    overlaps = [
        step.attributes.overlap
        for steps in plans
        for step in begun_alone(steps)
        if isinstance(step, Launch)
    ]
    assert overlaps == [False, True, True, True]


def test_a_plan_with_products_is_kept_on_the_shelf(tmp_path: Path) -> None:
    name = code_hash(b"a")
    build = Build(
        plan=LaunchPlan(steps=(_launch(name), _product(added=TensorArgument("x")))),
        binaries={name: b"a"},
        kernels=(KernelReport(symbol="k", registers=8),),
        arch="sm_90a",
    )
    shelf = BuildShelf(tmp_path)
    shelf.put("abcd", build)
    found = shelf.get("abcd")
    assert found == build and found.content == build.content


def test_numbers_that_mean_one_algorithm_are_one_content() -> None:
    """Here no algorithm needs scratch memory: the ceiling changes nothing that is launched."""
    roomy, bare = _product(), _product(workspace=None, workspace_bytes=0)
    other = _product(workspace=None, workspace_bytes=0, added=TensorArgument("x"))
    room = (Scratch(name="library workspace", nbytes=1 << 20), Scratch(name="y", nbytes=6160))
    contents = []
    for product, scratch in ((roomy, room), (bare, room[1:]), (other, room[1:])):
        plan = LaunchPlan(steps=(_launch("a"), product), scratch=scratch)
        contents.append(content_of(plan, program(plan.steps, CallingLt([])).products))
    assert contents[0] == contents[1] != contents[2]
    smaller = LaunchPlan(steps=(_launch("a"), bare), scratch=())
    assert content_of(smaller, program(smaller.steps, CallingLt([])).products) not in contents


def test_the_worker_judges_an_algorithm_once() -> None:
    judged: list[int] = []

    def evaluate(number: int, one: PlanLaunchable, limit_us: float | None) -> Outcome:
        judged.append(number)
        return Outcome(number=number, status=Status.OK, samples=(1.0,) * 5)

    bench = SimpleNamespace(job=SimpleNamespace(aliases={}), evaluate=evaluate)
    worker = _worker(bench)
    builds = [
        _build(_product()),
        _build(_product(workspace=None, workspace_bytes=0)),
        _build(_product(added=TensorArgument("x"))),
    ]
    outcomes = [
        KernelWorkbench.evaluate(worker, 0, number, PlanContender(build, anew), None)
        for number, (build, anew) in enumerate(
            [(builds[0], False), (builds[1], False), (builds[2], False), (builds[1], True)]
        )
    ]
    assert judged == [0, 2, 3]
    assert [one.repeats for one in outcomes] == [False, True, False, False]
    assert outcomes[0].content == outcomes[1].content == outcomes[3].content != ""


def test_a_choice_that_is_not_there_rejects_a_candidate() -> None:
    """The worker says so of the one candidate, and goes on."""
    worker = _worker(SimpleNamespace(job=SimpleNamespace(aliases={})))
    for choice, expected in ((0, PlanLaunchable), (3, str)):
        contender = PlanContender(_build(_product(heuristic=choice)))
        made = KernelWorkbench._launchable(worker, 0, contender)
        assert isinstance(made, expected)
        if isinstance(made, PlanLaunchable):
            assert made.properties()["library"] == (HEURISTIC,)
        else:
            assert made == NO_SUCH_CHOICE


def _worker(bench: Any) -> Any:
    """Return a worker with this bench, on a scripted driver and library."""
    log: list[Any] = []
    one: Any = SimpleNamespace(
        _bench_of=lambda workload: bench,
        _ready=lambda: SimpleNamespace(stream=SimpleNamespace(ptr=3)),
        _loader=Loader(Driver(log)),
        _memory=SimpleNamespace(place=lambda buffers: None),
        _library=LibrarySteps(CallingLt(log), 1),
        _repeats=Repeats(),
    )
    one._launchable = partial(KernelWorkbench._launchable, one)
    return one


def _build(product: LibraryProduct) -> Build:
    return Build(
        plan=LaunchPlan(steps=(_launch("a", overlap=False), product)),
        binaries={"a": b"a"},
        kernels=(KernelReport(symbol="k", registers=8),),
        arch="sm_90a",
    )
