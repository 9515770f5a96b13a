"""Operators bound for a device: shapes, memory, exact inputs, aliases. No GPU is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelarc.bench.kernels._bench import _rulers
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._memory import Needs
from kernelarc.bench.kernels._messages import KernelTask
from kernelarc.genomes import (
    InputError,
    MatmulForm,
    axis_values,
    matmul_operator,
    matmul_problem,
    packaged_problem,
    packaged_problems,
)

L2 = 60 << 20


def _bound(name: str, place: int = 0) -> BoundJob:
    problem = packaged_problem(name, [])
    return BoundJob.of(KernelTask(operator=problem.operator, workload=problem.workloads[place]))


@pytest.mark.parametrize("name", packaged_problems())
def test_every_packaged_problem_can_be_bound(name: str) -> None:
    job = _bound(name)
    assert job.touched_bytes > 0
    assert job.depth >= 1
    flops, nbytes = job.work
    assert flops is not None and flops > 0
    assert nbytes is not None and nbytes > 0
    # A bound that random values in place of results would meet is none.
    assert {0 < ruler.allowed_rms < 0.2 for ruler in _rulers(job).values()} == {True}
    needs = Needs.of(job, L2)
    assert needs.count >= 2
    assert needs.total_bytes > needs.count * job.touched_bytes
    assert needs.swept == (needs.count * job.touched_bytes <= 2 * L2)


def test_floating_types_are_told_from_whole_numbers_and_packed_ones() -> None:
    kinds = {
        tensor.dtype: tensor.floating
        for name in packaged_problems()
        for tensor in (*_bound(name).inputs, *_bound(name).outputs)
    }
    assert kinds["bfloat16"] and kinds["float32"] and kinds["float8_e4m3fn"]
    assert not kinds["int32"] and not kinds["int64"] and not kinds["float4_e2m1fn_x2"]


def test_scalars_are_no_tensors() -> None:
    job = _bound("add_rmsnorm_bf16")
    assert set(job.scalars) == {"eps"}
    assert "eps" not in {tensor.name for tensor in job.inputs}


def _product(*, in_place: bool = False) -> BoundJob:
    operator = matmul_operator(MatmulForm(dtype="bfloat16", residual=True))
    problem = matmul_problem(operator, [{"M": 8, "N": 16, "K": 32}], in_place=in_place)
    task = KernelTask(operator=operator, workload=problem.workloads[0], in_place=in_place)
    return BoundJob.of(task)


def test_what_is_summed_over_is_known() -> None:
    job = _product()
    assert job.contracted == {"a": 1, "weight": 1}
    assert job.product is not None
    assert job.product.k == job.depth == 32


def test_outputs_may_be_written_into_inputs_only_where_allowed() -> None:
    assert _product().aliases == {}
    assert _product(in_place=True).aliases == {"out": ("residual",)}


def test_a_workload_that_does_not_fit_is_refused_with_both_figures() -> None:
    job = _product()
    needs = Needs.of(job, L2)
    assert job.product is not None
    whole = needs.total_bytes + job.product.workspace_bytes  # scratch of the library's beside it
    needs.demand(job, whole)
    with pytest.raises(InputError, match="GiB of device memory"):
        needs.demand(job, whole - 1)
    with pytest.raises(InputError, match=r"needs 0\.\d GiB of device memory, 0\.0 are free"):
        needs.demand(job, 1 << 20)


def test_codes_of_4_bits_do_not_loosen_what_outputs_are_held_to() -> None:
    job = _bound("nvfp4_gqa")
    assert (job.arithmetic, job.intermediate) == ("float4_e2m1fn_x2", "bfloat16")
    assert {ruler.allowed_rms < 0.05 for ruler in _rulers(job).values()} == {True}


def test_more_outputs_than_reports_are_refused_in_one_line() -> None:
    problem = packaged_problem("geglu", [])
    (out,) = problem.operator.outputs
    many = tuple(replace(out, name=f"out_{i}") for i in range(13))
    operator = replace(problem.operator, outputs=many)
    with pytest.raises(InputError, match="has 13 outputs: at most 12"):
        BoundJob.of(KernelTask(operator=operator, workload=problem.workloads[0]))


@pytest.mark.parametrize("name", ["gqa_paged_prefill", "gqa_ragged_prefill"])
def test_float64_scores_of_the_longest_sequence_fit_a_device(name: str) -> None:
    """A reference holds four copies of them at a time; sequences grow in length."""
    problem = packaged_problem(name)
    for workload in problem.workloads:
        axes = axis_values(problem.operator, workload)
        keys = axes["total_kv" if "total_kv" in axes else "num_kv_indices"]
        shares = sum(range(axes["len_indptr"]))
        longest = (axes["len_indptr"] - 1) / shares
        pairs = axes["total_q"] * longest * keys * longest * axes["num_qo_heads"]
        assert 4 * 8 * pairs < 70 << 30, workload.label
