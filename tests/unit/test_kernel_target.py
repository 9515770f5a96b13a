"""Kernel files as targets: what a declaration becomes, and one line for each thing wrong in it."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench import run_reference
from kernelarc.bench.kernelfile import KernelTarget, kernel_target, names_kernel_file
from kernelarc.genomes import (
    Allele,
    InputError,
    IntegerRange,
    Operator,
    PowerOfTwo,
    TensorSpec,
)
from kernelarc.genomes.kernels import BuildError, Clear, DeviceLimits, TensorArgument, TensorMap
from kernelarc.genomes.triton import (
    TabledConstraint,
    TritonKernel,
    device_constraints,
    made_inputs,
)

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
HOPPER = DeviceLimits.of_arch("sm_90a")

HEAD = """
import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
import kernelarc
from kernelarc import PowerOfTwo, PredicateConstraint

FACTOR = 2

@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def doubled(values):
    return FACTOR * values

def reference(x):
    return doubled(x)

def launch(x, y, n, BLOCK):
    copy[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)

GENES = [PowerOfTwo(name="BLOCK", low=64, high=1024), PowerOfTwo(name="num_warps", low=1, high=8)]
TENSORS = dict(inputs={"x": ("float32", ("n",))}, outputs={"y": ("float32", ("n",))})
"""
PLAIN = "KERNEL = kernelarc.TritonKernel(launch=launch, genes=GENES, axes={'n': 1000}, **TENSORS"
TUNED = """
def keep_large(configs, named, **others):
    return [c for c in configs if c.kwargs["BLOCK"] >= named["n"] // 8]

@triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=2)], key=["n"],
                 prune_configs_by={"early_config_prune": keep_large})
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch_tuned(x, y):
    tuned[lambda call: (triton.cdiv(x.shape[0], call["BLOCK"]),)](x, y, x.numel())
