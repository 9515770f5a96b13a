"""Which operators are matrix products, and what a library is then given."""

from __future__ import annotations

import numpy as np
import pytest

from kernelarc.bench.cuda._arena import Needs
from kernelarc.genomes import (
    Axis,
    InputError,
    MatmulForm,
    MatmulJob,
    Operator,
    TensorSpec,
    Workload,
    matmul_job,
    matmul_operator,
    matmul_problem,
    workspace_levels_mib,
)


def job_of(form: MatmulForm, **axes: int) -> MatmulJob:
    problem = matmul_problem(matmul_operator(form), [axes])
    job = matmul_job(problem.operator, problem.workloads[0])
    assert job is not None
    return job


@pytest.mark.parametrize("layout", ["TN", "NN", "NT"])
@pytest.mark.parametrize("batched", [False, True])
def test_layout_is_read_back(layout: str, batched: bool) -> None:
    form = MatmulForm(layout=layout, batched=batched, residual=True, bias=True)
    axes = {"M": 48, "N": 32, "K": 16} | ({"B": 3} if batched else {})
    job = job_of(form, **axes)
    assert (job.layout, job.m, job.n, job.k) == (layout, 48, 32, 16)
    assert job.batch == (3 if batched else 1)
    assert job.residual and job.bias and not job.in_place


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_the_reference_is_the_product(activation: str) -> None:
    form = MatmulForm(dtype="float32", layout="NN", bias=True, activation=activation)
    scope: dict[str, object] = {}
    exec(form.reference, scope)  # our own text
    rng = np.random.default_rng(0)
    a, b, bias = rng.normal(size=(4, 3)), rng.normal(size=(3, 5)), rng.normal(size=5)
    out = scope["run"](a, b, bias)  # type: ignore[operator]
    x = a @ b + bias
    expected = {
        "none": x,
        "relu": np.maximum(x, 0),
        "gelu": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    }[activation]
    np.testing.assert_allclose(out, expected)


def test_leading_axes_are_rows() -> None:
    operator = Operator(
        name="projection",
        axes={
            "batch": Axis(name="batch", kind="var"),
            "seq": Axis(name="seq", kind="var"),
            "hidden": Axis(name="hidden", kind="const", value=2560),
            "out": Axis(name="out", kind="const", value=2560),
        },
        inputs=(
            TensorSpec(name="x", shape=("batch", "seq", "hidden"), dtype="bfloat16"),
            TensorSpec(name="w", shape=("out", "hidden"), dtype="bfloat16"),
            TensorSpec(name="r", shape=("batch", "seq", "out"), dtype="bfloat16"),
        ),
        outputs=(TensorSpec(name="y", shape=("batch", "seq", "out"), dtype="bfloat16"),),
        op_type="matmul",
    )
    workload = Workload(operator=operator.fingerprint, axes={"batch": 8, "seq": 997})
    job = matmul_job(operator, workload)
    assert job is not None
    assert (job.m, job.n, job.k, job.batch, job.layout) == (7976, 2560, 2560, 1, "TN")


def test_an_optional_residual_counts_only_with_its_option() -> None:
    operator = Operator(
        name="gemm",
        axes={name: Axis(name=name, kind="var") for name in "MNK"},
        inputs=(
            TensorSpec(name="a", shape=("M", "K"), dtype="float32"),
            TensorSpec(name="b", shape=("K", "N"), dtype="float32"),
            TensorSpec(name="residual", shape=("M", "N"), dtype="float32", optional=True),
        ),
        outputs=(TensorSpec(name="c", shape=("M", "N"), dtype="float32"),),
        op_type="gemm",
    )
    axes = {"M": 8, "N": 8, "K": 8}
    for options, expected in (({}, False), ({"residual": True}, True)):
        workload = Workload(operator=operator.fingerprint, axes=axes, options=options)
        job = matmul_job(operator, workload)
        assert job is not None and job.residual is expected


def test_what_is_no_product_is_none() -> None:
    operator = matmul_operator(MatmulForm())
    other = Operator(
        name="norm", axes=operator.axes, inputs=operator.inputs, outputs=operator.outputs
    )
    assert matmul_job(other, Workload(operator=other.fingerprint)) is None


@pytest.mark.parametrize(
    ("form", "axes", "options", "message"),
    [
        (MatmulForm(), {"M": 8, "N": 8}, {}, "axis 'K' has no value"),
        (MatmulForm(dtype="float8_e4m3fn"), {"M": 8, "N": 16, "K": 24}, {}, "multiples of 16"),
        (
            MatmulForm(dtype="float8_e4m3fn", layout="NN"),
            {"M": 8, "N": 16, "K": 32},
            {},
            "contiguous along",
        ),
        (MatmulForm(), {"M": 8, "N": 8, "K": 8}, {"workspace_mib": -1}, "from 0 to 4096"),
        (MatmulForm(), {"M": 8, "N": 8, "K": 8}, {"workspace_mib": True}, "whole number"),
        (MatmulForm(), {"M": 8, "N": 8, "K": 8}, {"tf32": True}, "tf32 is for float32"),
    ],
)
def test_bad_input_says_what_stands_in_the_way(
    form: MatmulForm, axes: dict[str, int], options: dict[str, int], message: str
) -> None:
    operator = matmul_operator(form)
    workload = Workload(operator=operator.fingerprint, axes=axes, options=options)
    with pytest.raises(InputError, match=message):
        matmul_job(operator, workload)


@pytest.mark.parametrize("wrong", [{"dtype": "bf16"}, {"layout": "TT"}, {"activation": "silu"}])
def test_an_unknown_form_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError, match="matmul has no form"):
        MatmulForm(**wrong)  # type: ignore[arg-type]


def test_memory_is_demanded_before_work() -> None:
    job = job_of(MatmulForm(), M=8192, N=8192, K=8192)
    needs = Needs.of(job, 60 << 20)
    assert needs.count == 2 and not needs.swept
    with pytest.raises(InputError, match=r"needs \d+\.\d GiB of device memory, 1\.0 are free"):
        needs.demand(job, 1 << 30)
    small = Needs.of(job_of(MatmulForm(), M=64, N=64, K=64), 60 << 20)
    assert small.swept and small.count <= 64


def test_workspace_levels_end_at_the_ceiling() -> None:
    assert workspace_levels_mib(64 << 20) == (0, 64)
    assert workspace_levels_mib(0) == (0,)
