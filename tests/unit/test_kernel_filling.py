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


NAMED: dict[str, tuple[str, tuple[int, ...], tuple[int, float] | None]] = {
    # name: its type, its shape, how it is drawn; None: made on the host
    "A": ("float16", (8, 64), None),
    "B": ("float16", (16, 64), (NORMAL, 1.0)),
    "o_proj": ("bfloat16", (16, 64), (NORMAL, 1 / 8)),
    "weight2": ("float32", (16, 16), (NORMAL, 1 / 4)),
    "conv_weight": ("float32", (8, 4, 1), (NORMAL, 1.0)),
    "weight": ("bfloat16", (64,), (NORMAL, 1.0)),
    "q_norm_weight": ("bfloat16", (64,), (CONSTANT, 1.0)),
    "input_layernorm_weight": ("float32", (64,), (CONSTANT, 1.0)),
    "norm1_weight": ("float32", (8, 64), (CONSTANT, 1.0)),
    "final_norm_bias": ("float16", (64,), (CONSTANT, 0.0)),
    "down_proj_bias": ("float32", (8, 64), (NORMAL, 1.0)),
    "rope_weights": ("float8_e4m3fn", (8, 64), (NORMAL, 1.0)),
    "w1": ("bfloat16", (64, 64), (NORMAL, 1.0)),
    "x_var": ("float32", (8, 1), None),
    "cos": ("bfloat16", (8, 64), None),
    "position_ids": ("int64", (8, 64), None),
    "bytes": ("int8", (8, 64), None),
    "kept": ("bool", (8, 64), (WHOLE, 2.0)),
}


def _named(**changes: object) -> BoundJob:
    sizes = sorted({str(n) for _, shape, _ in NAMED.values() for n in shape})
    operator = Operator(
        name="named",
        axes={f"n{size}": Axis(name=f"n{size}", kind="const", value=int(size)) for size in sizes},
        inputs=(
            *(
                TensorSpec(name=name, shape=tuple(f"n{n}" for n in shape), dtype=dtype)
                for name, (dtype, shape, _) in NAMED.items()
            ),
            TensorSpec(name="scale", shape=None, dtype="bfloat16"),
            TensorSpec(name="shift", shape=None, dtype="int32"),
            TensorSpec(name="causal", shape=None, dtype="bool"),
        ),
        outputs=(TensorSpec(name="y", shape=("n64",), dtype="float32"),),
        reference="import torch\n\ndef run(*a):\n    return a[0]\n",
    )
    operator = replace(operator, **changes)  # type: ignore[arg-type]
    return BoundJob.of(
        KernelTask(operator=operator, workload=Workload(operator=operator.fingerprint))
    )


def test_a_harness_s_definition_is_drawn_as_the_harness_draws_it() -> None:
    recorder, drawn = _drawn(_named())
    made = {n: drawn[n] and (drawn[n]["how"], drawn[n]["scale"]) for n in NAMED}
    assert made == {name: how for name, (_, _, how) in NAMED.items()}
    places = {name: place for place, name in enumerate(NAMED)}
    ids, small = (recorder.uploads[places[name]] for name in ("position_ids", "bytes"))
    assert ids.dtype == np.int64 and -1024 <= ids.min() < -600 and 600 < ids.max() < 1024
    assert small.dtype == np.int8 and small.min() < -64 and small.max() > 64
    decays = recorder.uploads[places["A"]].astype(np.float64)
    assert -1.0 <= decays.min() < -0.9 and -0.1 < decays.max() < 0
    assert recorder.uploads[places["x_var"]].min() >= 0.1
    scalars = [_scalars(seed) for seed in range(300)]
    scales = np.array([each["scale"] for each in scalars])
    assert abs(scales.mean()) < 0.25 and 0.8 < scales.std() < 1.2
    shifts = np.array([each["shift"] for each in scalars])
    assert shifts.min() < -512 and shifts.max() > 512 and shifts.dtype.kind == "i"
    assert {each["causal"] for each in scalars} == {True, False}


def _scalars(seed: int) -> dict[str, Any]:
    buffers = TensorSet(block=None, tensors={}, scalars={})
    Filler(Recorder(), _named(inputs=_named().task.operator.inputs[-3:])).fill(  # type: ignore[arg-type]
        buffers, seed
    )
    return dict(buffers.scalars)


@pytest.mark.parametrize("how", ["tripled", "negated"])
def test_variants_draw_what_is_ones_and_zeros_otherwise(how: str) -> None:
    """Else a kernel that leaves a norm's weight out would be right everywhere."""
    _, drawn = _drawn(_named(), filling=FILLINGS[how])
    for name in ("q_norm_weight", "norm1_weight", "final_norm_bias"):
        assert (drawn[name]["how"], drawn[name]["scale"]) == (NORMAL, 1.0)
    _, exact = _drawn(_named(), "fill_exact")
    assert exact["q_norm_weight"]["how"] == ZERO_ONE


def test_what_samples_is_given_probabilities() -> None:
    probs = (TensorSpec(name="probs", shape=("n8", "n64"), dtype="float32"),)
    recorder, _ = _drawn(_named(inputs=probs, op_type="sampling"))
    np.testing.assert_allclose(recorder.uploads[0].sum(axis=-1), 1.0, rtol=1e-5)
    assert recorder.uploads[0].min() > 0
    _, drawn = _drawn(_named(inputs=probs))
    assert drawn["probs"]["how"] == NORMAL


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