"""


def target(
    tmp_path: Path,
    tail: str,
    workloads: Sequence[Mapping[str, int]] = ({},),
    name: str = "",
) -> KernelTarget:
    path = tmp_path / "kernels.py"
    path.write_text(HEAD + tail)
    return kernel_target(f"{path}{name}", workloads)


def refused(tmp_path: Path, tail: str, **how: str) -> str:
    with pytest.raises(InputError) as caught:
        target(tmp_path, tail, **how)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path / "kernels.py"), "FILE")


@needs_triton
def test_a_declaration_becomes_a_problem_and_a_route(tmp_path: Path) -> None:
    found = target(tmp_path, PLAIN + ", reference=reference, bytes_moved='8 * n')")
    operator, (workload,) = found.problem.operator, found.problem.workloads
    assert (operator.name, dict(workload.axes)) == ("copy", {"n": 1000})
    assert operator.bytes_moved == "8 * n"
    x = np.arange(1000, dtype=np.float32)
    assert np.array_equal(run_reference(operator, {"x": x})["y"], 2 * x)
    space = found.route.space(workload, HOPPER)
    assert {g.name for g in space.genes} == {"BLOCK", "num_warps"}
    assert all(gene.strategy is not None for gene in space.genes)


@needs_triton
def test_a_genome_is_built_in_another_process_state(tmp_path: Path) -> None:
    tail = PLAIN + ", reference=reference)"
    found = target(tmp_path, tail)
    route = pickle.loads(pickle.dumps(found.route))
    (workload,) = found.problem.workloads
    space = route.space(workload, HOPPER)
    build = route.build(workload, space.genome({"BLOCK": 256, "num_warps": 4}), "sm_90a")
    (launch,) = build.plan.launches
    assert launch.grid == (4, 1, 1)
    assert launch.block == (128, 1, 1)
    assert launch.arguments[:2] == (TensorArgument("x"), TensorArgument("y"))
    assert route.identity()["kernel_file"] == found.route.content
    (tmp_path / "kernels.py").write_text(HEAD + tail + "\n# changed\n")
    fresh = pickle.loads(pickle.dumps(found.route))
    with pytest.raises(BuildError, match="has changed since"):
        _without_cache(fresh, workload, space)


def _without_cache(route: object, workload: object, space: object) -> None:
    from kernelarc.genomes.triton import _file_route

    _file_route._module.cache_clear()
    route.build(workload, space.sample(np.random.default_rng(0)), "sm_90a")  # type: ignore[attr-defined]


@needs_triton
def test_an_autotuned_kernel_brings_its_seeds_space_and_axes(tmp_path: Path) -> None:
    tail = TUNED + "T = kernelarc.TritonKernel(launch=launch_tuned, **TENSORS)"
    found = target(tmp_path, tail, [{"n": 1024}, {"n": 4096}])
    assert [dict(w.axes) for w in found.problem.workloads] == [{"n": 1024}, {"n": 4096}]
    small, large = (found.route.space(w, HOPPER) for w in found.problem.workloads)
    assert small.gene("BLOCK").values() == (64, 128, 256, 512, 1024)
    others: dict[str, Allele] = {"num_warps": 2, "num_stages": 3, "maxnreg": 0}
    assert small.violation({"BLOCK": 128, **others}) is None
    assert small.violation({"BLOCK": 64, **others}) is not None
    why = large.violation({"BLOCK": 256, **others})
    assert why is not None
    assert "early_config_prune" in why
    assert [dict(p.genome)["BLOCK"] for p in found.route.seeds(found.problem.workloads[0], HOPPER)]
    assert not found.route.seeds(found.problem.workloads[1], HOPPER)


@needs_triton
def test_without_a_reference_the_first_seed_stands_for_it(tmp_path: Path) -> None:
    tail = TUNED + "T = kernelarc.TritonKernel(launch=launch_tuned, **TENSORS)"
    reference = target(tmp_path, tail, [{"n": 1024}]).problem.operator.reference
    assert reference is not None
    assert "import torch" in reference
    assert '\\"BLOCK\\": 256' in reference or '"BLOCK": 256' in reference
    assert "neither a reference nor a seed" in refused(tmp_path, PLAIN + ")")


@needs_triton
def test_what_a_seed_leaves_out_has_its_usual_value(tmp_path: Path) -> None:
    found = target(tmp_path, PLAIN + ", reference=reference, seeds=[{'BLOCK': 128}])")
    (seed,) = found.route.seeds(found.problem.workloads[0], HOPPER)
    assert dict(seed.genome.items()) == {"BLOCK": 128, "num_warps": 4}
    # A domain may name a constant of the kernel that no configuration names.
    tail = TUNED.replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, SPLIT: tl.constexpr = 2)")
    tail += "KERNEL = kernelarc.TritonKernel(launch=launch_tuned, axes={'n': 1024}, "
    tail += "domains={'SPLIT': [1, 2]}, reference=reference, **TENSORS)"
    found = target(tmp_path, tail)
    (seed,) = found.route.seeds(found.problem.workloads[0], HOPPER)
    assert (seed.genome["BLOCK"], seed.genome["SPLIT"]) == (256, 2)


@needs_triton
def test_inputs_that_random_numbers_do_not_fit_are_made_by_the_file(tmp_path: Path) -> None:
    tail = (
        """
def values(n):
    return {"index": np.arange(n)[::-1]}

TENSORS = dict(inputs={"x": ("bfloat16", ("n",)), "index": ("int32", ("n",))},
               outputs={"y": ("bfloat16", ("n",))})
def launch(x, index, y, n, BLOCK):
    copy[(1,)](x, y, n, BLOCK)
def reference(x, index):
    return x[index]
