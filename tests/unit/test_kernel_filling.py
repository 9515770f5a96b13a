"""How inputs are drawn: by rule, by name, and exactly. A recorder stands for the GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelarc.bench.cuda._kernels import CONSTANT, HEAVY, NORMAL, POSITIVE, WHOLE, ZERO_ONE, Tensor
from kernelarc.bench.kernels._filling import FILLINGS, Filler
from kernelarc.bench.kernels._job import BoundJob
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._messages import KernelTask
from kernelarc.genomes import (
    Axis,
    InputError,
    MatmulForm,
    Operator,
    TensorSpec,
    Workload,
    matmul_operator,
    matmul_problem,
)


class Recorder:
    """Takes what would be launched."""

    def __init__(self) -> None:
        self.fills: dict[int, dict[str, Any]] = {}
        self.uploads: dict[int, Any] = {}

    def fill(self, tensor: Tensor, **rule: Any) -> None:
        self.fills[tensor.address] = rule

    def upload(self, tensor: Tensor, values: Any) -> None:
        self.uploads[tensor.address] = values


def _drawn(job: BoundJob, how: str = "fill", **options: Any) -> tuple[Recorder, dict[str, Any]]:
    """Return the recorder, and what each input got by name."""
    recorder = Recorder()
    tensors = {
        t.name: Tensor(place, t.count, t.nbytes, t.dtype) for place, t in enumerate(job.inputs)
    }
    buffers = TensorSet(block=None, tensors=tensors, scalars={})
    filler = Filler(recorder, job)  # type: ignore[arg-type]
    getattr(filler, how)(buffers, 5, **options)
    named = {t.name: recorder.fills.get(place) for place, t in enumerate(job.inputs)}
    return recorder, {**named, **buffers.scalars}


def _product() -> BoundJob:
    operator = matmul_operator(MatmulForm(dtype="bfloat16", residual=True))
    problem = matmul_problem(operator, [{"M": 8, "N": 16, "K": 1024}])
    return BoundJob.of(KernelTask(operator=operator, workload=problem.workloads[0]))


SPECS = {
    "x": "bfloat16",
    "rstd": "float32",
    "gate_proj": "bfloat16",
    "index": "int32",
    "mask": "bool",
    "codes": "float4_e2m1fn_x2",
}


def _mixed(**rules: dict[str, Any]) -> BoundJob:
    inputs = [TensorSpec(name=name, shape=("R", "C"), dtype=dtype) for name, dtype in SPECS.items()]
    inputs.append(TensorSpec(name="eps", shape=None, dtype="float32"))
    operator = Operator(
        name="mixed",
        axes={name: Axis(name=name, kind="var") for name in "RC"},
        inputs=tuple(inputs),
        outputs=(TensorSpec(name="y", shape=("R", "C"), dtype="bfloat16"),),
        reference="def run(*a):\n    return a[0]\n",
    )
    workload = Workload(operator=operator.fingerprint, axes={"R": 4, "C": 64}, inputs=rules)
    return BoundJob.of(KernelTask(operator=operator, workload=workload))


def test_products_have_a_spread_of_about_one() -> None:
    _, drawn = _drawn(_product())
    assert drawn["a"]["how"] == drawn["weight"]["how"] == NORMAL
    assert drawn["a"]["scale"] == drawn["residual"]["scale"] == 1.0
    assert drawn["weight"]["scale"] == pytest.approx(1 / math.sqrt(1024))
    assert len({drawn[name]["seed"] for name in drawn}) == 3


def test_variants_change_the_first_factor() -> None:
    _, drawn = _drawn(_product(), filling=FILLINGS["tripled"])
    assert drawn["a"]["scale"] == 3.0
    _, drawn = _drawn(_product(), filling=FILLINGS["heavy-tailed"])
    assert (drawn["a"]["how"], drawn["weight"]["how"]) == (HEAVY, NORMAL)


def test_exact_inputs_are_dense_where_k_ends() -> None:
    _, drawn = _drawn(_product(), "fill_exact")
    for name in ("a", "weight"):
        rule = drawn[name]
        assert (rule["how"], rule["k_stride"], rule["k_extent"], rule["tail"]) == (
            ZERO_ONE, 1, 1024, 16,
        )  # fmt: skip
    _, ones = _drawn(_product(), "fill_exact", ones=True)
    assert ones["a"]["how"] == CONSTANT and ones["a"]["scale"] == 1.0
    assert ones["residual"]["scale"] == 0.0


def test_names_and_types_say_how_values_are_spread() -> None:
    _, drawn = _drawn(_mixed())
    assert drawn["x"]["how"] == NORMAL and drawn["x"]["scale"] == 1.0
    assert drawn["rstd"]["how"] == POSITIVE
    assert drawn["gate_proj"]["scale"] == pytest.approx(1 / 8)
    whole = {name: drawn[name]["scale"] for name in ("index", "mask", "codes")}
    assert {drawn[name]["how"] for name in whole} == {WHOLE}
    assert whole == {"index": 8.0, "mask": 2.0, "codes": 256.0}
    assert 0.5 <= drawn["eps"] <= 1.5


def test_workloads_set_values() -> None:
    rules = {"eps": {"type": "scalar", "value": 1e-5}, "x": {"type": "scalar", "value": 3}}
    _, drawn = _drawn(_mixed(**rules))
    assert drawn["eps"] == 1e-5
    assert (drawn["x"]["how"], drawn["x"]["scale"]) == (CONSTANT, 3.0)


def test_custom_inputs_are_the_references_to_make() -> None:
    job = _mixed(x={"type": "custom"})
    assert job.custom
    with pytest.raises(InputError, match="'x' is custom"):
        _drawn(job)


def test_files_that_are_missing_are_stood_in_for() -> None:
    operator = Operator(
        name="ragged",
        axes={"S": Axis(name="S", kind="var"), "T": Axis(name="T", kind="var")},
        inputs=(
            TensorSpec(name="q", shape=("T",), dtype="float32"),
            TensorSpec(name="qo_indptr", shape=("S",), dtype="int32"),
        ),
        outputs=(TensorSpec(name="y", shape=("T",), dtype="float32"),),
        reference="def run(q, qo_indptr):\n    return q\n",
    )
    file = {"type": "safetensors", "path": "gone.safetensors", "tensor_key": "k"}
    operator = replace(
        operator,
        axes={**operator.axes, "total_q": Axis(name="total_q", kind="var")},
        inputs=(replace(operator.inputs[0], shape=("total_q",)), operator.inputs[1]),
        outputs=(replace(operator.outputs[0], shape=("total_q",)),),
    )
    workload = Workload(
        operator=operator.fingerprint,
        axes={"S": 5, "T": 1, "total_q": 64},
        inputs={"q": file, "qo_indptr": file},
    )
    job = BoundJob.of(KernelTask(operator=operator, workload=workload))
    recorder, drawn = _drawn(job)
    assert drawn["q"]["how"] == NORMAL
    starts = recorder.uploads[1]
    assert starts.dtype == np.int32
    assert starts.tolist() == [0, 16, 32, 48, 64]


def test_names_that_call_for_values_get_them_and_the_weight_is_found_by_its_role() -> None:
    """As in the published projection: the residual stands second, the weight third."""
    row = ("R", "C")
    operator = Operator(
        name="projection",
        axes={name: Axis(name=name, kind="var") for name in "RC"},
        inputs=(
            TensorSpec(name="x", shape=row, dtype="bfloat16"),
            TensorSpec(name="r", shape=row, dtype="bfloat16"),
            TensorSpec(name="w", shape=("C", "C"), dtype="bfloat16"),
        ),
        outputs=(TensorSpec(name="y", shape=row, dtype="bfloat16"),),
        reference="def run(x, r, w):\n    return x @ w.T + r\n",
        op_type="matmul",
    )
    workload = Workload(operator=operator.fingerprint, axes={"R": 8, "C": 256})
    _, drawn = _drawn(BoundJob.of(KernelTask(operator=operator, workload=workload)))
    assert (drawn["r"]["scale"], drawn["w"]["scale"]) == (1.0, 1 / 16)
    turned = replace(
        operator,
        inputs=(operator.inputs[0], TensorSpec(name="cos", shape=row, dtype="bfloat16")),
        reference="def run(x, cos):\n    return x * cos\n",
        op_type="",
    )
    job = BoundJob.of(
        KernelTask(operator=turned, workload=replace(workload, operator=turned.fingerprint))
    )
    recorder, drawn = _drawn(job)
    assert drawn["cos"] is None and drawn["x"]["how"] == NORMAL
    (uploaded,) = recorder.uploads.values()
    assert uploaded.dtype == np.uint16 and uploaded.shape == (8, 256)
    assert float((uploaded.astype(np.uint32) << 16).view(np.float32).max()) <= 1.0
