"""What torch has of its own for an operator, beside the operator's reference: rivals to be timed.

They are recognised by tensors alone; whether one does the job is for whoever times it to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes.routes._block import BLOCK_INPUTS
from kernelarc.genomes.routes._cuda_add_rmsnorm import norm_roles
from kernelarc.genomes.routes._cuda_gemm import gated_tensors
from kernelarc.genomes.routes._matmul_roles import matmul_roles
from kernelarc.genomes.routes._recognise_more import recognised
from kernelarc.genomes.routes._signature import matched
from kernelarc.genomes.routes._triton_moe import EXPERT_IN, EXPERT_OUT, LAYER_IN, LAYER_OUT
from kernelarc.genomes.routes._triton_saved import SAVED_IN, SAVED_OUT

_FOLDER = "kernelarc.genomes.routes"
_GATED = ("float *T H", "float I H", "float I H"), ("float *T I",)
_PAGED = ("float T H D", "float P S G D", "float P S G D")
_SUMS = ("float T H D", "float32 T H")
_FOUR_BITS = tuple(
    part
    for heads in "HGG"
    for part in (f"float4_e2m1fn_x2 B {heads} S P", f"float8_e4m3fn B {heads} S K", "float32")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchForm:
    """A function over torch that may do an operator's job.

    Attributes:
        name: What it is called, one word.
        source: Of a module that needs nothing but torch.
        function: Its name there; takes the operator's inputs in order, returns its outputs.
        compiles: Whether ``torch.compile`` can take it as one graph: it never asks the device.
    """

    name: str
    source: str
    function: str
    compiles: bool = True


@dataclass(frozen=True, slots=True)
class _Row:
    """Forms by the tensors that they are for, and the kind of job where these do not tell it."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    module: str
    forms: Sequence[tuple[str, str, bool]]
    kind: str = ""


_ROWS = (
    _Row(BLOCK_INPUTS, ("float B S H",), "torch_block", [("sdpa", "sdpa", True)]),
    _Row(
        (*_PAGED, "int32 L", "int32 L", "int32 I", "scalar"),
        _SUMS,
        "torch_attention",
        [
            ("flash", "flash", False),
            ("flash_bound", "flash_bound", True),
            ("flash_each", "flash_each", False),
        ],
    ),
    _Row(
        (*_PAGED, "int32 L", "int32 I", "scalar"),
        _SUMS,
        "torch_attention",
        [
            ("flash_bound", "decode_flash", True),
            ("flash_each", "decode_each", False),
            ("padded", "decode_padded", False),
        ],
    ),
    _Row(
        ("float T H D", "float N G D", "float N G D", "int32 L", "int32 L", "scalar"),
        _SUMS,
        "torch_attention",
        [
            ("flash", "ragged_flash", False),
            ("flash_bound", "ragged_bound", True),
            ("flash_each", "ragged_each", False),
        ],
    ),
    _Row(
        _FOUR_BITS,
        ("bfloat16 B H S D", "bfloat16 B H S S"),
        "torch_more",
        [("bf16", "bf16_products", True)],
    ),
    _Row(EXPERT_IN, EXPERT_OUT, "torch_moe", [("products", "products", True)]),
    _Row(
        SAVED_IN,
        SAVED_OUT,
        "torch_moe",
        [("products", "saved_products", True), ("pairs", "saved_pairs", True)],
    ),
    _Row(LAYER_IN, LAYER_OUT, "torch_moe", [("grouped", "grouped", True)]),
    _Row(*_GATED, "torch_more", [("silu", "swiglu", True)], "silu"),
    _Row(*_GATED, "torch_more", [("gelu", "geglu", True)], "gelu"),
)


def torch_forms(operator: Operator) -> tuple[TorchForm, ...]:
    """Return the functions that may do an operator's job, none where nothing fits."""
    known = recognised(operator)
    found = [form for row in _ROWS if _fits(row, known) for form in _forms(row)]
    made = [form for form in (_addmm(known), _rms_norm(known)) if form is not None]
    return (*made, *found)


def _fits(row: _Row, operator: Operator) -> bool:
    kind = operator.op_type
    if kind == "gated_projection" and (gated := gated_tensors(operator)) is not None:
        kind = gated[3]
    if row.kind and kind != row.kind:
        return False
    return matched(operator, row.inputs, row.outputs) is not None


def _forms(row: _Row) -> list[TorchForm]:
    source = _text(row.module)
    return [
        TorchForm(name=name, source=source, function=function, compiles=compiles)
        for name, function, compiles in row.forms
    ]


@cache
def _text(module: str) -> str:
    return files(_FOLDER).joinpath(f"{module}.py").read_text("utf-8")


def _addmm(operator: Operator) -> TorchForm | None:
    """Return ``torch.addmm`` for a product with a residual and a transposed weight."""
    roles = matmul_roles(operator, Workload(operator=operator.fingerprint))
    if roles is None or roles.residual is None or roles.bias or roles.batch:
        return None
    if roles.transpose_a or not roles.transpose_b or operator.op_type.partition("_")[2]:
        return None
    names = ", ".join(spec.name for spec in operator.inputs)
    source = (
        "import torch\n\n\n"
        f"def run({names}):\n"
        f"    n, k = {roles.b}.shape\n"
        f"    left, added = {roles.a}.reshape(-1, k), {roles.residual}.reshape(-1, n)\n"
        f"    return torch.addmm(added, left, {roles.b}.t()).view({roles.residual}.shape)\n"
    )
    return TorchForm(name="addmm", source=source, function="run")


def _rms_norm(operator: Operator) -> TorchForm | None:
    """Return torch's own norm of rows, or of a sum of two, with the operator's epsilon."""
    roles = norm_roles(operator)
    if roles is None or roles.summed is not None:
        return None
    names = ", ".join(spec.name for spec in operator.inputs)
    rows = roles.x if roles.residual is None else f"{roles.x} + {roles.residual}"
    epsilon = roles.epsilon if isinstance(roles.epsilon, str) else repr(roles.epsilon)
    source = (
        "from torch.nn import functional\n\n\n"
        f"def run({names}):\n"
        f"    width = {roles.weight}.shape\n"
        f"    return functional.rms_norm({rows}, width, {roles.weight}, {epsilon})\n"
    )
    return TorchForm(name="rms_norm", source=source, function="run")
