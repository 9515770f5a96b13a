"""Matrix products: which operators are one, and the job that a library is then given.

An operator is a matrix product when its reference is ``out = f(op(A) . op(B) [+ residual]
[+ bias])`` and its ``op_type`` says so. The roles are read from the reference, or from the tensors'
axes, never from their names: the axis that both factors have and the output has not is contracted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._operators import (
    Axis,
    Operator,
    Problem,
    TensorSpec,
    Tolerance,
    Workload,
)
from kernelarc.genomes.routes._matmul_roles import matmul_roles

ACTIVATIONS = ("none", "relu", "gelu")
LAYOUTS = ("TN", "NN", "NT")
DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn")
DEFAULT_WORKSPACE_MIB, MOST_WORKSPACE_MIB = 64, 4096
_OP_TYPES = ("matmul", "gemm")
_TOLERANCES = {
    "bfloat16": Tolerance(max_atol=1e-2, max_rtol=2e-2),
    "float16": Tolerance(max_atol=2e-3, max_rtol=4e-3),
    "float32": Tolerance(max_atol=1e-4, max_rtol=1e-4),
    "float8_e4m3fn": Tolerance(max_atol=1e-2, max_rtol=2e-2),
}
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}
_ACTIVATION_TEXT = {
    "none": "x",
    "relu": "np.maximum(x, 0)",
    "gelu": "0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))",
}
TF32_TOLERANCE = Tolerance(max_atol=2e-3, max_rtol=2e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulJob:
    """A matrix product with every number bound: ``out = f(op(A) . op(B) + residual + bias)``.

    Shapes are row-major: A is (batch, m, k), or (batch, k, m) when transposed; B is (batch, k, n),
    or (batch, n, k) when transposed; out and residual are (batch, m, n); bias is (n,).

    Attributes:
        dtype: Of both factors, a schema dtype name.
        out_dtype: Of output, residual and bias.
        activation: ``"none"``, ``"relu"`` or ``"gelu"`` (the tanh form, as the library has it).
        in_place: Whether the output may overwrite the residual.
        tf32: Whether float32 factors may be rounded to tfloat32.
        fast_accum: Whether 8-bit factors may be accumulated in less than float32.
        workspace_bytes: Most scratch memory that a genome may use.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str
    out_dtype: str
    transpose_a: bool = False
    transpose_b: bool = True
    residual: bool = False
    in_place: bool = False
    bias: bool = False
    activation: str = "none"
    tf32: bool = False
    fast_accum: bool = False
    workspace_bytes: int = DEFAULT_WORKSPACE_MIB << 20

    @property
    def layout(self) -> str:
        """``"TN"``, ``"NN"``, ``"NT"`` or ``"TT"`` as the library sees it: column-major.

        The library computes the transposed product, so B is its first factor: ``TN`` is
        A (m, k) by B (n, k), both contiguous along k.
        """
        return ("T" if self.transpose_b else "N") + ("T" if self.transpose_a else "N")

    @property
    def scaled(self) -> bool:
        """Whether the factors carry tensor-wide float32 scales."""
        return self.dtype.startswith("float8")

    @property
    def flops(self) -> float:
        """Multiplications and additions of the product."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> float:
        """Least traffic: each input read once, the output written once."""
        factors = self.batch * (self.m + self.n) * self.k * dtype_bytes(self.dtype)
        outputs = self.batch * self.m * self.n * dtype_bytes(self.out_dtype)
        return float(factors + outputs * (2 if self.residual else 1))

    @property
    def compute(self) -> str:
        """Declared type of arithmetic and partial sums, as a schema-like dtype name."""
        return "tfloat32" if self.tf32 else "float32"


def dtype_bytes(dtype: str) -> int:
    """Return the size of an element.

    Raises:
        InputError: The dtype is none that a matrix product here has.
    """
    sizes = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}
    if dtype not in sizes:
        raise InputError(f"a matrix product has no dtype {dtype!r}{nearest(dtype, sizes)}")
    return sizes[dtype]


# Describing


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulForm:
    """Which matrix product an operator is; the axes are called ``B M N K``.

    Attributes:
        dtype: Of the factors; 8-bit factors give a bfloat16 output.
        layout: As ``MatmulJob.layout``.
        residual: Whether a third tensor of the output's shape is added.
        bias: Whether a vector of length N is added to every row.
        activation: What is applied last.
        batched: Whether every tensor but the bias has a leading axis B.

    Raises:
        InputError: No such dtype, layout or activation.
    """

    dtype: str = "bfloat16"
    layout: str = "TN"
    residual: bool = False
    bias: bool = False
    activation: str = "none"
    batched: bool = False

    def __post_init__(self) -> None:
        given = (self.dtype, self.layout, self.activation)
        for value, known in zip(given, (DTYPES, LAYOUTS, ACTIVATIONS), strict=True):
            if value not in known:
                raise InputError(f"matmul has no form {value!r}{nearest(value, known)}")

    @property
    def out_dtype(self) -> str:
        """Dtype of output, residual and bias."""
        return "bfloat16" if self.dtype.startswith("float8") else self.dtype

    @property
    def name(self) -> str:
        """The operator's name, for example ``"matmul_bf16_tn_residual"``."""
        parts = ["matmul", _SHORT[self.dtype], self.layout.lower()]
        parts += ["batched"] * self.batched + ["residual"] * self.residual + ["bias"] * self.bias
        return "_".join([*parts, *([] if self.activation == "none" else [self.activation])])

    @property
    def reference(self) -> str:
        """Python source of the reference."""
        parameters = ["a", "weight"] + ["residual"] * self.residual + ["bias"] * self.bias
        left = "a" if self.layout[1] == "N" else "np.swapaxes(a, -1, -2)"
        right = "np.swapaxes(weight, -1, -2)" if self.layout[0] == "T" else "weight"
        total = f"{left} @ {right}" + " + residual" * self.residual + " + bias" * self.bias
        act = _ACTIVATION_TEXT[self.activation]
        return (
            "import numpy as np\n\n\n"
            f"def run({', '.join(parameters)}):\n    x = {total}\n    return {act}\n"
        )


