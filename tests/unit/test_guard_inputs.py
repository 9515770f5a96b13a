"""Rows 5 and 6: inputs that are fresh, unfriendly, ragged, or exact on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench import (
    EXACT_VARIANTS,
    Value,
    Variant,
    compare,
    depth_of,
    exact_below,
    make_inputs,
    present_inputs,
    ragged_workload,
    root_mean_square,
    run_reference,
    shape_of,
    sums_exactly,
)
from kernelarc.genomes import (
    Axis,
    InputError,
    MissingPartError,
    Operator,
    TensorSpec,
    Workload,
    builtin_operators,
    builtin_problem,
)

GEMM = builtin_operators()["gemm"]
NORM = builtin_operators()["add_rmsnorm"]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def gemm(**axes: int) -> Workload:
    return builtin_problem("gemm", {"M": 24, "N": 40, "K": 56} | axes).workloads[0]


def array(value: Value) -> NDArray[Any]:
    assert isinstance(value, np.ndarray)
    return value


def unary(reference: str | None, *, dtype: str = "float32") -> Operator:
    return Operator(
        name="one",
        axes={"n": Axis(name="n", kind="var")},
        inputs=(TensorSpec(name="x", shape=("n",), dtype=dtype),),
        outputs=(TensorSpec(name="y", shape=("n",), dtype=dtype),),
        reference=reference,
    )


def bound(operator: Operator) -> Workload:
    return Workload(operator=operator.fingerprint, axes={"n": 5})


def test_inputs_are_fresh_each_time_and_equal_for_equal_streams() -> None:
    stream = rng()
    first, second = make_inputs(GEMM, gemm(), stream), make_inputs(GEMM, gemm(), stream)
    again = make_inputs(GEMM, gemm(), rng())
    assert not np.array_equal(array(first["a"]), array(second["a"]))
    assert np.array_equal(array(first["b"]), array(again["b"]))
    assert array(first["a"]).shape == (24, 56)
    assert array(first["a"]).dtype == np.float32


def test_variants_are_what_they_are_called() -> None:
    plain = array(make_inputs(GEMM, gemm(), rng())["a"])
    made = {v: array(make_inputs(GEMM, gemm(), rng(), v)["a"]) for v in Variant}
    assert np.allclose(made[Variant.TRIPLED], 3 * plain)
    assert np.allclose(made[Variant.HUNDREDTH], 0.01 * plain)
    assert np.array_equal(made[Variant.NEGATED], -plain)
    tails = np.abs(made[Variant.HEAVY_TAILED])
    assert np.max(tails) > 10 * np.max(np.abs(plain))
    assert np.all(np.isfinite(tails))
    assert np.array_equal(made[Variant.ONES], np.ones_like(plain))
    assert set(np.unique(made[Variant.ZERO_ONE])) == {0.0, 1.0}


def test_parameters_are_random_and_not_the_identity() -> None:
    job = builtin_problem("add_rmsnorm", {"rows": 4, "hidden": 64}).workloads[0]
    weight = array(make_inputs(NORM, job, rng())["norm_weight"])
    assert np.std(weight.astype(np.float64)) > 0.5


def test_an_optional_input_takes_part_only_where_asked() -> None:
    without = gemm()
    with_it = builtin_problem("gemm", {"M": 8, "N": 8, "K": 8}, {"residual": True}).workloads[0]
    assert [spec.name for spec in present_inputs(GEMM, without)] == ["a", "b"]
    inputs = make_inputs(GEMM, with_it, rng())
    assert list(inputs) == ["a", "b", "residual"]
    expected = array(inputs["a"]).astype(float) @ array(inputs["b"]).astype(float)
    found = run_reference(GEMM, inputs)["c"]
    assert np.allclose(found, expected + array(inputs["residual"]))


def test_ragged_axes_differ_and_are_no_multiples() -> None:
    ragged = ragged_workload(GEMM, gemm(), rng(3))
    extents = list(ragged.axes.values())
    assert sorted(ragged.axes) == ["K", "M", "N"]
    assert len(set(extents)) == 3
    assert all(extent % 2 and extent > 16 for extent in extents)
    assert ragged.tolerance == gemm().tolerance


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("name", ["gemm", "add_rmsnorm"])
def test_an_honest_float32_result_passes_on_every_variant(name: str, variant: Variant) -> None:
    """The honest twin of row 6: no variant may refuse NumPy's own float32 arithmetic."""
    operator = builtin_operators()[name]
    job = ragged_workload(operator, builtin_problem(name).workloads[0], rng(1))
    usual = run_reference(operator, make_inputs(operator, job, rng(1)))
    inputs = make_inputs(operator, job, rng(2), variant)
    expected = run_reference(operator, inputs)
    scope: dict[str, object] = {}
    exec(operator.reference or "", scope)
    result = scope["run"](*inputs.values())  # type: ignore[operator]
    outputs = result if isinstance(result, tuple) else (result,)
    for spec, output in zip(operator.outputs, outputs, strict=True):
        found = compare(
            output,
            expected[spec.name],
            job.tolerance,
            dtype=spec.dtype,
            depth=depth_of(operator, job),
            usual_rms=root_mean_square(usual[spec.name]),
        )
        assert found.ok, found.message


