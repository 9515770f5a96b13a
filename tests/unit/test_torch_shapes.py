"""Torch's forms on tensors of a GPU that is not there: torch has every call of theirs for GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from kernelarc.bench._inputs import shape_of
from kernelarc.bench._reference import function_of
from kernelarc.genomes import axis_values, packaged_problem, packaged_problems, torch_forms

CASES = [
    pytest.param(name, form, id=f"{name}-{form.name}")
    for name in packaged_problems()
    for form in torch_forms(packaged_problem(name).operator)
    if form.compiles  # the others read values, and here there are none
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_forms_give_what_the_job_wants_at_packaged_sizes(name: str, form: Any) -> None:
    """Operators, their arguments and result types as torch checks them; nothing is computed."""
    torch = pytest.importorskip("torch", reason="the forms are written with torch")
    if torch.version.cuda is None:  # even tensors that are not there need its device type
        pytest.skip("this torch is built without CUDA")
    from torch._subclasses.fake_tensor import FakeTensorMode

    problem = packaged_problem(name)
    operator, run = problem.operator, function_of(form.source, form.function)
    for workload in (problem.workloads[0], problem.workloads[-1]):
        axes = axis_values(operator, workload)
        with FakeTensorMode(), torch.no_grad():
            given = [
                0.25
                if spec.shape is None
                else torch.empty(
                    shape_of(spec, axes), dtype=getattr(torch, spec.dtype), device="cuda"
                )
                for spec in operator.inputs
            ]
            found = run(*given)
        found = found if isinstance(found, tuple) else (found,)
        for spec, one in zip(operator.outputs, found, strict=True):
            assert one.device.type == "cuda", spec.name
            assert one.dtype is getattr(torch, spec.dtype), spec.name
            assert tuple(one.shape) == tuple(shape_of(spec, axes)), spec.name