def matmul_operator(form: MatmulForm, axes: Mapping[str, int] | None = None) -> Operator:
    """Return the operator of one form of matrix product.

    Args:
        form: Types, layout and what is fused.
        axes: Axes that are constant, by name out of ``B M N K``; the others are var.
    """
    fixed = dict(axes or {})
    batch = ("B",) if form.batched else ()
    a = (*batch, "M", "K") if form.layout[1] == "N" else (*batch, "K", "M")
    b = (*batch, "N", "K") if form.layout[0] == "T" else (*batch, "K", "N")
    out = (*batch, "M", "N")
    inputs = [
        TensorSpec(name="a", shape=a, dtype=form.dtype),
        TensorSpec(name="weight", shape=b, dtype=form.dtype),
    ]
    if form.residual:
        inputs.append(TensorSpec(name="residual", shape=out, dtype=form.out_dtype))
    if form.bias:
        inputs.append(TensorSpec(name="bias", shape=("N",), dtype=form.out_dtype))
    return Operator(
        name=form.name,
        axes={name: _axis(name, fixed) for name in (*out, "K")},
        inputs=tuple(inputs),
        outputs=(TensorSpec(name="out", shape=out, dtype=form.out_dtype),),
        reference=form.reference,
        flops="2 * M * N * K" + (" * B" if form.batched else ""),
        op_type="matmul" if form.activation == "none" else f"matmul_{form.activation}",
        description="matrix product" + (" added to a residual" if form.residual else ""),
    )


def matmul_problem(
    operator: Operator,
    shapes: Sequence[Mapping[str, int]],
    *,
    in_place: bool = False,
    tf32: bool = False,
    workspace_mib: int = DEFAULT_WORKSPACE_MIB,
    tolerance: Tolerance | None = None,
) -> Problem:
    """Return a problem with one workload per set of axis values."""
    dtype = operator.inputs[0].dtype
    options: dict[str, bool | int | str] = {"workspace_mib": workspace_mib}
    if in_place:
        options["in_place"] = True
    if tf32:
        options["tf32"] = True
    held = tolerance or (TF32_TOLERANCE if tf32 else _TOLERANCES[dtype])
    return Problem(
        operator=operator,
        workloads=tuple(
            Workload(
                operator=operator.fingerprint, axes=dict(axes), tolerance=held, options=options
            )
            for axes in shapes
        ),
    )