"""
        + PLAIN
    )
    found = target(tmp_path, tail + ", reference=reference, values=values)")
    (workload,) = found.problem.workloads
    assert found.problem.operator.custom_inputs == "make"
    assert {fill["type"] for fill in workload.inputs.values()} == {"custom"}
    made = made_inputs(str(tmp_path / "kernels.py"), "KERNEL", {"n": 5})
    assert made["index"].tolist() == [4, 3, 2, 1, 0]
    assert (made["index"].dtype, made["x"].dtype) == (np.int32, np.uint16)


@needs_triton
def test_an_axis_without_a_value_is_asked_for(tmp_path: Path) -> None:
    tail = TUNED + "T = kernelarc.TritonKernel(launch=launch_tuned, **TENSORS)"
    assert "axis 'n' has no value; give --set n=N" in refused(tmp_path, tail)


@needs_triton
@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("", "FILE: kernel 'copy' (line 12) needs a declaration of its tensors and launch"),
        (
            "def launch(x, out, n, BLOCK): pass\n" + PLAIN + ")",
            "KERNEL: launch function 'launch': parameter 'out' is no tensor, axis or gene (known: ",
        ),
        (
            "def launch(x, n, BLOCK): pass\n" + PLAIN + ")",
            "launch function 'launch' takes no parameter 'y', which is an output",
        ),
        (
            "def launch(x, y, n): copy[(1,)](x, y, n)\nKERNEL = kernelarc.TritonKernel("
            "launch=launch, genes=[PowerOfTwo(name='TILE', low=1, high=2)], axes={'n': 8}, "
            "**TENSORS)",
            "kernel 'copy' gets no 'BLOCK'",
        ),
        (
            "def launch(x, y, n, BLOCK): copy[(0,)](x, y, n, BLOCK)\n" + PLAIN + ")",
            "TypeError: the grid (0,) is not one to three whole numbers",
        ),
        (
            "def launch(x, y, n, BLOCK): x.missing()\n" + PLAIN + ")",
            "launch: AttributeError: 'StandIn' object has no attribute 'missing'",
        ),
        ("def launch(x, y): pass\n" + PLAIN + ")", "launch: it launches no kernel"),
        (PLAIN + ", reference=lambda x: x)", "the reference must be a top-level function"),
        (
            "def two(x, y): return x\n" + PLAIN + ", reference=two)",
            "the reference takes 2 parameters, and there are 1 inputs: x",
        ),
        (PLAIN + ", constraints=['TILE > 1'])", "unknown|TILE"),
        (
            "KERNEL = kernelarc.TritonKernel(launch=launch, axes={'n': 8}, **TENSORS)",
            "there are no genes: neither genes nor an autotuner says what BLOCK can be",
        ),
        (
            PLAIN + ")\nOTHER = " + PLAIN.partition("= ")[2] + ")",
            "has 2 declarations: KERNEL, OTHER",
        ),
        (
            PLAIN.replace("GENES", "[*GENES, PowerOfTwo(name='BLOKC', low=1, high=2)]") + ")",
            "gene 'BLOKC' changes nothing: it is no parameter of launch function 'launch' or of "
            "kernel 'copy', and no option of the compiler (did you mean 'BLOCK'?)",
        ),
        (
            PLAIN + ", seeds=[{'BLOCK': 96, 'num_warps': 4}])",
            "KERNEL: seed 1: gene 'BLOCK' has no allele 96",
        ),
        (
            PLAIN + ", seeds=[{'BLOCK': 64}, {'BLOKC': 64, 'num_warps': 4}])",
            "KERNEL: seed 2: 'BLOKC' is no gene (did you mean 'BLOCK'?)",
        ),
        (PLAIN + ", seeds=[{'num_warps': 4}])", "KERNEL: seed 1: gene 'BLOCK'"),
        (PLAIN + ", domains={'BLOCK': [64]})", "KERNEL: domains change genes that are made of"),
        (PLAIN + ", reference=3)", "FILE, line 27: TritonKernel: reference is 3, not a function"),
        (
            PLAIN + ", seeds=[{'BLOCK': 64}], constraints=['BLOCK > 100'])",
            "KERNEL: seed 1: constraint 'BLOCK > 100'|KERNEL: seed 1: .*BLOCK > 100",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_declaration_is_one_line(
    tmp_path: Path, tail: str, message: str
) -> None:
    found = refused(tmp_path, tail)
    assert message in found or re.search(message, found), found


@needs_triton
def test_a_python_constraint_becomes_a_table(tmp_path: Path) -> None:
    odd = ", constraints=[PredicateConstraint(lambda BLOCK, num_warps: BLOCK >= 64 * num_warps)]"
    found = target(tmp_path, PLAIN + odd + ", reference=reference)")
    space = found.route.space(found.problem.workloads[0], HOPPER)
    assert space.size().legal == 5 + 4 + 3 + 2
    assert space.contains(space.genome({"BLOCK": 512, "num_warps": 8}))


@needs_triton
def test_descriptors_and_zeroing_are_recorded(tmp_path: Path) -> None:
    tail = """