def test_only_sums_of_products_have_exact_canaries() -> None:
    assert sums_exactly(GEMM)
    assert not sums_exactly(NORM)
    for variant in EXACT_VARIANTS:
        inputs = make_inputs(GEMM, gemm(), rng(), variant)
        expected = run_reference(GEMM, inputs)["c"]
        assert np.array_equal(expected, np.rint(expected))
        assert np.max(expected) < exact_below("float32") == 2.0**24
        assert np.array_equal(array(inputs["a"]) @ array(inputs["b"]), expected)


def test_depth_is_what_is_summed_over() -> None:
    assert depth_of(GEMM, gemm(K=77)) == 77
    job = builtin_problem("add_rmsnorm", {"rows": 4, "hidden": 64}).workloads[0]
    assert depth_of(NORM, job) == 64


def test_integers_bools_scalars_and_shapes() -> None:
    spec = unary(None, dtype="int32")
    values = array(make_inputs(spec, bound(spec), rng())["x"])
    assert values.dtype == np.int32
    scalar = replace(spec, inputs=(TensorSpec(name="x", shape=None, dtype="float32"),))
    job = replace(bound(scalar), inputs={"x": {"type": "scalar", "value": 0.5}})
    assert make_inputs(scalar, job, rng()) == {"x": 0.5}
    assert isinstance(make_inputs(scalar, bound(scalar), rng())["x"], float)
    with pytest.raises(InputError, match="no axis 'm'"):
        shape_of(TensorSpec(name="x", shape=("m", "3"), dtype="int8"), {"n": 5})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "safetensors", "path": "x"}, "of type 'safetensors'"),
        ({"type": "scalar"}, "needs a number"),
    ],
)
def test_inputs_that_cannot_be_made_are_named(rule: dict[str, str], message: str) -> None:
    spec = unary(None)
    with pytest.raises(InputError, match=message):
        make_inputs(spec, replace(bound(spec), inputs={"x": rule}), rng())


def test_the_reference_works_on_its_own_copy_in_float64() -> None:
    """Row 12: even a reference that writes into its inputs changes nothing for others."""
    rude = unary("def run(x):\n    x += 1\n    return x\n")
    inputs = make_inputs(rude, bound(rude), rng())
    before = array(inputs["x"]).copy()
    found = run_reference(rude, inputs)["y"]
    assert np.array_equal(array(inputs["x"]), before)
    assert found.dtype == np.float64
    assert np.array_equal(found, before.astype(np.float64) + 1)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (None, InputError, "no reference"),
        ("def run(x) return x", InputError, "no Python: .* line 1"),
        ("x = 1", InputError, "no top-level function 'run'"),
        ("def run(x, y): return x", InputError, "takes 2 parameters"),
        ("def run(x): return x, x", InputError, "gives 2 outputs, not 1"),
        ("def run(x): return {'z': x}", InputError, "gives no 'y'"),
        ("def run(x): return x @ x[None]", InputError, "fails: ValueError"),
        ("1 / 0", InputError, "fails: ZeroDivisionError"),
        ("import no_such_package_at_all", MissingPartError, "needs no_such_package_at_all"),
        ("def run(x):\n import no_such_one", MissingPartError, "needs no_such_one"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said(
    source: str | None, error: type[Exception], message: str
) -> None:
    operator = unary(source)
    with pytest.raises(error, match=message) as found:
        run_reference(operator, make_inputs(operator, bound(operator), rng()))
    assert "\n" not in str(found.value)
