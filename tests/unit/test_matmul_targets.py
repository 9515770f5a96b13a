"""Matrix products as targets: by options, by a built-in operator, by a definition's reference."""

from __future__ import annotations

import pytest

from kernelarc.genomes import (
    Axis,
    InputError,
    MatmulForm,
    Operator,
    TensorSpec,
    Workload,
    builtin_problem,
    job_options,
    matmul_job,
    matmul_operator,
    matmul_roles,
    matmul_target,
    packaged_problem,
    recognised_matmul,
    with_job_options,
)


def test_options_make_form_and_job() -> None:
    options: dict[str, bool | int | str] = {
        "dtype": "fp16",
        "layout": "NT",
        "residual": True,
        "bias": True,
        "epilogue": "relu",
        "workspace_mib": 8,
    }
    problem = matmul_target([{"M": 3, "N": 5, "K": 7}], options)
    job = matmul_job(problem.operator, problem.workloads[0])
    assert job is not None
    assert (job.m, job.n, job.k, job.dtype, job.layout) == (3, 5, 7, "float16", "NT")
    assert job.residual and job.bias and job.in_place and job.activation == "relu"
    assert job.workspace_bytes == 8 << 20


def test_workloads_are_many_and_a_batch_is_there_where_one_sets_it() -> None:
    problem = matmul_target([{"M": 256}, {"M": 512, "B": 3}], {"in_place": False})
    jobs = [matmul_job(problem.operator, w) for w in problem.workloads]
    assert [(j.m, j.batch, j.in_place) for j in jobs if j] == [(256, 1, False), (512, 3, False)]
    assert "B" not in matmul_target([], {}).workloads[0].axes


def test_tf32_is_float32_with_a_tolerance_of_its_own() -> None:
    problem = matmul_target([], {"dtype": "tf32"})
    job = matmul_job(problem.operator, problem.workloads[0])
    assert job is not None and job.dtype == "float32" and job.tf32
    plain = matmul_target([], {"dtype": "fp32"})
    assert problem.workloads[0].tolerance.max_rtol > plain.workloads[0].tolerance.max_rtol


@pytest.mark.parametrize(
    ("axes", "options", "text"),
    [
        ({"m": 4}, {}, "no axis 'm'"),
        ({"M": 0}, {}, "M"),
        ({}, {"dtyp": "bf16"}, "no option 'dtyp' (did you mean 'dtype'"),
        ({}, {"dtype": "bf61"}, "'bf61' (did you mean 'bf16'"),
        ({}, {"layout": "TT"}, "option layout"),
        ({}, {"workspace_mib": -1}, "0 to 4096"),
        ({}, {"workspace_mib": True}, "0 to 4096"),
        ({}, {"residual": 1}, "true or false"),
        ({}, {"cache": "luke"}, "option cache"),
        ({}, {"tf32": True}, "option tf32 is for float32 factors, not bfloat16"),
        ({}, {"tf32": True, "dtype": "fp8"}, "option tf32 is for float32 factors"),
        ({}, {"fast_accum": True}, "option fast_accum is for float8 factors, not bfloat16"),
        ({}, {"in_place": True}, "give residual=true"),
    ],
)
def test_what_is_refused(axes: dict[str, int], options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError) as refused:
        matmul_target([axes], options)  # type: ignore[arg-type]
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_job_options_go_with_any_product() -> None:
    given = {"residual": True, "tf32": True, "workspace_mib": 4, "in_place": False}
    assert set(job_options(given)) == {"tf32", "workspace_mib", "in_place"}
    problem = with_job_options(builtin_problem("gemm", {"M": 64}), job_options(given))
    job = matmul_job(problem.operator, problem.workloads[0])
    assert job is not None and job.tf32 and job.workspace_bytes == 4 << 20
    assert "in_place" not in problem.workloads[0].options
    with pytest.raises(InputError, match="no option 'residal'"):
        with_job_options(problem, {"residal": True})


# Definitions


def definition(reference: str, *, x: tuple[str, ...] = ("B", "S", "K"), op: str = "") -> Operator:
    axes = {n: Axis(name=n, kind="var") for n in ("B", "S")} | {
        n: Axis(name=n, kind="const", value=2560) for n in ("K", "N")
    }
    out = (*x[:-1], "N")
    tensors = {"x": x, "w": ("N", "K"), "r": out}
    return Operator(
        name="projection",
        axes=axes,
        inputs=tuple(TensorSpec(name=n, shape=s, dtype="bfloat16") for n, s in tensors.items()),
        outputs=(TensorSpec(name="y", shape=out, dtype="bfloat16"),),
        reference=reference,
        op_type=op,
    )