@triton.jit
def moved(x, y, BLOCK: tl.constexpr):
    at = [tl.program_id(0) * BLOCK, 0]
    y.store(at, x.load(at))

def launch(a, b, BLOCK):
    b.zero_()
    tile = [BLOCK, 64]
    moved[(a.shape[0] // BLOCK,)](
        TensorDescriptor.from_tensor(a, tile), TensorDescriptor.from_tensor(b, tile), BLOCK=BLOCK
    )

MOVED = kernelarc.TritonKernel(
    launch=launch, kernel=moved, genes=GENES[:1], axes={"M": 256}, seeds=[{"BLOCK": 64}],
    inputs={"a": ("bfloat16", ("M", 64))}, outputs={"b": ("bfloat16", ("M", 64))},
)
"""
    found = target(tmp_path, tail)
    (workload,) = found.problem.workloads
    space = found.route.space(workload, HOPPER)
    build = found.route.build(workload, space.genome({"BLOCK": 64}), "sm_90a")
    clear, launch = build.plan.steps
    assert clear == Clear(target=TensorArgument("b"), nbytes=256 * 64 * 2)
    maps = [a for a in launch.arguments if isinstance(a, TensorMap)]  # type: ignore[union-attr]
    assert [m.extents for m in maps] == [(64, 256), (64, 256)]
    assert build.kernels[0].instructions["tma"] >= 2


@needs_triton
def test_what_an_autotuner_resets_is_zeroed_once_before_each_launch(tmp_path: Path) -> None:
    tail = """
@triton.autotune(configs=[triton.Config({"BLOCK": 256})], key=["n"], reset_to_zero=["y"])
@triton.jit
def adds(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch(x, y, n):
    y.zero_()
    for _ in range(2):
        adds[lambda call: (triton.cdiv(n, call["BLOCK"]),)](x, y, n)

T = kernelarc.TritonKernel(launch=launch, kernel=adds, axes={"n": 1000}, **TENSORS)
"""
    found = target(tmp_path, tail)
    (workload,) = found.problem.workloads
    first = found.route.seeds(workload, HOPPER)[0].genome
    steps = found.route.build(workload, first, "sm_90a").plan.steps
    zero = Clear(target=TensorArgument("y"), nbytes=4000)
    assert [step if isinstance(step, Clear) else "launch" for step in steps] == [
        zero,
        "launch",
        zero,
        "launch",
    ]


@needs_triton
@pytest.mark.parametrize("name", ["triton_kernel.py", "triton_autotuned.py"])
def test_the_examples_are_targets_whose_first_genome_compiles(name: str) -> None:
    found = kernel_target(str(EXAMPLES / name))
    (workload,) = found.problem.workloads
    first = found.route.seeds(workload, HOPPER)[0].genome
    build = found.route.build(workload, first, "sm_90a")
    assert found.route.fault(build, HOPPER) is None
    small = {spec.name: np.ones((3, 4)) for spec in found.problem.operator.inputs}
    assert run_reference(found.problem.operator, small)


@needs_triton
def test_a_cap_that_no_instruction_fits_under_is_a_class_of_its_own() -> None:
    found = kernel_target(str(EXAMPLES / "triton_autotuned.py"))
    (workload,) = found.problem.workloads
    alleles = {**found.route.first[0], "BLOCK_N": 128, "maxnreg": 64}
    genome = found.route.space(workload, HOPPER).genome(alleles)
    with pytest.raises(BuildError, match="Insufficient registers") as caught:
        found.route.build(workload, genome, "sm_90a")
    assert caught.value.failure == "too many registers"


def test_a_device_leaves_out_what_it_surely_cannot_hold() -> None:
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages", "maxnreg")
    genes = [IntegerRange(name=name, low=0, high=1 << 20) for name in names]
    job = Operator(
        name="product",
        axes={},
        inputs=(TensorSpec(name="a", shape=("8",), dtype="bfloat16"),),
        outputs=(TensorSpec(name="c", shape=("8",), dtype="float32"),),
    )

    def fits(*values: int) -> bool:
        alleles: dict[str, Allele] = dict(zip(names, values, strict=True))
        return all(c.holds(alleles) for c in device_constraints(genes, job, HOPPER))

    assert fits(128, 256, 64, 8, 3, 0)
    assert fits(128, 256, 64, 8, 3, 128)
    assert not fits(128, 256, 64, 64, 3, 0)  # 2,048 threads
    assert not fits(256, 256, 64, 4, 3, 0)  # 512 registers of a thread for the tile alone
    assert not fits(128, 256, 64, 8, 3, 96)  # 128 of them under a cap of 96
    assert not fits(128, 256, 128, 8, 4, 0)  # 288 KiB of operands
    assert device_constraints(genes[:1], job, HOPPER) == ()


def test_what_names_a_kernel_file() -> None:
    assert names_kernel_file("a/b.py")
    assert names_kernel_file("b.py:kernel")
    assert not names_kernel_file("gemm")
    assert not names_kernel_file("space.json")


def test_a_declaration_checks_what_it_is_given() -> None:
    tensors = {"x": ("float32", ("n",))}
    for wrong, message in (
        ({"inputs": {"x": ("float31", ("n",))}}, "did you mean 'float32'"),
        ({"inputs": {"x": "float32"}}, "must be .dtype, shape."),
        ({"outputs": {}}, "at least one output"),
        ({"axes": {"n": 0}}, "axis 'n' is 0"),
        ({"in_place": {"y": "z"}}, "an output and an input"),
        ({"inputs": {"x": ("float32", ("m",))}}, "tensor 'x': there is no axis 'm'"),
        ({"outputs": {"y": ("float32", ("n", "k"))}}, "tensor 'y': there is no axis 'k'"),
        ({"inputs": {"x": ("float32", ("n", 3.5))}}, "extent 3.5 is neither an axis"),
        ({"inputs": {"x": ("float32", ("n", 0))}}, "extent 0 is neither an axis"),
        ({"inputs": {"x": ("float32", {"n": 1})}}, "must be .dtype, shape."),
        ({"reference": 3}, "reference is 3, not a function"),
        ({"values": "random"}, "values is 'random', not a function"),
        ({"genes": ["BLOCK"]}, "genes holds 'BLOCK', which is no gene"),
        ({"seeds": [("a", 1)]}, "seed 1 is .'a', 1., not alleles by gene"),
        ({"tolerance": 0.1}, "tolerance is 0.1, not a Tolerance"),
    ):
        genes = [IntegerRange(name="a", low=0, high=1)]
        given: dict[str, object] = {"inputs": tensors, "outputs": tensors, "genes": genes}
        with pytest.raises(InputError, match=message):
            TritonKernel(launch=print, **{**given, "axes": {"n": 8}, **wrong})  # type: ignore[arg-type]


def test_a_table_of_alleles_travels_and_knows_types() -> None:
    table = TabledConstraint(("a", "b"), [(1, True), (2, False)], "both")
    again = pickle.loads(pickle.dumps(table))
    for each in (table, again):
        assert each.holds({"a": 1, "b": True})
        assert not each.holds({"a": 1, "b": 1})
        assert not each.holds({"a": 2, "b": True})
    assert PowerOfTwo(name="a", low=1, high=2).contains(2)
