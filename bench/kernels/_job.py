"""An operator with everything bound: shapes, sizes, which inputs there are, how they are filled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelarc.bench._inputs import present_inputs, shape_of
from kernelarc.bench._reference import depth_of
from kernelarc.bench.cuda._kernels import ELEMENT_KINDS
from kernelarc.bench.kernels._messages import KernelTask
from kernelarc.genomes import (
    InputError,
    MatmulJob,
    TensorSpec,
    axis_values,
    bytes_of,
    flops_of,
    matmul_job,
)

_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "float4_e2m1": 1, "float4_e2m1fn_x2": 1, "int64": 8, "int32": 4,
    "int16": 2, "int8": 1, "bool": 1,
}  # fmt: skip
MOST_OUTPUTS = 12  # eight reports each
_NARROWEST = ("float4_e2m1fn_x2", "float4_e2m1", "float8_e4m3fn", "float8_e5m2", "float16",
              "bfloat16", "float32", "float64")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTensor:
    """One tensor of the job.

    Attributes:
        rule: How a workload fills it: ``{"type": "random"}`` and so on.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rule: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.count * _SIZES[self.dtype]

    @property
    def floating(self) -> bool:
        """Whether it holds floating-point numbers that can be widened."""
        return "float" in self.dtype and not self.dtype.startswith("float4")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundJob:
    """A task as memory, judge and launches need it.

    Attributes:
        inputs: Tensors that take part, in the operator's order; one element at least each.
        scalars: Python scalars by name, with their rule.
        outputs: In the operator's order.
        product: The job as a matrix product, where it is one that a library can be given.
        contracted: By input name, the place of the one axis that no output has.
        aliases: Inputs by output in whose buffer the workload lets them be written.
    """

    task: KernelTask
    inputs: tuple[BoundTensor, ...]
    scalars: Mapping[str, tuple[str, Mapping[str, Any]]]
    outputs: tuple[BoundTensor, ...]
    product: MatmulJob | None
    contracted: Mapping[str, int]
    aliases: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, task: KernelTask) -> BoundJob:
        """Bind a task.

        Raises:
            InputError: A tensor's type or shape cannot be held on a device.
        """
        operator, workload = task.operator, task.workload
        axes = axis_values(operator, workload)
        present = present_inputs(operator, workload)
        rules = workload.inputs
        tensors = tuple(_bound(s, axes, rules) for s in present if s.shape is not None)
        outputs = tuple(_bound(s, axes, {}) for s in operator.outputs)
        if len(outputs) > MOST_OUTPUTS:
            raise InputError(
                f"operator {operator.name!r} has {len(outputs)} outputs: at most {MOST_OUTPUTS} "
                "can be judged on a GPU"
            )
        return cls(
            task=task,
            inputs=tensors,
            scalars={
                s.name: (s.dtype, rules.get(s.name, {"type": "random"}))
                for s in present
                if s.shape is None
            },
            outputs=outputs,
            product=_product(task, axes),
            contracted=_contracted(present, operator.outputs, axes),
            aliases=_aliases(tensors, outputs) if task.in_place else {},
        )

    @property
    def custom(self) -> bool:
        """Whether the reference makes the inputs itself."""
        return any(tensor.rule.get("type") == "custom" for tensor in self.inputs)

    @property
    def touched_bytes(self) -> int:
        """Bytes of all inputs and outputs together."""
        return sum(tensor.nbytes for tensor in (*self.inputs, *self.outputs))

    @property
    def depth(self) -> int:
        """Longest chain of dependent roundings."""
        return depth_of(self.task.operator, self.task.workload)

    @property
    def arithmetic(self) -> str:
        """The narrowest floating-point type among the inputs: it sets the arithmetic's rate."""
        held = {tensor.dtype for tensor in self.inputs}
        return next((dtype for dtype in _NARROWEST if dtype in held), "float32")

    @property
    def intermediate(self) -> str:
        """The narrowest type to which a kernel may round what it computes on its way.

        Factors of 4 bits are codes with scales of 8: results are never rounded to either.
        """
        coded = any(tensor.dtype.startswith("float4") for tensor in self.inputs)
        held = {tensor.dtype for tensor in (self.outputs if coded else self.inputs)}
        return next((dtype for dtype in _NARROWEST if dtype in held), "float32")

    @property
    def work(self) -> tuple[float | None, float | None]:
        """FLOPs, and the least bytes through memory that are sure."""
        operator, workload = self.task.operator, self.task.workload
        known = bytes_of(operator, workload)
        if known is None and self.product is not None:
            known = self.product.bytes_moved
        if known is None:  # of the inputs, not all need be read
            known = float(sum(tensor.nbytes for tensor in self.outputs))
        return flops_of(operator, workload), known


def _bound(
    spec: TensorSpec, axes: Mapping[str, int], rules: Mapping[str, Mapping[str, Any]]
) -> BoundTensor:
    if spec.dtype not in ELEMENT_KINDS:
        raise InputError(f"tensor {spec.name!r} has dtype {spec.dtype!r}: no GPU route can hold it")
    rule = rules.get(spec.name, {"type": "random"})
    return BoundTensor(name=spec.name, shape=shape_of(spec, axes), dtype=spec.dtype, rule=rule)


def _product(task: KernelTask, axes: Mapping[str, int]) -> MatmulJob | None:
    try:
        found = matmul_job(task.operator, task.workload, axes)
    except InputError:  # a product, but none for the library
        return None
    return None if found is None or found.scaled else found


def _contracted(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], axes: Mapping[str, int]
) -> dict[str, int]:
    kept = {part for spec in outputs for part in spec.shape or ()}
    found = {}
    for spec in inputs:
        places = [i for i, part in enumerate(spec.shape or ()) if part in axes and part not in kept]
        if len(places) == 1:
            found[spec.name] = places[0]
    return found


def _aliases(
    inputs: tuple[BoundTensor, ...], outputs: tuple[BoundTensor, ...]
) -> dict[str, tuple[str, ...]]:
    return {
        out.name: tuple(t.name for t in inputs if t.shape == out.shape and t.dtype == out.dtype)
        for out in outputs
    }