def _axis(name: str, fixed: Mapping[str, int]) -> Axis:
    if name in fixed:
        return Axis(name=name, kind="const", value=fixed[name])
    return Axis(name=name, kind="var")


# Recognising


def matmul_job(
    operator: Operator, workload: Workload, axes: Mapping[str, int] | None = None
) -> MatmulJob | None:
    """Read the job out of an operator with bound axes, or return None where it is no product.

    Args:
        operator: Any operator.
        workload: One of its workloads.
        axes: Every axis by name, expressions included; the workload's and the const ones if None.

    Raises:
        InputError: It is a product, but one that cannot be given to a library: the message says
            which dtype, option or shape stands in the way.
    """
    kind, _, activation = operator.op_type.partition("_")
    if kind not in _OP_TYPES or len(operator.outputs) != 1:
        return None
    roles = matmul_roles(operator, workload)
    if roles is None or (activation or "none") not in ACTIVATIONS:
        return None
    bound = dict(axes) if axes is not None else _bound(operator, workload)
    out = operator.outputs[0]
    options = workload.options
    dtypes = {spec.name: spec.dtype for spec in operator.inputs}
    job = MatmulJob(
        m=_extent(roles.m, bound),
        n=_extent(roles.n, bound),
        k=_extent(roles.k, bound),
        batch=_extent(roles.batch, bound),
        dtype=dtypes[roles.a],
        out_dtype=out.dtype,
        transpose_a=roles.transpose_a,
        transpose_b=roles.transpose_b,
        residual=roles.residual is not None,
        bias=roles.bias is not None,
        activation=activation or "none",
        in_place=roles.residual is not None and bool(options.get("in_place", False)),
        tf32=bool(options.get("tf32", False)),
        fast_accum=bool(options.get("fast_accum", False)),
        workspace_bytes=_workspace(options) << 20,
    )
    _check(job, operator, dtypes[roles.b])
    return job


def _bound(operator: Operator, workload: Workload) -> dict[str, int]:
    fixed = {name: axis.value for name, axis in operator.axes.items() if axis.value is not None}
    return {**fixed, **workload.axes}


def _extent(names: tuple[str, ...], bound: Mapping[str, int]) -> int:
    missing = [name for name in names if name not in bound and not name.isdigit()]
    if missing:
        raise InputError(f"axis {missing[0]!r} has no value: set it, for example {missing[0]}=1024")
    return math.prod(int(name) if name.isdigit() else bound[name] for name in names)


def _workspace(options: Mapping[str, bool | int | str]) -> int:
    value = options.get("workspace_mib", DEFAULT_WORKSPACE_MIB)
    if type(value) is not int or not 0 <= value <= MOST_WORKSPACE_MIB:
        raise InputError(
            f"workspace_mib is a whole number from 0 to {MOST_WORKSPACE_MIB}, not {value!r}"
        )
    return value


def _check(job: MatmulJob, operator: Operator, other_dtype: str) -> None:
    dtype_bytes(job.dtype)
    dtype_bytes(job.out_dtype)
    if other_dtype != job.dtype:
        raise InputError(
            f"operator {operator.name!r}: the factors have dtypes {job.dtype} and "
            f"{other_dtype}; a matrix product here has one"
        )
    if job.scaled and job.layout != "TN":
        raise InputError(
            f"operator {operator.name!r}: 8-bit factors must both be contiguous along the "
            f"contracted axis (layout TN), not {job.layout}"
        )
    if job.scaled and (job.k % 16 or job.n % 16):
        raise InputError(
            f"operator {operator.name!r}: 8-bit factors need K and N to be multiples of 16, "
            f"not K={job.k}, N={job.n}"
        )
    if job.tf32 and job.dtype != "float32":
        raise InputError(f"option tf32 is for float32 factors, not {job.dtype}")
