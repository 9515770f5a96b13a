"""One call of a Triton kernel as data: which kernel, with which arguments, constants, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from kernelarc.genomes.kernels import Clear, InputArgument, Scratch, ScratchArgument, TensorArgument

OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "launch_pdl",
    "launch_cooperative_grid",
)
"""Options of Triton's compiler that are not arguments of the kernel."""

TRITON_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
        "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
        "float4_e2m1": "u8", "float4_e2m1fn_x2": "u8", "uint8": "u8",
        "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "bool": "i1",
    }
)  # fmt: skip
"""Triton's names of the schema's dtypes."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of a tensor or of scratch memory.

    Attributes:
        target: Whose address; offsets that are multiples of 16 are told to the compiler.
        dtype: Schema dtype of what lies there.
    """

    target: TensorArgument | ScratchArgument
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A tensor descriptor made on the host (TMA), outermost dimension first as Triton has it.

    Attributes:
        target: Whose memory.
        dtype: Schema dtype.
        shape: Extents in elements.
        strides: In elements; the last is 1.
        block: The tile that one load or store moves.
        nan_fill: What is out of bounds reads as NaN instead of zero.
    """

    target: TensorArgument | ScratchArgument
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    nan_fill: bool = False


CallArgument: TypeAlias = Pointer | Descriptor | InputArgument | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonCall:
    """One launch of a ``@triton.jit`` function.

    Attributes:
        function: The ``JITFunction``.
        arguments: By parameter name, everything that is no constant. Whole numbers are specialised
            as Triton's own launcher does: 1 becomes a constant, multiples of 16 are told.
        constants: ``tl.constexpr`` parameters by name; parameters with a default may be absent.
        grid: Programs along x, y, z.
        options: Of the compiler, out of ``OPTIONS``.
        clears: What is set to zero before the launch, as part of the timed work.
        scratch: Buffers that the arguments name.
        given: What a launch function called the kernel with, by name, as it was given.
    """

    function: Any
    arguments: Mapping[str, CallArgument]
    constants: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, int, int]
    options: Mapping[str, Any] = field(default_factory=dict)
    clears: tuple[Clear, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
