"""Fresh values with exact answers, the seal over inputs, the comparison by rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench import present_inputs, run_reference, shape_of
from kernelarc.bench.cpu._algebra import value_source
from kernelarc.bench.cpu._blame import clock_fault
from kernelarc.bench.cpu._build import failure_of
from kernelarc.bench.cpu._references import WholeReference
from kernelarc.bench.cpu._screen import compare_by_rows
from kernelarc.bench.cpu._seal import Seal
from kernelarc.genomes import Operator, Problem, Tolerance, axis_values, builtin_problem


def problems() -> list[Problem]:
    return [
        builtin_problem("gemm", {"M": 37, "N": 600, "K": 29}),
        builtin_problem("gemm", {"M": 700, "N": 23, "K": 17}, {"residual": True}),
        builtin_problem("add_rmsnorm", {"rows": 550, "hidden": 41}),
    ]


def arrays_of(problem: Problem) -> dict[str, NDArray[np.generic]]:
    operator, workload = problem.operator, problem.workloads[0]
    axes = axis_values(operator, workload)
    specs = present_inputs(operator, workload)
    return {spec.name: np.zeros(shape_of(spec, axes), dtype=np.float32) for spec in specs}


def answers(
    operator: Operator, arrays: Mapping[str, NDArray[np.generic]]
) -> dict[str, NDArray[np.generic]]:
    return dict(run_reference(operator, arrays))


@pytest.mark.parametrize("problem", problems(), ids=lambda p: p.workloads[0].label)
def test_the_answer_is_what_the_reference_gives_on_the_same_values(problem: Problem) -> None:
    rng = np.random.default_rng(11)
    source = value_source(problem.operator, problem.workloads[0])
    arrays, seen = arrays_of(problem), []
    reference = source.fill(arrays, rng)
    for _ in range(3):
        exact = answers(problem.operator, arrays)
        for name, whole in exact.items():
            got = np.concatenate(
                [reference.rows(name, i, i + 100) for i in range(0, len(whole), 100)]
            )
            assert np.allclose(got, whole, rtol=1e-12, atol=1e-12)
        seen.append(exact)
        reference = source.stir(arrays, reference, rng)
    for name in seen[0]:
        assert not np.array_equal(seen[0][name], seen[1][name]), "stirring changes the outputs"


def test_an_operator_of_ones_own_has_values_too() -> None:
    problem = builtin_problem("gemm", {"M": 5, "N": 6, "K": 7})
    own = Operator(
        name="own",
        axes=problem.operator.axes,
        inputs=problem.operator.inputs,
        outputs=problem.operator.outputs,
        reference="def run(a, b, residual=None):\n    return 2 * (a @ b)\n",
    )
    source = value_source(own, problem.workloads[0])
    arrays = arrays_of(problem)
    reference = source.fill(arrays, np.random.default_rng(0))
    assert np.allclose(
        reference.rows("c", 0, 5), 2 * (arrays["a"].astype(float) @ arrays["b"].astype(float))
    )


@pytest.mark.parametrize("size", [1, 3, 8, 8193, 70_000])
def test_a_seal_sees_one_changed_bit_anywhere(size: int) -> None:
    rng = np.random.default_rng(size)
    array = rng.standard_normal(size).astype(np.float32)
    for place in {0, size // 2, size - 1}:
        seal = Seal({"x": array}, rng)
        assert seal.broken() == ()
        array.view(np.uint32)[place] ^= 1 << 31
        assert seal.broken() == ("x",)


def test_a_seal_sees_changes_that_cancel_in_a_plain_sum() -> None:
    rng = np.random.default_rng(5)
    array = rng.standard_normal(4096).astype(np.float32)
    seal = Seal({"x": array}, rng)
    array *= -1
    assert seal.broken() == ("x",)


def compared(output: NDArray[np.generic], exact: NDArray[np.generic]) -> tuple[bool, str | None]:
    comparison = compare_by_rows(
        output,
        WholeReference({"y": exact}),
        Tolerance(max_atol=1e-5, max_rtol=1e-5),
        dtype="float32",
        depth=8,
        name="y",
    )
    return comparison.ok, comparison.failure


def test_comparison_by_rows_agrees_with_the_whole_one() -> None:
    rng = np.random.default_rng(2)
    exact = rng.standard_normal((300, 257))
    right = exact.astype(np.float32)
    assert compared(right, exact) == (True, None)
    for place in ((0, 0), (150, 100), (299, 256)):
        wrong = right.copy()
        wrong[place] += 1.0
        assert compared(wrong, exact) == (False, "error above the cap")
        wrong[place] = np.nan
        assert compared(wrong, exact) == (False, "output not finite")
    assert compared(np.zeros_like(right), exact) == (False, "output all zero")
    assert compared(right.astype(np.float64), exact) == (False, "wrong dtype")
    assert compared(right[:, :-1], exact) == (False, "wrong shape")
    assert not compared(right.astype(np.float16).astype(np.float32), exact)[0]


def test_a_clock_that_disagrees_is_seen_and_an_honest_one_passes() -> None:
    assert clock_fault(0.2, 0.21) is None
    assert clock_fault(0.001, 0.02) is None
    assert clock_fault(0.2, 1.0) is not None
    assert clock_fault(float("nan"), 1.0) is not None


def test_a_compilers_end_has_a_class() -> None:
    assert failure_of(0, False, "", 1.0) is None
    assert failure_of(1, False, "k.c:3: error: no such thing\nmore", 1.0) == (
        "does not compile",
        "k.c:3: error: no such thing",
    )
    cases = {
        "compiler timed out": (0, True, ""),
        "compiler crashed": (1, False, "internal compiler error: in foo, at bar.cc"),
        "compiler out of memory": (1, False, "cc1: out of memory allocating 65536 bytes"),
    }
    for failure, (returncode, timed_out, said) in cases.items():
        found = failure_of(returncode, timed_out, said, 1.0)
        assert found is not None and found[0] == failure
    killed = failure_of(-11, False, "", 1.0)
    assert killed is not None and killed[0] == "compiler crashed"