@pytest.mark.parametrize(
    "body",
    [
        "return torch.matmul(x, w.T) + r",
        "return r + x @ w.t()",
        "y = torch.nn.functional.linear(x, w)\n    return torch.add(y, r)",
        "return F.linear(x, w) + r",
        "y = x.float() @ w.float().transpose(0, 1)\n    y = y + r.float()\n    return y.to(x)",
        "return x @ torch.transpose(w, -2, -1) + r",
        "return x.matmul(w.mT).add(r)",
        "return np.matmul(x, np.swapaxes(w, 0, 1)) + r",
    ],
)
def test_a_residual_product_is_recognised_however_it_is_written(body: str) -> None:
    operator = definition(f'import torch\n\ndef run(x, w, r):\n    "a product"\n    {body}\n')
    found = recognised_matmul(operator)
    assert found is not None and found.fingerprint == operator.fingerprint
    workload = Workload(operator=found.fingerprint, axes={"B": 2, "S": 293})
    job = matmul_job(found, workload)
    assert job is not None
    assert (job.m, job.n, job.k, job.layout, job.residual) == (586, 2560, 2560, "TN", True)


@pytest.mark.parametrize(
    "body",
    [
        "return x @ w + r",  # the shapes do not fit
        "return x @ w.T",  # r is not used
        "return x @ w.T + r + r",
        "return x @ w.T * 2 + r",
        "return x @ w.T - r",
        "return (x @ w.T + r) @ w",
        "return torch.relu(x @ w.T) + r",
        "return torch.matmul(x, w.T, out=r) + r",
        "return softmax(x @ w.T + r)",
        "for i in x:\n        pass\n    return x @ w.T + r",
        "return x.transpose(0, 1) @ w.T + r",
        "return y",
    ],
)
def test_what_is_no_product_is_not_guessed_at(body: str) -> None:
    assert recognised_matmul(definition(f"def run(x, w, r):\n    {body}\n")) is None


def test_an_activation_on_top_is_recognised() -> None:
    source = "def run(x, w, r):\n    return torch.relu(x @ w.T + r)\n"
    found = recognised_matmul(definition(source))
    assert found is not None and found.op_type == "matmul_relu"


def test_an_operator_that_says_so_is_taken_at_its_word() -> None:
    operator = matmul_operator(MatmulForm())
    assert recognised_matmul(operator) is operator
    assert recognised_matmul(definition("def run(x, w):\n    return x\n")) is None
    assert recognised_matmul(definition("def run(x, w, *, r):\n    return x @ w.T + r\n")) is None


def test_factors_are_found_in_any_order_and_through_a_square_weight() -> None:
    """The published projection: the residual stands second, and K and N are one axis."""
    axes = {n: Axis(name=n, kind="var") for n in ("B", "S")}
    axes["H"] = Axis(name="H", kind="const", value=2560)
    row = ("B", "S", "H")
    tensors = {"attn": row, "stream": row, "o_proj": ("H", "H")}

    def operator(body: str) -> Operator:
        return Operator(
            name="projection",
            axes=axes,
            inputs=tuple(TensorSpec(name=n, shape=s, dtype="bfloat16") for n, s in tensors.items()),
            outputs=(TensorSpec(name="y", shape=row, dtype="bfloat16"),),
            reference=f"def run(attn, stream, o_proj):\n    {body}\n",
        )

    for body, flipped in (
        ("p = torch.matmul(attn, o_proj.t())\n    return p + stream", True),
        ("return stream + attn @ o_proj", False),
    ):
        found = recognised_matmul(operator(body))
        assert found is not None
        workload = Workload(operator=found.fingerprint, axes={"B": 2, "S": 293})
        roles, job = matmul_roles(found, workload), matmul_job(found, workload)
        assert roles is not None and job is not None
        assert (roles.a, roles.b, roles.residual, roles.bias) == ("attn", "o_proj", "stream", None)
        assert (job.m, job.n, job.k, job.transpose_b) == (586, 2560, 2560, flipped)
        assert job.residual and not job.in_place
    assert recognised_matmul(operator("return o_proj @ attn + stream")) is None


def test_the_packaged_projection_is_a_product() -> None:
    problem = packaged_problem("gemm_residual", [{"batch": 3}])
    found = recognised_matmul(problem.operator)
    assert found is not None
    job = matmul_job(found, problem.workloads[0])
    assert job is not None and (job.m, job.n, job.k, job.layout) == (768, 2560, 2560, "TN")
    assert problem.workloads[0].tolerance.max_rtol == 0.05
    with pytest.raises(InputError, match="no axis 'bach' \\(did you mean 'batch'"):
        packaged_problem("gemm_residual", [{"bach": 3}])
    with pytest.raises(InputError, match="whole number from 1"):
        packaged_problem("gemm_residual", [{"seq": 0}])
    with pytest.raises(InputError, match="did you mean 'gemm_residual'"):
        packaged_problem("gemm_resid")
